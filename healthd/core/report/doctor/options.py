"""What the owner of the gang asked healthd for, and whether it can be read."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from posixpath import normpath

from healthd.core.api import (
    ANNOTATION_CHECKPOINT,
    ANNOTATION_CHECKPOINT_FORMAT,
    ANNOTATION_FENCE_TIMEOUT,
    ANNOTATION_GROW_BACK,
    ANNOTATION_HANG,
    ANNOTATION_LAUNCHER,
    ANNOTATION_MAX_NO_ADVANCE,
    ANNOTATION_MIN_NODES,
    ANNOTATION_REBUILD,
    ANNOTATION_RECREATE,
    ANNOTATION_RESTART,
    ANNOTATION_SLOW_RANK,
)
from healthd.core.api.locations import VOLUMES_AT, is_below, parts_of
from healthd.core.config.gangs import SilenceMode, StragglerMode
from healthd.core.report.doctor.chart import Chart, Remark, RemarkLevel
from healthd.core.report.doctor.rights import rebuilt_as
from healthd.core.untrusted import shown

OURS = "healthd.dev/"
_SHRINKING = frozenset({"Job", "StatefulSet"})
"""Kinds that can run with fewer members, of which there is no root to ask."""
_BUCKETS = frozenset({"s3", "gs", "az", "abfss"})
"""Schemes of URLs whose bucket the controller reads with its own credentials."""


def examine(chart: Chart) -> Iterator[Remark]:
    """Is it asked for, and understood?"""
    yield from _invalid(chart)
    yield from _restart(chart)
    yield from _checkpoint(chart)
    yield from _format(chart)
    yield from _values(chart)
    yield from _misspelt(chart)


def _restart(chart: Chart) -> Iterator[Remark]:
    value = chart.meta.annotations.get(ANNOTATION_RESTART)
    if value == "enabled":
        return
    message = f"says {value!r}, not 'enabled'" if value is not None else "is not there"
    yield Remark(
        RemarkLevel.PREVENTS,
        f"the annotation {ANNOTATION_RESTART} {message}",
        "healthd restarts only gangs whose owner asked for it",
        f"{chart.annotate} {ANNOTATION_RESTART}=enabled --overwrite",
    )


def _checkpoint(chart: Chart) -> Iterator[Remark]:
    location = chart.meta.annotations.get(ANNOTATION_CHECKPOINT, "")
    if not location:
        yield Remark(
            RemarkLevel.RISKS,
            f"the annotation {ANNOTATION_CHECKPOINT} is not there",
            "healthd cannot choose a checkpoint that will load, nor see by new steps that training goes on",
            f"{chart.annotate} {ANNOTATION_CHECKPOINT}=pvc://CLAIM/PATH",
        )
        return
    url = parts_of(location)
    if url.scheme in ("", "file") and url.path.startswith("/") and not url.netloc:
        yield from _mounted(chart, location, [path for path in _mounts(chart) if is_below(url.path, path)])
        yield from _readable(chart, location, url.path)
    elif url.scheme in _BUCKETS and url.netloc:
        yield from _readable(chart, location, location)
    elif url.scheme == "pvc" and url.netloc:
        yield from _mounted(chart, location, [claim for claim in _claims(chart) if claim == url.netloc])
    else:
        yield Remark(
            RemarkLevel.PREVENTS,
            f"{ANNOTATION_CHECKPOINT} is {location!r}, where healthd cannot read",
            "with no checkpoint that was seen to load, a stopped gang is held until a person decides",
            "use pvc://CLAIM/PATH, file:///PATH or s3://BUCKET/PATH (gs://, az://)",
        )


def _format(chart: Chart) -> Iterator[Remark]:
    if chart.format_trouble:
        yield Remark(
            RemarkLevel.PREVENTS,
            f"{ANNOTATION_CHECKPOINT_FORMAT} cannot be used: {chart.format_trouble}",
            "with no checkpoint that was seen to load, a stopped gang is held until a person decides",
            "correct it, and try it with `healthd checkpoints latest DIR --format …`; left out, the format is detected",
        )


def _readable(chart: Chart, location: str, path: str) -> Iterator[Remark]:
    """A claim has a place of its own in the controller's pod; a path may lead anywhere there."""
    folders = chart.readable or (f"{VOLUMES_AT}/{chart.meta.namespace}",)
    if any(is_below(path if parts_of(path).scheme else normpath(path), folder) for folder in folders):
        return
    why = "with no checkpoint that was seen to load, a stopped gang is held until a person decides"
    if chart.readable is None:
        yield Remark(
            RemarkLevel.RISKS,
            f"whether the controller may read {location} is not known",
            f"unless its configuration says more, it reads below {folders[0]} alone; {why}",
            "show me its configuration (--config), which allows the folder (checkpoints.allowed); or use pvc://CLAIM/PATH",
        )
        return
    remedy = "use pvc://CLAIM/PATH; or mount the folder in the controller's pod, too, and add it to checkpoints.allowed"
    if parts_of(path).scheme in _BUCKETS:
        remedy = "let the controller's service account read the bucket, and add its URL to checkpoints.allowed"
    message = f"the controller may not read {location}: it reads below {', '.join(folders)} alone"
    yield Remark(RemarkLevel.PREVENTS, message, why, remedy)


def _mounted(chart: Chart, location: str, there: list[str]) -> Iterator[Remark]:
    if not there and any(True for _ in chart.templates()):
        yield Remark(
            RemarkLevel.RISKS,
            f"no volume of the pods holds {location}",
            "what the pods write elsewhere is lost with them, and what healthd reads there is not theirs",
            "mount the volume in the pods, or correct the annotation",
        )


def _mounts(chart: Chart) -> Iterator[str]:
    for template in chart.templates():
        for container in template.pods.get("containers", []):
            yield from (mount["mountPath"] for mount in container.get("volumeMounts", []))


def _claims(chart: Chart) -> Iterator[str]:
    for template in chart.templates():
        for volume in template.pods.get("volumes", []):
            yield volume.get("persistentVolumeClaim", {}).get("claimName", "")


def _invalid(chart: Chart) -> Iterator[Remark]:
    for why in chart.invalid:
        yield Remark(
            RemarkLevel.PREVENTS,
            why,
            "what its owner wants is not known, so healthd does nothing to the gang: neither stops it nor starts it",
            "correct it, or take the annotation off",
        )


def _values(chart: Chart) -> Iterator[Remark]:
    if ANNOTATION_GROW_BACK in chart.meta.annotations:
        yield from _growing(chart)
    if ANNOTATION_REBUILD in chart.meta.annotations:
        yield from _rebuilding(chart)
    if chart.meta.annotations.get(ANNOTATION_SLOW_RANK) == StragglerMode.SWAP:
        yield from _swapping(chart)
    if ANNOTATION_MIN_NODES in chart.meta.annotations and not _is_elastic(chart):
        yield Remark(
            RemarkLevel.NOTE,
            f"{ANNOTATION_MIN_NODES} has no effect on {_this(chart)}",
            "how many members it has cannot be changed: without a spare it waits",
            "keep more spares",
        )
    if ANNOTATION_MIN_NODES not in chart.meta.annotations and _has_limits(chart):
        yield Remark(
            RemarkLevel.NOTE,
            f"it may have fewer members by its own minimum, and {ANNOTATION_MIN_NODES} is not there",
            "healthd changes the number of members only where this annotation allows it: without a spare it waits",
            f"{chart.annotate} {ANNOTATION_MIN_NODES}=NUMBER, which counts all members",
        )


def _is_elastic(chart: Chart) -> bool:
    return chart.root.elastic is not None if chart.root else chart.kind in _SHRINKING


def _this(chart: Chart) -> str:
    return f"this {chart.kind}" if chart.kind in _SHRINKING or _may_be_elastic(chart) else f"a {chart.kind}"


def _may_be_elastic(chart: Chart) -> bool:
    """Whether others of its kind may have fewer members."""
    return chart.description is not None and any(pods.elastic for pods in chart.description.pods)


def _has_limits(chart: Chart) -> bool:
    """Whether its owner wrote how few members it may have, for the controller of its kind."""
    elastic = chart.root.elastic if chart.root else None
    return elastic is not None and elastic.least > 1


def _growing(chart: Chart) -> Iterator[Remark]:
    """What keeps a gang from growing back, though its owner asks for it."""
    notes = chart.meta.annotations
    if notes[ANNOTATION_GROW_BACK] != "enabled":
        yield Remark(
            RemarkLevel.NOTE,
            f"{ANNOTATION_GROW_BACK} is {shown(notes[ANNOTATION_GROW_BACK])}",
            "the gang does not grow back: only the value enabled asks for it",
            f"write {ANNOTATION_GROW_BACK}: enabled, or take the annotation off",
        )
    elif ANNOTATION_MIN_NODES not in notes:
        yield Remark(
            RemarkLevel.NOTE,
            f"{ANNOTATION_GROW_BACK} has no effect without {ANNOTATION_MIN_NODES}",
            "healthd grows back only what it has made smaller",
            f"set {ANNOTATION_MIN_NODES}, or take the annotation off",
        )
    elif ANNOTATION_CHECKPOINT not in notes:
        yield Remark(
            RemarkLevel.NOTE,
            f"{ANNOTATION_GROW_BACK} has no effect without {ANNOTATION_CHECKPOINT}",
            "a gang grows back right after a save, and healthd sees none",
            f"set {ANNOTATION_CHECKPOINT}",
        )


def _rebuilding(chart: Chart) -> Iterator[Remark]:
    """What keeps a gang from being made again, though its owner asks for it."""
    value = chart.meta.annotations[ANNOTATION_REBUILD]
    if value != "enabled":
        yield Remark(
            RemarkLevel.RISKS,
            f"{ANNOTATION_REBUILD} is {shown(value)}",
            "a gang that failed for good is not made again: only the value enabled asks for it",
            f"write {ANNOTATION_REBUILD}: enabled, or take the annotation off",
        )
    elif rebuilt_as(chart) is None:
        yield Remark(
            RemarkLevel.RISKS,
            f"{ANNOTATION_REBUILD} has no effect on a {chart.kind}",
            "healthd makes no object of this kind again: one that failed for good stays so",
            "make it again yourself when its Recovery says so",
        )


def _swapping(chart: Chart) -> Iterator[Remark]:
    """What keeps a gang from leaving the node of a slow rank, though its owner asks for it."""
    notes, is_queued = chart.meta.annotations, bool(chart.root and chart.root.queue)
    if not notes.get(ANNOTATION_CHECKPOINT):
        yield _in_vain(
            f"without {ANNOTATION_CHECKPOINT}",
            "a gang is moved only right after a save, so that no step is lost, and its saves cannot be seen",
            f"set {ANNOTATION_CHECKPOINT}, or take the annotation off",
        )
    if notes.get(ANNOTATION_HANG) == SilenceMode.IGNORE:
        yield _in_vain(
            f"beside {ANNOTATION_HANG}: {SilenceMode.IGNORE}",
            "its ranks are not compared",
            f"write {ANNOTATION_HANG}: {SilenceMode.TELL}, or take one of the two off",
        )
    if is_queued:
        yield _in_vain(
            "on a gang in a queue",
            "a gang that is moved gives its quota back, and might not get it again soon: so it is only reported",
            "take the annotation off",
        )


def _in_vain(where: str, why: str, remedy: str) -> Remark:
    message = f"{ANNOTATION_SLOW_RANK}: {StragglerMode.SWAP} has no effect {where}"
    return Remark(RemarkLevel.NOTE, message, why, remedy)


_KNOWN = (
    ANNOTATION_REBUILD,
    ANNOTATION_GROW_BACK,
    ANNOTATION_RESTART,
    ANNOTATION_CHECKPOINT,
    ANNOTATION_CHECKPOINT_FORMAT,
    ANNOTATION_MAX_NO_ADVANCE,
    ANNOTATION_MIN_NODES,
    ANNOTATION_FENCE_TIMEOUT,
    ANNOTATION_HANG,
    ANNOTATION_SLOW_RANK,
    ANNOTATION_RECREATE,
    ANNOTATION_LAUNCHER,
)


def _misspelt(chart: Chart) -> Iterator[Remark]:
    for key in chart.meta.annotations:
        meant = get_close_matches(key, _KNOWN, n=1, cutoff=0.85)
        if key.startswith(OURS) and key not in _KNOWN and meant:
            yield Remark(
                RemarkLevel.RISKS,
                f"{key} is no annotation that healthd knows",
                "it is passed over without a word",
                f"{meant[0]} may be meant",
            )
