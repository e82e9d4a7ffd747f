"""
What a stopped gang resumes from, how long it waits before that, and when it was restarted in vain too often.

Computes only: what there is, and whether it will load, the controller found out before (`healthd.checkpoints`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from healthd.core.api import ChosenCheckpoint, Recovery, RecoveryStatus, RejectedCheckpoint
from healthd.core.api.model import Phase
from healthd.core.config import RecoveryPolicy, StartFresh
from healthd.core.recovery.faults import blames_node
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.progress import is_beyond
from healthd.core.recovery.situation import Decision, Situation, told

EARLY_FAILURES = 2
"""Of starts from one checkpoint, after which it is doubted."""
KEPT_DOUBTED = 16


def doubted(recovery: Recovery, previous: Recovery | None) -> list[ChosenCheckpoint]:
    """
    The checkpoints that are resumed from only where there is no older one: the gang failed early after loading them,
    whether its user or healthd had started it.

    Those of the recovery before this one count while their files stay as they were. After any other end of it than
    progress a person has looked at the gang.
    """
    before = previous.status.doubted if previous is not None and previous.status.phase is Phase.RECOVERED else []
    early = [each.checkpoint for each in recovery.status.attempts if each.failed_early and each.checkpoint.path]
    fell_from = recovery.status.fell_from
    again = [each for each in early if early.count(each) + (each.path == fell_from) >= EARLY_FAILURES]
    found: list[ChosenCheckpoint] = []
    for each in [*before, *recovery.status.doubted, *again]:
        if each not in found:
            found.append(each)
    return found[-KEPT_DOUBTED:]


def choose_checkpoint(
    recovery: Recovery,
    root: Root,
    found: ChosenCheckpoint | None,
    rejected: Sequence[RejectedCheckpoint],
    previous: Recovery | None,
    policy: RecoveryPolicy,
    now: datetime,
) -> Decision:
    """
    The decision that follows `FindCheckpoint`. *previous* is the gang's recovery before this one.

    What was refused at an earlier look and has vanished since was still saved: without it nothing begins again at 0.

    Counts restarts in a row from the same step. Only those for which no hardware was to blame count: a job must not be
    given up because its nodes break.
    """
    seen = _furthest_step(root, recovery, previous)
    vanished = [] if found or rejected else recovery.status.rejected
    status = replace(
        recovery.status,
        rejected=[*rejected, *vanished],
        doubted=doubted(recovery, previous),
        step_at_fault=max([root.progress.step, *(r.step for r in rejected), found.step if found else seen]),
    )
    if found and status.bad_state and found not in status.doubted:
        return _doubt(found, status)
    situation = Situation(recovery, status, Phase.CHOOSING, GangView(root=root), root, (), policy, now)
    loaded = _loaded(recovery, previous) or next((refused.path for refused in vanished), "") or _saved(root)
    never_saved = seen < 0 and not rejected and not loaded
    checkpoint = found or _fresh_start(never_saved, policy)
    if checkpoint is None:
        return situation.hold(_none_loads(root, f"step {seen}" if seen >= 0 else loaded, rejected))
    no_advance = _restarts_from(checkpoint, replace(recovery, status=status), previous)
    limit = root.options.max_no_advance or policy.max_no_advance
    if no_advance >= limit:
        message = f"{no_advance} restarts in a row brought nothing beyond {told(checkpoint)}: {_last_cause(status)}"
        return situation.enter(Phase.GAVE_UP, message, no_advance=no_advance)
    where = f"{told(checkpoint)}, {checkpoint.path}" if checkpoint.step >= 0 else told(checkpoint)
    not_before = now + _backoff(no_advance, policy) if no_advance else None
    return situation.enter(Phase.RESERVING, where, checkpoint=checkpoint, no_advance=no_advance, not_before=not_before)


def _doubt(found: ChosenCheckpoint, status: RecoveryStatus) -> Decision:
    """Look again, for one before *found*: what was saved last before a state that is bad may be as bad."""
    record = replace(status, doubted=[*status.doubted, found][-KEPT_DOUBTED:], bad_state=False)
    return Decision(record=record, reason=f"{told(found)} is doubted: the gang said that its state is bad")


ASK_AGAIN = timedelta(seconds=1)
"""While somebody else verifies: he is asked with one small request."""


def await_answer(recovery: Recovery, why: str) -> Decision:
    """The decision that follows `FindCheckpoint` while it is not known yet; *why* is said once."""
    status = recovery.status
    if status.phase is Phase.HELD or status.message == why:
        return Decision(reason=why, recheck=ASK_AGAIN)
    return Decision(record=replace(status, message=why), reason=why)


def await_read(recovery: Recovery, location: str, after: timedelta) -> Decision:
    """
    The decision while a read of the checkpoints goes on for longer than *after*; said once. Its end tells by itself,
    so nobody asks meanwhile.
    """
    why = (
        f"the checkpoints at {location} have been read for more than {after.total_seconds():.0f} s, without an answer "
        "so far: they are large, or their store does not answer"
    )
    return dataclasses.replace(await_answer(recovery, why), recheck=None)


def unread(root: Root, why: str) -> list[RejectedCheckpoint]:
    """What stands for the checkpoints of *root* while they cannot be read: not the same as that there are none."""
    return [RejectedCheckpoint(path=root.options.checkpoint, step=-1, reason=why)]


def why_unread(root: Root, rejected: Sequence[RejectedCheckpoint]) -> str:
    """Why the checkpoints of *root* cannot be read, where that is what *rejected* says; empty where they can."""
    first = rejected[0] if rejected else None
    is_place = first is not None and (first.path, first.step) == (root.options.checkpoint, -1)
    where = root.terms.located(root.options.checkpoint)
    return f"the checkpoints at {where} cannot be read: {first.reason}" if first and is_place else ""


RUNS_UNSEEN = "all of it runs, but whether training moves on cannot be seen: "


def tell_unread(recovery: Recovery, why: str | None) -> Decision | None:
    """While a gang that was started is waited for: *why* its checkpoints cannot be read, and that they can again."""
    is_told = recovery.status.message.startswith(RUNS_UNSEEN)
    if why:
        decision = await_answer(recovery, RUNS_UNSEEN + why)
        return decision if decision.record is not None else None
    if why is not None and is_told:
        return await_answer(recovery, "all of it runs, and its checkpoints can be read again")
    return None


def _furthest_step(root: Root, recovery: Recovery, previous: Recovery | None) -> int:
    """The furthest step that was ever written down; -1 when none was."""
    known = [recovery.status, *([previous.status] if previous else [])]
    loaded = [attempt.checkpoint.step for status in known for attempt in status.attempts]
    seen = [step for status in known for step in (status.step_at_fault, status.confirmed_step)]
    return max(root.progress.step, *loaded, *seen, *(save.step for save in root.saves.good))


def _loaded(recovery: Recovery, previous: Recovery | None) -> str:
    """The last checkpoint that was resumed from, whether or not its step is known; empty when there was none."""
    known = [*([previous] if previous else []), recovery]
    paths = [attempt.checkpoint.path for one in known for attempt in one.status.attempts]
    return next((path for path in reversed(paths) if path), "")


def _saved(root: Root) -> str:
    """What was seen of saves while the gang ran; empty when nothing was."""
    return root.saves.refused or ("a good one" if root.saves.good else "")


def _fresh_start(never_saved: bool, policy: RecoveryPolicy) -> ChosenCheckpoint | None:
    allowed = policy.start_fresh is StartFresh.ALWAYS or (policy.start_fresh is StartFresh.NEVER_SAVED and never_saved)
    return ChosenCheckpoint() if allowed else None


def _none_loads(root: Root, seen: str, rejected: Sequence[RejectedCheckpoint]) -> str:
    where = root.terms.located(root.options.checkpoint) or "nowhere (no healthd.dev/checkpoint on the gang)"
    if why := why_unread(root, rejected):
        return why
    if rejected:
        return f"no checkpoint at {where} will load; the newest, {rejected[0].path}: {rejected[0].reason}"
    if seen:
        return f"there is no checkpoint at {where} any more, though {seen} was seen: is it mounted?"
    return f"there is no checkpoint at {where}, and a fresh start is not allowed (recovery.start_fresh)"


def _restarts_from(checkpoint: ChosenCheckpoint, recovery: Recovery, previous: Recovery | None) -> int:
    """
    Restarts already made from *checkpoint* or beyond, in a row, before the one being prepared.

    A step that was saved again after going back behind a doubted one is no progress: a program that always fails at
    that step would be restarted for ever.
    """
    status = recovery.status
    if status.attempts:
        loaded, count, causes = status.attempts[-1].checkpoint, status.no_advance, status.causes
    elif previous is not None and previous.status.attempts and previous.status.phase is Phase.RECOVERED:
        # After any other end a person started the gang again, and the count with it.
        last = previous.status
        loaded, count, causes = last.attempts[-1].checkpoint, last.no_advance, status.causes
    else:
        return 0
    if all(is_beyond(checkpoint, each) for each in (loaded, *status.doubted)):
        return 0
    return count if any(map(blames_node, causes[-1:])) else count + 1


def _backoff(no_advance: int, policy: RecoveryPolicy) -> timedelta:
    doublings = min(no_advance - 1, 16)  # 2**1000 seconds does not fit a timedelta
    return min(policy.backoff_base * (1 << doublings), policy.backoff_max)


def _last_cause(status: RecoveryStatus) -> str:
    return status.causes[-1].message if status.causes else "unknown cause"
