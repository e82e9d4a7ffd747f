"""
The derived parts of a recovery's status, for people and the API server: conditions, summary fields, the hint for pods.

All of it follows from the rest of the status, and `dressed` adds it to every status that is written. The lists are
bounded here, too: an object that grows with every fault would at some time be too large to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from healthd.core.api import (
    Attempt,
    Cause,
    ChosenCheckpoint,
    Condition,
    GangRef,
    PodHint,
    Recovery,
    RecoveryStatus,
)
from healthd.core.api.model import ENDED, Phase
from healthd.core.config import short_duration
from healthd.core.recovery.hangs.suspicion import suspected_nodes
from healthd.core.recovery.nodes.spares import NO_NODE, reservation
from healthd.core.recovery.situation import step_text

T = TypeVar("T")

KEPT_ENTRIES = 200
"""Entries of a timeline: about ten restarts. The first entries are kept: they show how the recovery began."""
KEPT_CAUSES = 60
"""Causes that blame no node. Causes that blame a node are kept besides: each node is blamed only once, and a dropped
cause would be added again."""
KEPT_ATTEMPTS = 20
KEPT_PLACES = 2000
"""Placement entries over all attempts: only the newest attempts keep theirs; gangs of thousands keep none."""
KEPT_NODES = 500
"""Nodes to avoid in a hint. They are also out of service or tainted, and the scheduler respects that."""
MOST_PREFERENCES = 65_536
"""Preferred nodes, over all pods of a start. Each pod names them, and a name costs the control plane 20 us in each: 500
of them doubled its work. A pod of a gang of up to 256 names all its nodes, one of a gang of 1,024 names 64."""


def dressed(recovery: Recovery, status: RecoveryStatus, now: datetime) -> RecoveryStatus:
    """*status* with all derived fields, ready to be written over the status of *recovery*."""
    ended = status.phase in ENDED
    ended_at = (recovery.status.ended_at or status.phase_since or now) if ended else None
    began = status.timeline[0].at if status.timeline else None
    running = running_since(status)
    return replace(
        status,
        open_ends=sum(not pod.proof for pod in status.pods),
        timeline=_bounded(status.timeline, KEPT_ENTRIES),
        causes=_bounded_causes(status.causes),
        attempts=_with_fewer_places(_bounded(status.attempts, KEPT_ATTEMPTS)),
        hint=_hint_now(recovery.spec.gang, status),
        gang=gang_text(recovery.spec.gang),
        bad_nodes=_bad_nodes(status),
        resumes_from=step_text(status.checkpoint) if status.checkpoint else "",
        ended_at=ended_at,
        running_since=running,
        running_after=short_duration(running - began) if running and began else "",
        took=short_duration(ended_at - began) if ended_at and began else "",
        conditions=_conditions(recovery.status.conditions, status, now),
    )


def running_since(status: RecoveryStatus) -> datetime | None:
    """The time since which all members of the newest attempt run; None while they do not."""
    if status.phase not in (Phase.CONFIRMING, Phase.RECOVERED):
        return None
    return next((entry.at for entry in reversed(status.timeline) if entry.phase is Phase.CONFIRMING), None)


def gang_text(gang: GangRef) -> str:
    """A root in the form that `kubectl` accepts: `job/llama`."""
    return f"{gang.kind.lower()}/{gang.name}"


def kind_named(given: str) -> str:
    """The kind in the singular, as in `gang_text`, for any spelling that a user types."""
    return _SPELLINGS.get(given.lower(), given.lower())


_SPELLINGS = {
    "jobs": "job",
    "jobsets": "jobset",
    "statefulsets": "statefulset",
    "sts": "statefulset",
    "podgangs": "podgang",
    "pg": "podgang",
    "pods": "podgang",
    "pod": "podgang",
    "po": "podgang",
}


def label_value(name: str) -> str:
    """A name as the value of a label: a name that is too long is cut at the end."""
    return re.sub(r"[^A-Za-z0-9]+$", "", name[:63])


def _hint_now(gang: GangRef, status: RecoveryStatus) -> PodHint | None:
    """
    The hint for pods from now on: renewed before each start, and without the checkpoint when the recovery has ended.

    The hint is not renewed after the end. With the checkpoint in it, a gang that its user suspends and resumes weeks
    later, or that its own controller restarts, would go back to the old checkpoint and lose all training since.
    """
    if status.phase is Phase.STARTING:
        return _hint(gang, status)
    if status.hint is None or status.phase not in ENDED:
        return status.hint
    return replace(status.hint, resume_from="", resume_step=-1)


def _hint(gang: GangRef, status: RecoveryStatus) -> PodHint:
    """The hint for every pod of the attempt that starts next."""
    checkpoint = status.checkpoint or ChosenCheckpoint()
    planned = {status.stand_ins.get(node, node) for node in status.placement.values()}
    spares = {*status.replacements.values(), *status.stand_ins.values()}
    prefer = sorted(planned - suspected_nodes(status).keys(), key=lambda node: (node not in spares, node))
    return PodHint(
        attempt=status.attempt,
        resume_from=checkpoint.path,
        resume_step=checkpoint.step if checkpoint.path else -1,
        reserved_for=reservation(gang.name, gang.uid),
        avoid=[node for node in blamed(status) if node not in planned][:KEPT_NODES],
        prefer=sorted(prefer[: MOST_PREFERENCES // max(len(status.placement), 1)]),
    )


def blamed(status: RecoveryStatus) -> list[str]:
    """
    The nodes that are to blame, or that were replaced; the blamed ones come first, in the order of the causes.

    A member that never had a node is not among them: the API server refuses a pod that shall avoid a node of that name.
    """
    causes = [cause.node for cause in status.causes if cause.node]
    replaced = [node for node in status.replacements if not node.startswith(NO_NODE)]
    return list(dict.fromkeys([*causes, *replaced]))


def _bad_nodes(status: RecoveryStatus) -> str:
    first, more = blamed(status)[:2], len(blamed(status)) - 2
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def _conditions(before: Sequence[Condition], status: RecoveryStatus, now: datetime) -> list[Condition]:
    """`Recovered` is Unknown until the end: `kubectl wait` must not read a running recovery as a failed one."""
    ended, held = status.phase in ENDED, status.phase is Phase.HELD
    recovered = ("True" if status.phase is Phase.RECOVERED else "False") if ended else "Unknown"
    statuses = {"Progressing": str(not ended and not held), "Held": str(held), "Recovered": recovered}
    known = {condition.type: condition for condition in before}
    return [_condition(known.get(kind), kind, statuses[kind], status, now) for kind in statuses]


def _condition(before: Condition | None, kind: str, statuses: str, status: RecoveryStatus, now: datetime) -> Condition:
    since = before.last_transition_time if before is not None and before.status == statuses else now
    return Condition(
        type=kind, status=statuses, reason=status.phase.value, message=status.message, last_transition_time=since
    )


def _bounded_causes(causes: Sequence[Cause]) -> list[Cause]:
    """Of the causes that blame a node, the newest for each node; of the others, the first and the newest. In order."""
    if len(causes) <= KEPT_CAUSES:
        return list(causes)
    blaming = {cause.node: number for number, cause in enumerate(causes) if cause.node}
    others = [number for number, cause in enumerate(causes) if not cause.node]
    kept = {0, len(causes) - 1, *blaming.values(), *_bounded(others, KEPT_CAUSES)}
    return [causes[number] for number in sorted(kept)]


def _with_fewer_places(attempts: Sequence[Attempt]) -> list[Attempt]:
    left, kept = KEPT_PLACES, []
    for attempt in reversed(attempts):
        left -= len(attempt.placement) + len(attempt.ran_on)
        kept.append(attempt if left >= 0 else replace(attempt, placement={}, ran_on={}))
    return kept[::-1]


def _bounded(items: Sequence[T], most: int) -> list[T]:
    """The first and the newest of *items*."""
    if len(items) <= most:
        return list(items)
    first: Iterable[T] = items[: most // 4]
    return [*first, *items[len(items) - (most - most // 4) :]]
