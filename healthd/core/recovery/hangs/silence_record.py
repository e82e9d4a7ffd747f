"""
The record of a gang's last silence on its root: what opens it, what ends it, and what a person reads of it.

The record is why a silence is reported once, also by the next leader. Only what shows work ends it. An agent that was
restarted knows no rhythm any more, and ends nothing.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import msgspec

from healthd.core.api import Pod
from healthd.core.api.health import MemberState
from healthd.core.config.gangs import HangPolicy, SilenceMode
from healthd.core.hang.silence import Silence, SilentMember, cannot_go_on
from healthd.core.recovery.gang import GangView, Root, RootOutcome
from healthd.core.recovery.hangs.gang_silence import ObservedSilence, mode_of, ranks
from healthd.core.recovery.hangs.pod_reports import QUIET, rhythm_of
from healthd.core.recovery.members import members
from healthd.core.recovery.progress import MIN_INTERVALS, has_rhythm, silence_allowed, too_little_work

MOST_STORED = 64
"""Members in a record. All annotations of an object share 256 KiB, and a gang may have 20,000 members."""


def next_record(view: GangView, seen: ObservedSilence | None, now: datetime) -> Silence | None:
    """The record to store on the root, when a silence begins or ends. None: what is stored stays."""
    root = view.root
    if root is None or root.invalid:
        return None
    before = root.silence if root.silence is not None and root.silence.since <= now else None
    if before is not None and before.ended_at is None:
        return _ended(before, view, root, now)
    if seen is None or (before is not None and seen.silence.since <= before.since):
        return None
    return _stored(seen.silence)


def open_silence(root: Root, now: datetime) -> Silence | None:
    """The recorded silence, if the root does not show that it is over."""
    silence = root.silence
    if silence is None or silence.ended_at is not None or silence.since > now or _was_stopped(root, silence):
        return None
    return silence


def confirmed_silence(view: GangView, now: datetime) -> Silence | None:
    """
    The open silence, if an agent still reports a rank that fell silent with it.

    The owner of a gang can write its record, but not what agents publish.
    """
    silence = open_silence(view.root, now) if view.root else None
    return silence if silence and any(_belongs(pod, silence, view, now) for pod in ranks(view)) else None


def members_of(record: Silence, root: Root) -> int:
    """How many members fell silent: a record lists `MOST_STORED` at most."""
    return max(root.world, len(record.members)) if len(record.members) == MOST_STORED else len(record.members)


def what_follows(root: Root, policy: HangPolicy, silence: Silence, doubt: str = "") -> str:
    """What healthd does about *silence*, the hang of a gang, for a person."""
    saves = has_rhythm(root.progress)
    most = silence_allowed(root.progress, policy, root.attempt).total_seconds()
    if mode_of(root, policy) is not SilenceMode.RESTART:
        by_clock = f", but for a restart after {most:.0f} s without a new step" if saves else ""
        set_by = "healthd.dev/hang" if root.options.hang else "hang.silence"
        return f"healthd does nothing about it ({set_by} is tell){by_clock}"
    if not saves:
        saves_needed = MIN_INTERVALS + 1
        return (
            f"it is not restarted for that: its usual pauses are known once {saves_needed} of its saves have been seen"
        )
    if doubt:
        return f"it is not restarted yet: {doubt}"
    if cannot_go_on(silence) and not silence.is_start:
        return "it is restarted"
    if little := too_little_work(silence, policy):
        return f"it is not restarted for that: {little}; without a new step it is restarted after {most:.0f} s"
    return f"it is restarted when that has lasted for {policy.floor.total_seconds():.0f} s (hang.floor)"


def _ended(before: Silence, view: GangView, root: Root, now: datetime) -> Silence | None:
    """*before* with its end. None: nothing shows that it is over."""
    created = [pod.metadata.creation_timestamp for pod in members(view)]
    if _was_stopped(root, before) or any(at is not None and at > before.since for at in created):
        return msgspec.structs.replace(before, ended_at=now, was_stopped=True)
    made_step = root.progress.at is not None and root.progress.at > before.seen_at
    if made_step or any(_worked_since(pod, before, view, now) for pod in ranks(view)):
        return msgspec.structs.replace(before, ended_at=now)
    return None


def _was_stopped(root: Root, silence: Silence) -> bool:
    is_over = root.suspended or root.deleting or root.ending is not RootOutcome.NOT_ENDED
    return is_over or (root.started_at is not None and root.started_at > silence.since)


def _worked_since(pod: Pod, silence: Silence, view: GangView, now: datetime) -> bool:
    rhythm = rhythm_of(pod, view, now)
    health = view.health.get(pod.spec.node_name)
    if rhythm is None or health is None or health.status.seen_at is None:
        return False
    if rhythm.state is MemberState.WORKING:
        return health.status.seen_at > silence.since
    return rhythm.state in QUIET and rhythm.since is not None and silence.since < rhythm.since <= now


def _belongs(pod: Pod, silence: Silence, view: GangView, now: datetime) -> bool:
    """Whether *pod* is quiet, and fell quiet with the gang: within its own patience of the last one."""
    rhythm = rhythm_of(pod, view, now)
    if rhythm is None or rhythm.state not in QUIET or rhythm.since is None:
        return False
    return abs((silence.since - rhythm.since).total_seconds()) <= rhythm.allowed


def _stored(silence: Silence) -> Silence:
    """With the members that fit: those first whose state is rare."""
    count = Counter(member.state for member in silence.members)
    rarest_first: list[SilentMember] = sorted(silence.members, key=lambda member: count[member.state])
    return msgspec.structs.replace(silence, members=tuple(rarest_first[:MOST_STORED]))
