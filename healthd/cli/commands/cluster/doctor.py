"""
`healthd doctor KIND/NAME`: say what stands in the way of a recovery, before anything has broken. `healthd doctor
node/NAME` says how a node in quarantine would be repaired (`doctor_node.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import random
import textwrap
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from healthd.cli.configuration.reading import load
from healthd.cli.doctor import node as doctor_node
from healthd.cli.doctor.described import with_description
from healthd.cli.doctor.rights import ask_about, find_verifiers
from healthd.cli.errors import UserError
from healthd.cli.target import cluster as target_cluster
from healthd.clock import SystemClock
from healthd.cluster.port import Cluster, ClusterError, Forbidden, NotFound, Reader
from healthd.cluster.remote import connect
from healthd.controller.cache.kind_checks import MATCHES_NOTHING
from healthd.controller.checkpoints.declaration import why_no_format
from healthd.controller.daemon import LEASE
from healthd.core.api import (
    ANNOTATION_CHECKPOINT,
    ANNOTATION_CHECKPOINT_FORMAT,
    ANNOTATION_LAUNCHER,
    LABEL_GANG,
    RESOURCES,
    JobManifest,
    JobSetManifest,
    Lease,
    MutatingAdmissionPolicy,
    Node,
    NodeHealth,
    ObjectMeta,
    Pod,
    PodManifest,
    Recovery,
    Slim,
    StatefulSetManifest,
)
from healthd.core.api.locations import VOLUMES_AT, allowed_in
from healthd.core.api.names import SYSTEM_NAMESPACE
from healthd.core.config import CheckpointsPolicy, Config
from healthd.core.config.gang_kinds import KindDescription
from healthd.core.recovery.gang import Root
from healthd.core.recovery.recovery_status import kind_named
from healthd.core.report.doctor import Chart, HintPolicy, Remark, RemarkLevel, examine
from healthd.core.report.doctor.rights import needed
from healthd.core.report.node_plan import plan_text
from healthd.gangs.adapter import GangAdapter
from healthd.gangs.annotations import metadata_of_root
from healthd.gangs.described import DescribedAdapter
from healthd.gangs.held import HeldAdapter
from healthd.gangs.kinds import adapters_of
from healthd.gangs.manifests import remembered

_NODE = "node/"
POLICY = "healthd-gangs"
"""The MutatingAdmissionPolicy that adds the hint to new pods."""
WIDTH = 100

EPILOG = """\
exit codes: 0 nothing prevents a recovery, 1 something does; of a node always 0

examples:
  healthd doctor job/llama -n research
  healthd doctor pods/llama --json
  healthd doctor node/gpu-17          # which rung would be taken, and why
"""

MANIFESTS: Mapping[str, type[JobManifest | JobSetManifest | StatefulSetManifest | PodManifest]] = {
    "Job": JobManifest,
    "JobSet": JobSetManifest,
    "StatefulSet": StatefulSetManifest,
    "PodGang": PodManifest,
}
"""How the complete object of a kind is read, where that is not as the controller reads it."""


class DoctorTarget(NamedTuple):
    """The gang that is asked about."""

    adapter: GangAdapter[Any]
    name: str
    namespace: str
    text: str
    """As the user wrote it."""

    @property
    def kind(self) -> str:
        """As a recovery names it."""
        return RESOURCES[self.adapter.kind].name

    @property
    def description(self) -> KindDescription | None:
        """Of its kind, where that is described by data."""
        adapter = self.adapter.inner if isinstance(self.adapter, HeldAdapter) else self.adapter
        return adapter.description if isinstance(adapter, DescribedAdapter) else None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd doctor`."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "target",
        metavar="KIND/NAME",
        help="job, jobset, statefulset, node or a kind of another operator, such as rayjob; pods/GANG for plain "
        "pods that carry that label",
    )
    parser.add_argument("-n", "--namespace", default="", metavar="NAME", help="where it is (default: as kubectl's)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the controller's configuration file")
    parser.add_argument("--hands", type=Path, metavar="FILE", help="of a node: further hands of the site, in YAML")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    target_cluster.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 when something prevents a recovery."""
    if args.target.startswith(_NODE):
        return _plan_for_node(args, args.target.removeprefix(_NODE))
    try:
        config = load(args.config) if args.config else None
        target = parse_target(args.target, target_cluster.namespace(args), config)
        chart = asyncio.run(_visit(args, target, config))
    except ClusterError as error:
        raise UserError(str(error)) from None
    remarks = examine(chart)
    print(as_json(target, remarks) if args.json else as_text(target, remarks))
    return int(any(remark.level is RemarkLevel.PREVENTS for remark in remarks))


def _plan_for_node(args: argparse.Namespace, name: str) -> int:
    try:
        plan = asyncio.run(doctor_node.visit(args, name))
    except ClusterError as error:
        raise UserError(str(error)) from None
    print(msgspec.json.encode(plan).decode() if args.json else plan_text(plan))
    return 0


def parse_target(text: str, namespace: str, config: Config | None = None) -> DoctorTarget:
    """KIND/NAME as a user writes it; *config* may describe further kinds. Raises UserError."""
    spelt, slash, name = text.partition("/")
    adapters = adapters_of((config or Config()).gangs)
    names = {name: each for kind, each in adapters.items() for name in (kind.lower(), _plural(each.kind))}
    adapter = names.get(kind_named(spelt))
    if not (slash and name and adapter):
        raise UserError(
            f"{text!r}: write job/NAME, jobset/NAME, statefulset/NAME or pods/GANG, or another kind of docs/gangs.md "
            "such as rayjob/NAME"
        )
    return DoctorTarget(adapter, name, namespace, text)


def _plural(kind: type[Slim]) -> str:
    """As kubectl names its objects; with the group where another kind has the same name."""
    resource = RESOURCES[kind]
    return f"{resource.plural}.{resource.api_version.partition('/')[0]}" if resource.alias else resource.plural


async def _visit(args: argparse.Namespace, target: DoctorTarget, config: Config | None) -> Chart:
    clock = SystemClock()
    async with connect(target_cluster.connection(args, clock), clock=clock, jitter=random.random) as cluster:
        return dataclasses.replace(await read_chart(cluster, target, config), now=clock.now())


async def read_chart(cluster: Cluster, target: DoctorTarget, config: Config | None = None) -> Chart:
    """
    Everything that *cluster* shows of the gang; what may not be looked at is left out. *config* is the controller's;
    None: not known, and the defaults are taken for it. Raises ClusterError.
    """
    meta, spec, status, labelled = await _whole(cluster, target)
    launcher = meta.annotations.get(ANNOTATION_LAUNCHER) if target.kind == "StatefulSet" else None
    root = await _root(cluster, target)
    location = meta.annotations.get(ANNOTATION_CHECKPOINT, "")
    checkpoints = config.checkpoints if config else None
    chart = Chart(
        kind=target.kind,
        meta=meta,
        spec=spec,
        root=root,
        invalid=(root or metadata_of_root(target.kind, meta)).invalid,
        launcher=await _launcher(cluster, launcher, target.namespace) if launcher else None,
        pods=labelled or await _members(cluster, target),
        nodes={node.metadata.name: node for node in await _seen(cluster, Node)},
        health={report.metadata.name: report for report in await _seen(cluster, NodeHealth)},
        is_installed=await _is_installed(cluster, target.namespace),
        leases=await _leases(cluster, {SYSTEM_NAMESPACE, (config or Config()).quarantine.namespace}),
        hint_policy=await _hint_policy(cluster),
        format_trouble=why_no_format(meta.annotations.get(ANNOTATION_CHECKPOINT_FORMAT, "")),
        policy=(config or Config()).recovery,
        readable=_readable(checkpoints, target.namespace) if checkpoints else None,
        verifiers=await find_verifiers(cluster, location, target.namespace, checkpoints),
    )
    if target.description:
        chart = await with_description(cluster, chart, target.description, status)
    return dataclasses.replace(chart, rights=await ask_about(cluster, needed(chart)))


def _readable(policy: CheckpointsPolicy, namespace: str) -> tuple[str, ...]:
    return (f"{VOLUMES_AT}/{namespace}", *allowed_in(namespace, policy.allowed))


async def _whole(
    cluster: Reader, target: DoctorTarget
) -> tuple[ObjectMeta, dict[str, Any], dict[str, Any], tuple[Pod, ...]]:
    """The root as it was written, and its status. For plain pods, one made from what their owner wrote on them."""
    if target.kind != "PodGang":
        kind: type[Any] = MANIFESTS.get(target.kind, target.adapter.kind)
        try:
            manifest = await cluster.get(kind, target.name, target.namespace)
        except NotFound:
            raise UserError(f"there is no {target.text} in namespace {target.namespace}") from None
        return manifest.metadata, manifest.spec, manifest.status if target.description else {}, ()
    labels = {LABEL_GANG: target.name}
    pods = (await cluster.list(PodManifest, namespace=target.namespace, labels=labels)).items
    if not pods:
        raise UserError(f"no pod in namespace {target.namespace} carries the label {LABEL_GANG}={target.name}")
    notes = {key: value for pod in pods for key, value in remembered(pod)["metadata"]["annotations"].items()}
    meta = ObjectMeta(name=target.name, namespace=target.namespace, annotations=notes)
    slim = (await cluster.list(Pod, namespace=target.namespace, labels=labels)).items
    return meta, {"pods": [remembered(pod) for pod in pods]}, {}, tuple(slim)


async def _root(cluster: Reader, target: DoctorTarget) -> Root | None:
    adapter = target.adapter
    try:
        root = adapter.read(await cluster.get(adapter.kind, target.name, target.namespace))
    except NotFound:
        return None
    return await adapter.complete(cluster, root) if root is not None else None


async def _launcher(cluster: Reader, name: str, namespace: str) -> Mapping[str, Any] | None:
    try:
        return {"spec": (await cluster.get(JobManifest, name, namespace)).spec}
    except NotFound:
        return None


async def _members(cluster: Reader, target: DoctorTarget) -> tuple[Pod, ...]:
    adapter = target.adapter
    labels = adapter.pod_labels(target.name)
    listed = (await cluster.list(Pod, namespace=target.namespace, labels=labels)).items
    return tuple(pod for pod in listed if adapter.root_name(pod) == target.name)


async def _seen(cluster: Reader, kind: type[Any]) -> list[Any]:
    try:
        return (await cluster.list(kind)).items
    except (NotFound, Forbidden):
        return []


async def _is_installed(cluster: Reader, namespace: str) -> bool:
    try:
        await cluster.list(Recovery, namespace=namespace, labels=MATCHES_NOTHING)
    except NotFound:
        return False
    except Forbidden:
        pass  # a user of a cluster where healthd is installed may have no right to them
    return True


async def _leases(cluster: Reader, namespaces: Collection[str]) -> tuple[Lease, ...] | None:
    """Those of the name of the controller's, in the *namespaces* where it may run."""
    found = list[Lease]()
    for namespace in namespaces:
        try:
            found.append(await cluster.get(Lease, LEASE, namespace))
        except NotFound:
            continue
        except Forbidden:
            return None
    return tuple(found)


async def _hint_policy(cluster: Reader) -> HintPolicy:
    try:
        listed = (await cluster.list(MutatingAdmissionPolicy)).items
    except NotFound:
        return HintPolicy.NOT_SERVED
    except Forbidden:
        return HintPolicy.UNKNOWN
    there = any(policy.metadata.name == POLICY for policy in listed)
    return HintPolicy.INSTALLED if there else HintPolicy.MISSING


def as_json(target: DoctorTarget, remarks: Sequence[Remark]) -> str:
    """For programs."""
    listed = [msgspec.to_builtins(remark) for remark in remarks]
    return json.dumps({"target": target.text, "namespace": target.namespace, "remarks": listed})


def as_text(target: DoctorTarget, remarks: Sequence[Remark]) -> str:
    """For people."""
    prevents = sum(remark.level is RemarkLevel.PREVENTS for remark in remarks)
    gang = f"{target.text} in {target.namespace}"
    if prevents:
        verdict = f"{gang}: healthd cannot recover it"
    elif any(remark.level is RemarkLevel.RISKS for remark in remarks):
        verdict = f"{gang}: healthd can recover it, with risks"
    else:
        verdict = f"{gang}: nothing stands in the way of a recovery"
    return "\n\n".join([verdict, *map(_paragraph, remarks)])


def _paragraph(remark: Remark) -> str:
    indent = " " * 10
    lines = [
        f"{remark.level.upper():10}{remark.what}",
        *textwrap.wrap(remark.why, WIDTH, initial_indent=indent, subsequent_indent=indent),
        # On one line, however long: users copy it.
        f"{indent}do: {remark.remedy}",
    ]
    return "\n".join(lines)
