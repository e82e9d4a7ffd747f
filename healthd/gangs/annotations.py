"""
The annotations that healthd reads from a root, and writes there and on its pod template. The same for every kind.

Pure: the adapters put these into their patches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

import msgspec

from healthd.core.api import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_CHECKPOINT,
    ANNOTATION_CHECKPOINT_FORMAT,
    ANNOTATION_FENCE_TIMEOUT,
    ANNOTATION_GPU_TIME,
    ANNOTATION_GROW_BACK,
    ANNOTATION_HANG,
    ANNOTATION_MAX_NO_ADVANCE,
    ANNOTATION_MIN_NODES,
    ANNOTATION_ORIGINAL_SIZE,
    ANNOTATION_PLACEMENT,
    ANNOTATION_PROGRESS,
    ANNOTATION_REBUILD,
    ANNOTATION_REBUILT_FROM,
    ANNOTATION_RESTART,
    ANNOTATION_RESUME_FROM,
    ANNOTATION_RESUME_STEP,
    ANNOTATION_SAVES,
    ANNOTATION_SILENCE,
    ANNOTATION_SLOW_RANK,
    ANNOTATION_STOPPED_AT,
    ANNOTATION_STOPPED_BY,
    ANNOTATION_STRAGGLERS,
    LABEL_RESTARTED,
    TAINT_RESERVED,
    GangRef,
    ObjectMeta,
    PodTemplate,
    Toleration,
)
from healthd.core.api.gpu_time import GpuTime
from healthd.core.api.save_stats import NO_SAVES, Saves
from healthd.core.config import parse_duration
from healthd.core.config.gangs import SilenceMode, StragglerMode
from healthd.core.hang.silence import Silence
from healthd.core.hang.straggler import Straggler
from healthd.core.recovery.gang import GangOptions, Root, StartHint
from healthd.core.recovery.nodes.spares import reservation
from healthd.core.recovery.progress import NO_PROGRESS, Progress
from healthd.core.untrusted import LARGEST_GANG, InvalidText, number_or, read_json, read_number, read_text, shown

V = TypeVar("V")
E = TypeVar("E", bound=StrEnum)

OURS = "healthd.dev/"
"""The prefix of every annotation of healthd."""
LONGEST_PLACEMENT = 192 * 1024
"""Bytes. All annotations of an object share 256 KiB; the Recovery has the placement in any case."""
LONGEST_URL = 4096
LONGEST_FORMAT = 16 * 1024
"""Characters. A custom format of the owner is a few lines of YAML."""
LONGEST_NAME = 253
"""Characters: the API server's limit for names."""
LONGEST_DURATION = 40
"""Characters."""
LARGEST_ATTEMPT = 10**9
"""Half of what a recovery can store: from any attempt that a root may have, healthd can count further."""

Notes = Mapping[str, str]
Json = Mapping[str, Any]


def concerns_us(meta: ObjectMeta) -> bool:
    """Whether the object has an annotation of healthd, written by its owner or by healthd. Others cost nothing."""
    return any(key.startswith(OURS) for key in meta.annotations)


def ref_of(kind: str, meta: ObjectMeta) -> GangRef:
    """The reference by which a recovery names the root *meta* of this *kind*."""
    return GangRef(kind=kind, name=meta.name, namespace=meta.namespace, uid=meta.uid)


def metadata_of_root(kind: str, meta: ObjectMeta) -> Root:
    """
    The root *meta* with all that its metadata shows, the same for every kind; the rest is as in a running gang.

    An unreadable option makes the root invalid: what its owner wants is not known. What healthd itself stores there
    (progress, saves) is learned again instead.
    """
    notes = _Notes(meta.annotations)
    stopped_by = notes.read(ANNOTATION_STOPPED_BY, _name) or ""
    stopped_at = notes.read(ANNOTATION_STOPPED_AT, partial(read_number, most=2**63 - 1))
    options = GangOptions(
        restart=meta.annotations.get(ANNOTATION_RESTART) == "enabled",
        checkpoint=notes.read(ANNOTATION_CHECKPOINT, _url) or "",
        checkpoint_format=notes.read(ANNOTATION_CHECKPOINT_FORMAT, _format) or "",
        max_no_advance=notes.read(ANNOTATION_MAX_NO_ADVANCE, read_number),
        rebuild=meta.annotations.get(ANNOTATION_REBUILD) == "enabled",
        rebuild_unread=_unknown_word(meta.annotations.get(ANNOTATION_REBUILD, "")),
        grow_back=meta.annotations.get(ANNOTATION_GROW_BACK) == "enabled",
        min_nodes=notes.read(ANNOTATION_MIN_NODES, partial(read_number, least=1)),
        fence_timeout=notes.read(ANNOTATION_FENCE_TIMEOUT, _duration),
        hang=notes.read(ANNOTATION_HANG, partial(_word, SilenceMode)),
        stragglers=notes.read(ANNOTATION_SLOW_RANK, partial(_word, StragglerMode)),
    )
    return Root(
        ref=ref_of(kind, meta),
        resource_version=meta.resource_version,
        generation=meta.generation,
        suspended=False,
        stopped=False,
        stopped_by=stopped_by,
        edited_since_stop=bool(stopped_by) and stopped_at is not None and stopped_at != meta.generation,
        attempt=notes.read(ANNOTATION_ATTEMPT, partial(read_number, most=LARGEST_ATTEMPT)) or 0,
        world=0,
        indexes=(),
        placement=notes.read(ANNOTATION_PLACEMENT, _placement) or {},
        rebuilt_from=notes.read(ANNOTATION_REBUILT_FROM, _name) or "",
        deleting=meta.deletion_timestamp is not None,
        options=options,
        progress=_remembered(notes.get(ANNOTATION_PROGRESS), Progress) or NO_PROGRESS,
        saves=_remembered(notes.get(ANNOTATION_SAVES), Saves) or NO_SAVES,
        silence=_remembered(notes.get(ANNOTATION_SILENCE), Silence),
        stragglers=_remembered(notes.get(ANNOTATION_STRAGGLERS), tuple[Straggler, ...]) or (),
        gpu_time=_remembered(notes.get(ANNOTATION_GPU_TIME), GpuTime),
        created_at=meta.creation_timestamp,
        invalid=tuple(notes.invalid),
    )


def checked_world(world: int) -> int:
    """*world*, when it is a possible number of members. Raises Unreadable for more than any gang has."""
    if not 0 <= world <= LARGEST_GANG:
        raise InvalidText(f"it asks for {world:,} members; healthd restarts gangs of up to {LARGEST_GANG:,}")
    return world


class _Notes:
    """The annotations of a root. *invalid* lists those that were read and are unreadable, and why."""

    def __init__(self, notes: Notes) -> None:
        self.get = notes.get
        self.invalid: list[str] = []

    def read(self, key: str, parse: Callable[[str], V]) -> V | None:
        """The parsed annotation; None when it is missing or unreadable."""
        text = self.get(key)
        try:
            return parse(text) if text else None
        except ValueError as error:
            self.invalid.append(f"{key}: {error}")
            return None


def stop_notes(root: Root, recovery: str) -> dict[str, str | None]:
    """For the write that stops *root*. It counts as one change, and its precondition lets no other come between."""
    return {ANNOTATION_STOPPED_BY: recovery, ANNOTATION_STOPPED_AT: str(root.generation + 1)}


def start_notes(hint: StartHint) -> dict[str, str | None]:
    """
    For the write that starts a root.

    The placement is stored here and not on the pods: thousands of pods with thousands of lines each fill up a cluster.
    """
    placement = json.dumps(dict(hint.placement), separators=(",", ":")) if hint.placement else None
    return {
        ANNOTATION_STOPPED_BY: None,
        ANNOTATION_STOPPED_AT: None,
        ANNOTATION_ATTEMPT: str(hint.attempt),
        ANNOTATION_PLACEMENT: placement if placement and len(placement) <= LONGEST_PLACEMENT else None,
        ANNOTATION_ORIGINAL_SIZE: str(hint.own_size) if hint.own_size is not None else None,
    }


def hint_annotations(hint: StartHint) -> dict[str, str | None]:
    """The hint as annotations of a pod template; None removes an older hint."""
    return {
        ANNOTATION_ATTEMPT: str(hint.attempt),
        ANNOTATION_RESUME_FROM: hint.checkpoint.path or None,
        ANNOTATION_RESUME_STEP: str(hint.checkpoint.step) if hint.checkpoint.path else None,
    }


def hint_of(template: PodTemplate) -> dict[str, str | None]:
    """The hint on *template*, to be written to another template."""
    notes = template.metadata.annotations
    return {key: notes.get(key) for key in (ANNOTATION_ATTEMPT, ANNOTATION_RESUME_FROM, ANNOTATION_RESUME_STEP)}


def restarted(ref: GangRef) -> dict[str, str]:
    """The label of the pod templates that carry a hint: the admission policy knows by it whose pods they make."""
    return {LABEL_RESTARTED: ref.uid}


def template_patch(template: Json, hint: Mapping[str, str | None], ref: GangRef) -> dict[str, Any]:
    """The patch of a pod *template*, so that new pods have the *hint*, and may use the gang's spare."""
    tolerations = tolerating_reservation(template.get("spec", {}), ref)
    metadata = {"annotations": dict(hint), "labels": restarted(ref)}
    return {"metadata": metadata, "spec": {"tolerations": tolerations}}


def tolerating_reservation(pods: Json, ref: GangRef) -> list[Json]:
    """
    The tolerations of *pods*, a pod's spec, and the one that lets the gang run on its spare.

    A merge patch replaces the whole list. So each stays as its owner wrote it, with fields of a later Kubernetes.
    """
    own = Toleration(key=TAINT_RESERVED, operator="Equal", value=reservation(ref.name, ref.uid))
    others = [each for each in pods.get("tolerations") or [] if each.get("key") != TAINT_RESERVED]
    return [*others, msgspec.to_builtins(own)]


def attempt_on(meta: ObjectMeta) -> int:
    """The attempt that healthd wrote on an object that is not a root; 0 when there is none."""
    return number_or(meta.annotations.get(ANNOTATION_ATTEMPT, ""), 0)


def _name(text: str) -> str:
    return read_text(text, LONGEST_NAME)


def _unknown_word(text: str) -> str:
    """What it says, where that is neither yes nor left out. It allows nothing, and makes nothing else invalid."""
    return shown(text) if text not in ("", "enabled") else ""


def _url(text: str) -> str:
    return read_text(text, LONGEST_URL)


def _format(text: str) -> str:
    return read_text(text, LONGEST_FORMAT, allowed="\n\t")


def _placement(text: str) -> dict[str, str]:
    return read_json(text, dict[str, str])


def _word(words: type[E], text: str) -> E:
    if text not in set(words):
        raise InvalidText(f"{shown(text)} is not one of {', '.join(sorted(words))}")
    return words(text)


def _duration(text: str) -> timedelta:
    if len(text) > LONGEST_DURATION:
        raise InvalidText(f"{shown(text)} is not a duration such as 10m")
    return parse_duration(text)


def _remembered(text: str | None, kind: type[V]) -> V | None:
    """What healthd itself wrote; None when it is missing or unreadable."""
    try:
        return read_json(text, kind) if text else None
    except InvalidText:
        return None
