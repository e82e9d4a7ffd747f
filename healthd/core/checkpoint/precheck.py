"""
What a fault would cost a running gang: how old its newest good checkpoint is, and what is wrong with its saving.

So people know before the fault that the last hours of work could not be resumed. Only computes: the content of the
store was checked before, by the same verification that a recovery uses, but only by headers and sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from healthd.core.api import unread_place
from healthd.core.api.save_stats import KEPT_SAVES, NO_SAVES, Concern, Save, Saves
from healthd.core.checkpoint.verification import VerificationReport
from healthd.core.config import PrecheckPolicy, format_duration
from healthd.core.recovery.gang import Root, RootOutcome

ENOUGH = 3
"""From this many earlier values on, the usual value is known."""
LONGEST = 1e9
"""Seconds. The values are stored in annotations, which tenants can write."""
SHORT_WRITE = 30.0
"""Seconds. A shorter write delays nothing, however long it took before."""
SLOWER = 2.0
"""A write that takes this many times the usual time is slow; two in a row are no accident."""

LATE_FACTOR = 3.0
"""Saving is late after so many usual intervals. The interval is the gang's own, so one figure fits every rhythm."""
LATE_FLOOR = timedelta(minutes=10)
"""A younger checkpoint is never late: so little work is cheaper to do again than to page for."""
FIRST_WITHIN = timedelta(hours=6)
"""
A gang that has run for so long without any good checkpoint is late, too: its interval is not known yet. A job that
saves more seldom on purpose is one job, and its alert is silenced; another value for all would hide the others.
"""


class Worry(NamedTuple):
    """An active concern, and its reason, for people."""

    concern: Concern
    message: str


def refusing(root: Root, why: str) -> VerificationReport:
    """The report of a check without a result, because the location itself cannot be used."""
    return VerificationReport(rejected=[unread_place(root.options.checkpoint, why)])


def refusing_if_emptied(root: Root, report: VerificationReport) -> VerificationReport:
    """*report*; it also refuses a location that is empty although *root* saved there: that also holds a recovery."""
    if report.found or report.rejected or not root.saves.good:
        return report
    return refusing(root, f"nothing is there any more, though {named_save(root.saves.good[-1])} was")


def take_report(saves: Saves, report: VerificationReport, now: datetime) -> Saves:
    """*saves* after the check *report* at *now*. When the steps go back, the usual values are learned again."""
    newest = report.rejected[0] if report.rejected else None
    same = newest is not None and newest.path == saves.refused
    seen = replace(
        saves,
        watched_since=saves.watched_since or now,
        refused=newest.path if newest else "",
        why_refused=newest.reason if newest else "",
        refused_since=(saves.refused_since if same else now) if newest else None,
        none_loads=report.found is None and newest is not None,
    )
    if report.found is None:
        return seen
    at = datetime.fromtimestamp(report.found.saved_ns / 1e9, tz=UTC) if report.found.saved_ns else now
    save = Save(step=report.found.step, at=min(at, now), size=report.size, seconds=round(report.write_seconds, 3))
    last = saves.good[-1] if saves.good else None
    if last is None or save.step < last.step:
        return replace(seen, good=[save])
    if save.at <= last.at and save.step == last.step:
        return seen
    if save.step == last.step >= 0:
        # The same step was saved again, after a restart from an earlier step.
        return replace(seen, good=[*saves.good[:-1], save])
    return replace(seen, good=[*saves.good, save][-KEPT_SAVES:])


def take_silence(root: Root, why: str, now: datetime) -> Saves:
    """The saves after a check at *now* that the store did not answer. What was good before may still be good."""
    saves, where = root.saves, root.options.checkpoint
    since = saves.refused_since if saves.refused == where else now
    known = saves.watched_since or now
    return replace(saves, watched_since=known, refused=where, why_refused=why, refused_since=since, none_loads=False)


def usual_interval(root: Root) -> timedelta | None:
    """How often it saves: from the steps that were observed as they came, else from the checked checkpoints."""
    seen = root.progress.intervals
    if len(seen) < ENOUGH:
        seen = [(after.at - before.at).total_seconds() for before, after in pairwise(root.saves.good)]
    return timedelta(seconds=min(max(median(seen), 0), LONGEST)) if len(seen) >= ENOUGH else None


def lost_work(root: Root, now: datetime) -> timedelta | None:
    """How much work a fault at *now* would lose; None when that is unknown, or when there was no check yet."""
    known = [root.started_at, save.at if (save := newest_save(root)) else None]
    since = max((at for at in known if at), default=None)
    return max(timedelta(0), now - since) if since and is_checked(root) and root.saves != NO_SAVES else None


def newest_save(root: Root) -> Save | None:
    """
    The newest checkpoint on record that a fault now would resume from, with its time.

    That is the newest good one, or a later step that was seen by its name since the last check (`is_unchecked`). Where
    that check refused one, a later step may be refused as well, so it does not count.
    """
    good, seen = root.saves.good[-1] if root.saves.good else None, newest_step(root)
    if seen is None or root.saves.refused or (good is not None and seen.at <= good.at):
        return good
    return seen


def newest_step(root: Root) -> Save | None:
    """The newest step on record, good or not, with the time of its save or, if unknown, when it was first seen."""
    good, seen = root.saves.good[-1] if root.saves.good else None, root.progress
    if seen.at is None or seen.step <= (good.step if good else -1):
        return good
    return Save(step=seen.step, at=seen.at)


def is_unchecked(root: Root, save: Save) -> bool:
    """Whether *save*, of `newest_save`, was only seen by its name."""
    return save not in root.saves.good[-1:]


def is_checked(root: Root) -> bool:
    """Whether the gang runs, saves, and has restarts enabled."""
    options = root.options
    runs = root.ending is RootOutcome.NOT_ENDED and not root.deleting and not root.suspended and root.has_begun
    return runs and not root.invalid and options.restart and bool(options.checkpoint)


def worries(
    root: Root, report: VerificationReport, policy: PrecheckPolicy, now: datetime, *, certain: bool = False
) -> list[Worry]:
    """
    Everything that is wrong with the saving of *root*, whose `saves` already include *report*.

    A refused checkpoint may be one that is still being written, so it must be refused twice, unless *report* is
    *certain*.
    """
    patience = timedelta(0) if certain else policy.every / 2
    found = (_late(root, now), _refused(root, patience, now), _slower(root), _full(root, report, policy))
    return [worry for worry in found if worry]


def changes_in(before: Sequence[Concern], found: Sequence[Worry]) -> tuple[list[Worry], list[Concern]]:
    """The new worries, and the concerns that have ended."""
    stand = {worry.concern for worry in found}
    return [worry for worry in found if worry.concern not in before], [each for each in before if each not in stand]


def _late(root: Root, now: datetime) -> Worry | None:
    since, usual, good = _counts_from(root), usual_interval(root), root.saves.good
    if since is None:
        return None
    if not good:
        if now - since < FIRST_WITHIN:
            return None
        return Worry(Concern.LATE, f"it has run for {spoken(now - since)}, and no good checkpoint was ever seen")
    if usual is None or now - since <= max(LATE_FLOOR, usual * LATE_FACTOR):
        return None
    message = f"no good checkpoint for {spoken(now - since)}, though it saves every {spoken(usual)}"
    return Worry(Concern.LATE, f"{message}; the newest is {named_save(good[-1])}")


def _refused(root: Root, patience: timedelta, now: datetime) -> Worry | None:
    saves = root.saves
    if saves.refused_since is None or now - saves.refused_since < patience:
        return None
    newest = named_save(saves.good[-1]) if saves.good else "anything"
    refused = f"{saves.refused} would be refused: {saves.why_refused}"
    if saves.none_loads:
        return Worry(Concern.REFUSED, f"a fault now would hold the {root.terms.gang}; {refused}")
    if is_unread(root):
        return Worry(Concern.REFUSED, f"whether {newest} would be resumed from is not known: {saves.why_refused}")
    return Worry(Concern.REFUSED, f"{newest} would be resumed from; {refused}")


def is_unread(root: Root) -> bool:
    """Whether the store did not answer at the last check."""
    return root.saves.refused == root.options.checkpoint and bool(root.saves.refused) and not root.saves.none_loads


def _slower(root: Root) -> Worry | None:
    took = [save.seconds for save in root.saves.good]
    earlier, last = took[:-2], took[-2:]
    if len(earlier) < ENOUGH:
        return None
    usual = median(earlier)
    if min(last) < SHORT_WRITE or min(last) < SLOWER * usual:
        return None
    return Worry(Concern.SLOWER, f"writing a checkpoint took {last[-1]:.0f} s, and usually took {usual:.0f} s")


def _full(root: Root, report: VerificationReport, policy: PrecheckPolicy) -> Worry | None:
    if report.found is None and report.free < 0 and Concern.FULL in root.saves.concerns:
        return Worry(Concern.FULL, "at the last check there was room for only a few more")
    if report.free < 0 or report.size <= 0 or report.free >= policy.room_for * report.size:
        return None
    room = report.free // report.size
    some = f"{room} more checkpoint{'' if room == 1 else 's'}" if room else "not one more checkpoint"
    return Worry(Concern.FULL, f"there is room for {some} of {report.size / 1e9:,.1f} GB")


def _counts_from(root: Root) -> datetime | None:
    """The time since which work would be lost: the last save or, if later, the start of the present run."""
    known = [root.started_at, root.saves.good[-1].at if root.saves.good else None]
    return max((at for at in known if at), default=None)


def named_save(save: Save) -> str:
    """A save in words: its step and its time."""
    saved = f"{save.at:%Y-%m-%d %H:%M} UTC"
    return f"step {save.step} of {saved}" if save.step >= 0 else f"that of {saved}"


def spoken(duration: timedelta) -> str:
    """A duration in words: to the second below two minutes, to the minute above."""
    unit = timedelta(seconds=1) if duration < timedelta(minutes=2) else timedelta(minutes=1)
    return format_duration(duration // unit * unit)
