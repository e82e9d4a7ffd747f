"""
Decides what a stopped gang resumes from, how long it waits before that, and when there were too many useless restarts.

Only computes: the snapshot of the gang says which checkpoints exist and whether they load, as far as it is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from healthd.core.api import Cause, ChosenCheckpoint, Recovery, RecoveryStatus, RejectedCheckpoint, unread_place
from healthd.core.api.model import Phase
from healthd.core.config import RecoveryPolicy, StartFresh
from healthd.core.recovery.faults import blames_node
from healthd.core.recovery.gang import CheckpointRead, Root
from healthd.core.recovery.planned.restarts import PLANNED
from healthd.core.recovery.progress import is_beyond
from healthd.core.recovery.situation import Decision, Situation, began, step_text

EARLY_FAILURES = 2
"""Early failures after starts from one checkpoint, from which on the checkpoint is doubted."""
KEPT_DOUBTED = 16
FIRST_BACKOFF = timedelta(seconds=10)
"""
The wait before a restart that follows one without progress: what a kubelet waits before it starts a crashed container
again. It is doubled each time, so the longest wait, `recovery.backoff_max`, is the figure that matters.
"""


def doubted(recovery: Recovery, previous: Recovery | None) -> list[ChosenCheckpoint]:
    """
    The checkpoints to resume from only when there is no older one: the gang failed early after it loaded them, whether
    its user or healthd had started it.

    The doubted checkpoints of the recovery before this one count while their files are unchanged. They count only when
    that recovery ended with progress: after any other end a person has checked the gang.
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


def choose(s: Situation) -> Decision:
    """The decision that follows from the search for the checkpoint to resume from, as far as it has come."""
    if not s.root.options.checkpoint:
        return _choose_checkpoint(s, None, ())
    read = s.view.resume
    if read is None or read.asked is None:
        return READ_AGAIN
    if read.ended is None:
        return _await_read(s, read.asked)
    if read.error:
        return READ_AGAIN if read.is_passing else _choose_checkpoint(s, None, _unread(s.root, read.error))
    if read.found is not None and s.now - read.ended > FRESH:
        return READ_AGAIN
    if read.pending:
        return _await_answer(s, read.pending)
    return _await_newest(s, read) or _choose_checkpoint(s, read.found, read.rejected)


def _choose_checkpoint(
    s: Situation, found: ChosenCheckpoint | None, rejected: Sequence[RejectedCheckpoint]
) -> Decision:
    """
    Resume from *found*, the newest checkpoint that will load; the newer ones are *rejected*.

    A checkpoint that was rejected earlier and has vanished since counts as saved: the gang does not begin again at 0
    because it is gone.

    Counts restarts in a row from the same step. Restarts with a hardware cause, and planned ones, do not count:
    healthd must not give up a job because its nodes break. Nor does a start by a person after healthd itself ended,
    nor an attempt of which some members were never made: a quota, and not the job, kept it from a step.
    """
    previous = s.view.previous
    seen = _furthest_step(s.root, s.recovery, previous)
    refused = [] if why_unread(s.root, rejected) else rejected  # a place that cannot be read is no checkpoint
    vanished = [] if found or refused else s.status.rejected
    status = replace(
        s.status,
        rejected=[*refused, *vanished],
        doubted=doubted(s.recovery, previous),
        step_at_fault=max([s.root.progress.step, *(r.step for r in rejected), found.step if found else seen]),
    )
    if found and status.bad_state and found not in status.doubted:
        return _doubt(found, status)
    s = dataclasses.replace(s, status=status)
    loaded = _loaded(s.recovery, previous) or next((refused.path for refused in vanished), "") or _saved(s.root)
    never_saved = seen < 0 and not rejected and not loaded
    # What cannot be read may be good: to begin again at 0 because of a 403 or 503 would lose all of it.
    is_unread = any(refused.unread for refused in rejected)
    checkpoint = found or (None if is_unread else _fresh_start(never_saved, s.policy))
    if checkpoint is None:
        return s.hold(_none_loads(s.root, f"step {seen}" if seen >= 0 else loaded, rejected))
    return _resume_from(checkpoint, s)


def _resume_from(checkpoint: ChosenCheckpoint, s: Situation) -> Decision:
    """Resume from *checkpoint*, unless too many restarts in a row brought nothing beyond it."""
    no_advance = _restarts_from(checkpoint, replace(s.recovery, status=s.status), s.view.previous)
    limit = s.root.options.max_no_advance or s.policy.max_no_advance
    if no_advance >= limit:
        message = (
            f"{no_advance} restarts in a row brought nothing beyond {step_text(checkpoint)}: {_last_cause(s.status)}"
        )
        return s.enter(Phase.GAVE_UP, message, no_advance=no_advance)
    where = f"{step_text(checkpoint)}, {checkpoint.path}" if checkpoint.step >= 0 else step_text(checkpoint)
    waits = no_advance and not _by_a_person(s.status.causes)
    not_before = s.now + _backoff(no_advance, s.policy) if waits else None
    return s.enter(Phase.RESERVING, where, checkpoint=checkpoint, no_advance=no_advance, not_before=not_before)


def _doubt(found: ChosenCheckpoint, status: RecoveryStatus) -> Decision:
    """Search again, for a checkpoint before *found*: the last save before a bad state may be bad, too."""
    record = replace(status, doubted=[*status.doubted, found][-KEPT_DOUBTED:], bad_state=False)
    return Decision(record=record, reason=f"{step_text(found)} is doubted: the gang said that its state is bad")


ASK_AGAIN = timedelta(seconds=1)
"""Poll interval while another process verifies: one poll is one small request."""
FRESH = timedelta(seconds=30)
"""How long a verification stays valid until the gang resumes from it: the program may remove old checkpoints."""
UNREAD_FOR = timedelta(minutes=2)
"""How long a recovery waits for a newer checkpoint than the one to load, while it cannot be read."""
UNREAD_AGAIN = timedelta(seconds=5)
SLOW = timedelta(seconds=10)
"""A search that takes longer is reported."""
READ_AGAIN = Decision(reason="the checkpoints are read again in a moment", recheck=ASK_AGAIN)


def _await_answer(s: Situation, why: str) -> Decision:
    """The decision while the result of the search is not known yet; *why* is recorded once."""
    if s.status.phase is Phase.HELD or s.status.message == why:
        return Decision(reason=why, recheck=ASK_AGAIN)
    return Decision(record=replace(s.status, message=why), reason=why)


def _await_read(s: Situation, asked: datetime) -> Decision:
    """
    The decision while a search runs; recorded once when it is slow. No recheck then: the end of the search triggers
    the next decision.
    """
    waited = s.now - asked
    if waited < SLOW:
        return Decision(reason="the checkpoints are being read", recheck=SLOW - waited)
    why = (
        f"the checkpoints at {s.root.options.checkpoint} have been read for more than {SLOW.total_seconds():.0f} s, "
        "without an answer so far: they are large, or their store does not answer"
    )
    return dataclasses.replace(_await_answer(s, why), recheck=None, event="CheckpointsSlow")


def _await_newest(s: Situation, read: CheckpointRead) -> Decision | None:
    """
    The decision while a newer checkpoint than the one that loads cannot be read: by a store that is overloaded, or
    credentials that are about to be renewed. To go back costs the work since the older one, so it may wait a little.
    """
    newest = next((refused for refused in read.rejected if refused.unread), None)
    if read.found is None or newest is None:
        return None
    why = f"{newest.path} is newer than {step_text(read.found)}, which loads, and cannot be read: {newest.reason}"
    if s.status.phase is Phase.HELD:  # none of them could be read until now: this wait has not begun yet
        return dataclasses.replace(s.enter(Phase.CHOOSING, why), event="CheckpointsSlow")
    left = UNREAD_FOR - abs(s.now - began(s, Phase.CHOOSING))  # abs: the clock may have been set back
    if left <= timedelta(0):
        return None
    return dataclasses.replace(_await_answer(s, why), recheck=min(left, UNREAD_AGAIN), event="CheckpointsSlow")


def _unread(root: Root, why: str) -> list[RejectedCheckpoint]:
    return [unread_place(root.options.checkpoint, why)]


AT, NOT_READ = "the checkpoints at ", " cannot be read: "
"""Around the place, in the message of a recovery."""


def why_unread(root: Root, rejected: Sequence[RejectedCheckpoint]) -> str:
    """Why the checkpoints of *root* cannot be read, if *rejected* has that placeholder; empty when they can be read."""
    first = rejected[0] if rejected else None
    is_place = first is not None and (first.path, first.step) == (root.options.checkpoint, -1)
    where = root.terms.located(root.options.checkpoint)
    return f"{AT}{where}{NOT_READ}{first.reason}" if first and is_place else ""


def is_place_unread(status: RecoveryStatus) -> bool:
    """Whether a recovery is held because the place of the checkpoints cannot be read at all."""
    is_held = status.phase is Phase.HELD and status.held_in is Phase.CHOOSING
    return is_held and status.message.startswith(AT) and NOT_READ in status.message


RUNS_UNSEEN = "all of it runs, but whether training moves on cannot be seen: "


def report_unread(s: Situation) -> Decision | None:
    """Record why the checkpoints of a started gang cannot be read, and later that they can be read again."""
    read = s.view.newer
    if read is None or read.ended is None or read.is_passing:
        return None
    if why := why_unread(s.root, _unread(s.root, read.error) if read.error else read.rejected):
        decision = _await_answer(s, RUNS_UNSEEN + why)
        return None if decision.waits else decision
    if s.status.message.startswith(RUNS_UNSEEN):
        return _await_answer(s, "all of it runs, and its checkpoints can be read again")
    return None


def _furthest_step(root: Root, recovery: Recovery, previous: Recovery | None) -> int:
    """The furthest step on record; -1 when there is none."""
    known = [recovery.status, *([previous.status] if previous else [])]
    loaded = [attempt.checkpoint.step for status in known for attempt in status.attempts]
    seen = [step for status in known for step in (status.step_at_fault, status.confirmed_step)]
    return max(root.progress.step, *loaded, *seen, *(save.step for save in root.saves.good))


def _loaded(recovery: Recovery, previous: Recovery | None) -> str:
    """The last checkpoint that the gang resumed from, with or without a known step; empty when there was none."""
    known = [*([previous] if previous else []), recovery]
    paths = [attempt.checkpoint.path for one in known for attempt in one.status.attempts]
    return next((path for path in reversed(paths) if path), "")


def _saved(root: Root) -> str:
    """What was observed of saves while the gang ran, in words; empty when nothing was."""
    return root.saves.refused or ("a good one" if root.saves.good else "")


def _fresh_start(never_saved: bool, policy: RecoveryPolicy) -> ChosenCheckpoint | None:
    allowed = policy.start_fresh is StartFresh.ALWAYS or (policy.start_fresh is StartFresh.NEVER_SAVED and never_saved)
    return ChosenCheckpoint() if allowed else None


def is_premature(s: Situation) -> bool:
    """Whether a fresh start was chosen because nothing had ever been saved, and a step is on record by now."""
    chosen = s.status.checkpoint
    if chosen is None or chosen.path or s.policy.start_fresh is not StartFresh.NEVER_SAVED:
        return False
    return _furthest_step(s.root, s.recovery, s.view.previous) >= 0


def _none_loads(root: Root, seen: str, rejected: Sequence[RejectedCheckpoint]) -> str:
    where = root.terms.located(root.options.checkpoint) or "nowhere (no healthd.dev/checkpoint on the gang)"
    if why := why_unread(root, rejected):
        return why
    if unread := next((refused for refused in rejected if refused.unread), None):
        return f"no checkpoint at {where} will load now; {unread.path} cannot be read, and may be good: {unread.reason}"
    if rejected:
        return f"no checkpoint at {where} will load; the newest, {rejected[0].path}: {rejected[0].reason}"
    if seen:
        return f"there is no checkpoint at {where} any more, though {seen} was seen: is it mounted?"
    return f"there is no checkpoint at {where}, and a fresh start is not allowed (recovery.start_fresh)"


def _restarts_from(checkpoint: ChosenCheckpoint, recovery: Recovery, previous: Recovery | None) -> int:
    """
    The number of restarts in a row from *checkpoint* or beyond, before the one that is being prepared.

    When the gang goes back behind a doubted checkpoint and saves the same step again, that is no progress: a program
    that always fails at that step would be restarted for ever.
    """
    status, lacked_members = recovery.status, False
    if status.attempts:
        loaded, count, causes = status.attempts[-1].checkpoint, status.no_advance, status.causes
        lacked_members = status.attempts[-1].lacked_members
    elif previous is not None and previous.status.attempts and previous.status.phase is Phase.RECOVERED:
        # After any other end a person started the gang again: the count starts at 0.
        last = previous.status
        loaded, count, causes = last.attempts[-1].checkpoint, last.no_advance, status.causes
    else:
        return 0
    if all(is_beyond(checkpoint, each) for each in (loaded, *status.doubted)):
        return 0
    is_free = any(blames_node(cause) or cause.kind in PLANNED for cause in causes[-1:]) or _by_a_person(causes)
    return count if is_free or lacked_members else count + 1


def _by_a_person(causes: Sequence[Cause]) -> bool:
    """Whether the newest cause is that healthd itself had ended: then a person starts the gang, and it did not fail."""
    return any(cause.healthd_ended for cause in causes[-1:])


def _backoff(no_advance: int, policy: RecoveryPolicy) -> timedelta:
    doublings = min(no_advance - 1, 16)  # 2**1000 seconds does not fit a timedelta
    return min(FIRST_BACKOFF * (1 << doublings), policy.backoff_max)


def _last_cause(status: RecoveryStatus) -> str:
    return status.causes[-1].message if status.causes else "unknown cause"
