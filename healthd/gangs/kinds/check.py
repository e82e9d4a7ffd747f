"""Check the description of a kind before anything uses it: what is wrong is said at the start, and not at a fault."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from healthd.core.config.gang_kinds import GangsPolicy, KindDescription
from healthd.core.untrusted import shown
from healthd.gangs.paths import parse_path, parse_sign, parse_signs

_NAME = re.compile(r"[A-Z][A-Za-z0-9]*")
_PLURAL = re.compile(r"[a-z][a-z0-9]*")
_VERSION = re.compile(r"[a-z0-9.-]+/v[0-9]+((alpha|beta)[0-9]+)?")
_LABEL = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def check_description(kind: KindDescription) -> None:
    """Raises ValueError, whose message says everything that is wrong with *kind* by itself."""
    if problems := [*_identity(kind), *_members(kind), *_ends(kind)]:
        raise ValueError("; ".join(problems))


def check_names(policy: GangsPolicy, shipped: Collection[str], others: Collection[str]) -> None:
    """Raises ValueError where two kinds have one name: a recovery names no more than the kind of its gang."""
    if unknown := sorted(set(policy.off) - set(shipped)):
        raise ValueError(f"off: {shown(unknown[0])} is none of {', '.join(shipped)}")
    taken = {*others, *(set(shipped) - set(policy.off))}
    for kind in policy.kinds:
        if kind.name in taken:
            raise ValueError(f"kinds: {kind.name} is there already; `off` leaves out a kind that healthd ships")
        taken.add(kind.name)


def _identity(kind: KindDescription) -> Iterator[str]:
    if not _VERSION.fullmatch(kind.api_version):
        yield f"api_version: {shown(kind.api_version)} is no group and version such as example.com/v1"
    if not _NAME.fullmatch(kind.kind):
        yield f"kind: {shown(kind.kind)} is no kind such as TrainingRun"
    if kind.alias and not _NAME.fullmatch(kind.alias):
        yield f"alias: {shown(kind.alias)} is no name such as VolcanoJob"
    if not _PLURAL.fullmatch(kind.plural):
        yield f"plural: {shown(kind.plural)} is no plural such as trainingruns"
    if bool(kind.suspend) is bool(kind.replicas):
        yield "one of `suspend` and `replicas` says how it is stopped"
    if kind.minimums and not kind.replicas:
        yield "minimums: they are 0 together with `replicas`, which is missing"
    if kind.pod_version and not kind.pod_version.startswith("status."):
        yield f"pod_version: {shown(kind.pod_version)} is no path in the status"


def _members(kind: KindDescription) -> Iterator[str]:
    if bool(kind.pods) is bool(kind.below):
        yield "one of `pods` and `below` says which pods it has"
    if kind.below not in ("", "JobSet", "Job"):
        yield f"below: {shown(kind.below)} is neither JobSet nor Job"
    labels = {"name_label": (kind.name_label,), "uid_label": (kind.uid_label,), "part_label": (kind.part_label,)}
    for key, values in {**labels, "index_labels": kind.index_labels}.items():
        yield from (f"{key}: {shown(each)} is no label" for each in values if each and not _LABEL.fullmatch(each))
    if kind.bound_by_name and (kind.name_suffix or not kind.name_label):
        yield "bound_by_name: `name_label` has to be there, with the name alone"
    if kind.name_suffix and not kind.name_label:
        yield "name_suffix: it is about the value of `name_label`, which is missing"
    if any(pods.elastic and not pods.count for pods in kind.pods):
        yield "pods.elastic: `count` has no path to the number"
    if sum(pods.numbered for pods in kind.pods) > 1 and kind.index_labels and not kind.part_label:
        yield "part_label: several parts are numbered, and nothing tells them apart"
    try:
        re.compile(kind.name_suffix)
    except re.error as error:
        yield f"name_suffix: {shown(kind.name_suffix)} is no regular expression: {error}"
    for key, path in _paths(kind):
        try:
            parse_path(path)
        except ValueError as error:
            yield f"{key}: {error}"


def _paths(kind: KindDescription) -> Iterator[tuple[str, str]]:
    yield from (("suspend", path) for path in [kind.suspend] if path)
    yield from (("replicas", path) for path in [kind.replicas] if path)
    yield from (("minimums", path) for path in kind.minimums)
    yield from (("pod_version", path) for path in [kind.pod_version] if path)
    yield from (("started", path) for path in [kind.started] if "." in path)
    for pods in kind.pods:
        yield "pods.at", pods.at
        yield from (("pods.name", path) for path in [pods.name] if path)
        yield from (("pods.count", path) for path in pods.count)
        yield from (("pods.template", path) for path in pods.template)
        limits = (pods.elastic.least, pods.elastic.most) if pods.elastic else ()
        yield from (("pods.elastic", path) for path in limits if path)


def _ends(kind: KindDescription) -> Iterator[str]:
    others = tuple(sign for pods in kind.pods if pods.elastic for sign in pods.elastic.unless)
    signs = {"suspended": kind.suspended, "succeeded": kind.succeeded, "failed": kind.failed, "pods.elastic": others}
    for key, texts in {**signs, "traps.when": tuple(trap.when for trap in kind.traps)}.items():
        for text in texts:
            try:
                parse_sign(text)
            except ValueError as error:
                yield f"{key}: {error}"
    joined = {"stopped": kind.stopped, **({"noticed_stop": kind.noticed_stop} if kind.noticed_stop else {})}
    for key, text in joined.items():
        try:
            parse_signs(text)
        except ValueError as error:
            yield f"{key}: {error}"
