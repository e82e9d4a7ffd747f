"""
What healthd reads from the annotations of a root, and writes there and on its pod template. The same for every kind.

Pure: the adapters put these into their patches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from healthd.core.gang import GangOptions, Root, StartHint
from healthd.core.objects import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_CHECKPOINT,
    ANNOTATION_CHECKPOINT_FORMAT,
    ANNOTATION_FENCE_TIMEOUT,
    ANNOTATION_MAX_NO_ADVANCE,
    ANNOTATION_MIN_NODES,
    ANNOTATION_PLACEMENT,
    ANNOTATION_PROGRESS,
    ANNOTATION_RESTART,
    ANNOTATION_RESUME_FROM,
    ANNOTATION_RESUME_STEP,
    ANNOTATION_SAVES,
    ANNOTATION_STOPPED_AT,
    ANNOTATION_STOPPED_BY,
    TAINT_RESERVED,
    GangRef,
    ObjectMeta,
    PodTemplate,
    Toleration,
)
from healthd.core.policy import parse_duration
from healthd.core.progress import NO_PROGRESS, Progress
from healthd.core.saves import KEPT_SAVES, NO_SAVES, Saves
from healthd.core.spares import reservation

OURS = "healthd.dev/"
"""How every annotation of healthd begins."""
LONGEST_PLACEMENT = 192 * 1024
"""Bytes. All annotations of an object share 256 KiB; the Recovery has the placement in any case."""

Notes = Mapping[str, str]


def concerns_us(meta: ObjectMeta) -> bool:
    """Its owner, or healthd, has written an annotation of healthd's on it. The others cost nothing."""
    return any(key.startswith(OURS) for key in meta.annotations)


def ref_of(kind: str, meta: ObjectMeta) -> GangRef:
    """How a recovery names the root *meta* of this *kind*."""
    return GangRef(kind=kind, name=meta.name, namespace=meta.namespace, uid=meta.uid)


def read_options(notes: Notes, *, may_shrink: bool) -> GangOptions:
    """What the owner asked for. A kind that cannot run with fewer members has no `min-nodes`."""
    return GangOptions(
        restart=notes.get(ANNOTATION_RESTART) == "enabled",
        checkpoint=notes.get(ANNOTATION_CHECKPOINT, ""),
        checkpoint_format=notes.get(ANNOTATION_CHECKPOINT_FORMAT, ""),
        max_no_advance=read_number(notes.get(ANNOTATION_MAX_NO_ADVANCE)),
        min_nodes=read_number(notes.get(ANNOTATION_MIN_NODES)) if may_shrink else None,
        fence_timeout=_duration(notes.get(ANNOTATION_FENCE_TIMEOUT)),
    )


def read_attempt(notes: Notes) -> int:
    """The attempt that a root is at; 0 before healthd ever started it."""
    return read_number(notes.get(ANNOTATION_ATTEMPT)) or 0


def read_placement(notes: Notes) -> dict[str, str]:
    """Where the present attempt was told to run: index -> node name."""
    try:
        raw = notes.get(ANNOTATION_PLACEMENT)
        return msgspec.json.decode(raw, type=dict[str, str]) if raw else {}
    except msgspec.MsgspecError:
        return {}


def read_progress(notes: Notes) -> Progress:
    """The steps seen so far."""
    try:
        raw = notes.get(ANNOTATION_PROGRESS)
        return msgspec.json.decode(raw, type=Progress) if raw else NO_PROGRESS
    except msgspec.MsgspecError:
        return NO_PROGRESS


def read_saves(notes: Notes) -> Saves:
    """The good checkpoints seen so far."""
    try:
        raw = notes.get(ANNOTATION_SAVES)
        saves = msgspec.json.decode(raw, type=Saves) if raw else NO_SAVES
        return saves if len(saves.good) <= KEPT_SAVES else NO_SAVES
    except msgspec.MsgspecError:
        return NO_SAVES


def was_edited(meta: ObjectMeta) -> bool:
    """Somebody changed what the root asks for after healthd stopped it: the generation counts such changes."""
    at = read_number(meta.annotations.get(ANNOTATION_STOPPED_AT))
    return ANNOTATION_STOPPED_BY in meta.annotations and at is not None and at != meta.generation


def stop_notes(root: Root, recovery: str) -> dict[str, str | None]:
    """For the write that stops *root*. It counts as one change, and its precondition lets no other come between."""
    return {ANNOTATION_STOPPED_BY: recovery, ANNOTATION_STOPPED_AT: str(root.generation + 1)}


def start_notes(hint: StartHint) -> dict[str, str | None]:
    """
    For the write that starts a root.

    The placement stands here and not on the pods: thousands of them with thousands of lines each fill up a cluster.
    """
    placement = json.dumps(dict(hint.placement), separators=(",", ":")) if hint.placement else None
    return {
        ANNOTATION_STOPPED_BY: None,
        ANNOTATION_STOPPED_AT: None,
        ANNOTATION_ATTEMPT: str(hint.attempt),
        ANNOTATION_PLACEMENT: placement if placement and len(placement) <= LONGEST_PLACEMENT else None,
    }


def hint_annotations(hint: StartHint) -> dict[str, str | None]:
    """The hint as it stands on a pod template; None takes an older hint away."""
    return {
        ANNOTATION_ATTEMPT: str(hint.attempt),
        ANNOTATION_RESUME_FROM: hint.checkpoint.path or None,
        ANNOTATION_RESUME_STEP: str(hint.checkpoint.step) if hint.checkpoint.path else None,
    }


def hint_of(template: PodTemplate) -> dict[str, str | None]:
    """The hint that stands on *template*, to be given to another one."""
    notes = template.metadata.annotations
    return {key: notes.get(key) for key in (ANNOTATION_ATTEMPT, ANNOTATION_RESUME_FROM, ANNOTATION_RESUME_STEP)}


def template_patch(template: PodTemplate, hint: Mapping[str, str | None], ref: GangRef) -> dict[str, Any]:
    """What to write to a pod template so that new pods have the *hint*, and may use the gang's spare."""
    tolerations = tolerating_reservation(template.spec.tolerations, ref)
    return {"metadata": {"annotations": dict(hint)}, "spec": {"tolerations": msgspec.to_builtins(tolerations)}}


def tolerating_reservation(tolerations: Sequence[Toleration], ref: GangRef) -> list[Toleration]:
    """*tolerations*, and the one that lets the gang onto its spare. A merge patch replaces the whole list."""
    others = [toleration for toleration in tolerations if toleration.key != TAINT_RESERVED]
    return [*others, Toleration(key=TAINT_RESERVED, operator="Equal", value=reservation(ref.name, ref.uid))]


def _duration(text: str | None) -> timedelta | None:
    try:
        return parse_duration(text) if text else None
    except ValueError:
        return None


def read_number(text: str | None) -> int | None:
    """A number as a user writes it; None where there is none."""
    return int(text) if text and text.isdecimal() else None
