"""
When a gang hangs: every member has left its own rhythm for longer than its rhythm allows. One that is late is no hang.

What is not known is never a hang: a member that is traced by a debugger, waits for a processor or was not sampled
counts as unknown, and so does one that starts up, unless it does nothing at all. Thresholds come from the gang's own
history: its period, and its pauses that ended by themselves (evaluations, saves, data that was late).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from healthd.core.api.health import MemberState
from healthd.core.api.recoveries import LONGEST_DOING, HangSuspect
from healthd.core.hang.computing import Look
from healthd.core.hang.member import MemberRhythm
from healthd.core.hang.past import Past
from healthd.core.hang.present_pause import PresentPause
from healthd.core.hang.samples import KEPT, Usage
from healthd.core.hang.start import Start
from healthd.core.printable import printable
from healthd.core.untrusted import Moment

LONGEST_LOCATED = 2 * LONGEST_DOING
"""Characters of the sentence that says who holds up the others."""
PERIODS = 5
"""Periods without work after which a gang hangs."""
SHORTEST_PERIOD = 2.0
"""Seconds: a step needs two samples to be seen."""
SHORTEST = timedelta(seconds=10)
"""A silence of fewer samples is chance: a machine that is busy for a moment, a collection of garbage."""
PAUSE_FACTOR = 2
"""A silence may be this many times as long as the longest pause that ended by itself."""
KEPT_PAUSES = 8
"""Of those that allow more than the rhythm does: what is in each long step would displace what comes once an hour."""
SAVES_KNOWN = 2
"""Saves that the gang came back from, before a silence that begins with a save is judged by them."""
FIRST_SAVES = timedelta(minutes=5)
"""For how long such a silence lasts at least before it is reported, while fewer are known. A slow first save looks like
one to a dead file server, so the work before it is no reason for a restart."""
COMPUTES_FOR = timedelta(minutes=5)
"""For how long a silence lasts at least before it is reported in which a rank is seen to compute. Most evaluations by
one rank are over by then. One that is not is no reason for a restart."""
LOOKS_BEFORE = 6.0
"""Seconds before it would be reported, in which ranks are looked at that only use a processor."""
MOST_LOOKED_AT = 4
"""Ranks."""
BACK_AFTER = timedelta(seconds=1)
"""A member that works later than this after a save was seen is back from it: a sample may show both."""
LONG = timedelta(minutes=5)
"""A pause after which the work before it no longer counts: there may be more of them."""


class SilentMember(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One member of a gang that hangs. *states* are its processes' states (`samples.describe_states`)."""

    rank: str
    state: MemberState
    last_active: Moment
    states: str = ""


class Silence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """
    A gang that hangs. *since* is the last sign of work of any member, as much later as it was not seen since what they
    did; *allowed* and *period* are seconds.
    """

    since: Moment
    seen_at: Moment
    allowed: float
    period: float
    members: tuple[SilentMember, ...]
    ended: tuple[str, ...] = ()
    """The ranks that had ended before, while the others went on."""
    worked: float | None = None
    """Seconds for which every member had worked by its rhythm before, without a long pause. A silence that is longer
    may be what is usual for it, and the rhythm that of a compilation. None: not known, as from an older agent."""
    is_start: bool = False
    """A member did nothing before it was known what is usual for it."""
    ended_at: Moment | None = None
    """When it was over: a member worked again, or the gang was stopped. None: it still hangs, as far as is known."""
    was_stopped: bool = False
    """It ended because the ranks were stopped, for a restart or for good."""
    suspects: tuple[HangSuspect, ...] = ()
    """Who may hold up the others, where the witnesses were asked and name somebody."""
    located: str = ""
    """The same for a person, or why no rank is named. Empty: it is kept elsewhere, or no witness was asked."""

    def __post_init__(self) -> None:
        """The record is on the root, where its owner can write it."""
        msgspec.structs.force_setattr(self, "located", printable(self.located)[:LONGEST_LOCATED])


class _Pause(NamedTuple):
    seconds: float
    of_save: bool
    polled: frozenset[str]
    """The members that used a processor for most of it. A silence in which others do is not this pause again."""


class GangRhythm:
    """
    The members of one gang together, and the pauses that it came back from.

    *kept*: samples of each member. *pasts*: what is known of members from before they were sampled. *starts*: how to
    judge a member before its rhythm is known; None: a gang that does nothing at all then does not hang.
    """

    def __init__(
        self,
        kept: int = KEPT,
        pasts: Mapping[str, Past] | None = None,
        *,
        starts: Callable[[], Start] | None = None,
    ) -> None:
        self._kept = kept
        self._pasts = pasts or {}
        self._starts = starts
        self.members: dict[str, MemberRhythm] = {}
        self._ended: dict[str, None] = {}
        """Members that are no more, in the order of their ends."""
        self._pauses: deque[_Pause] = deque(maxlen=KEPT_PAUSES)
        self._saved_at: datetime | None = None
        self._saves = 0
        self._save_began: datetime | None = None
        """The save that not all members have come back from. None: there is none."""
        self._save_seems_over = False
        """A file appeared after a silence that began with this save, and no member has worked since."""
        self._quiet = 0.0
        self._start_pause = 0.0
        """Seconds: the longest in which this start did nothing, and went on by itself."""
        self._pause = PresentPause()
        self._was_stopped = False
        self._changed_at: datetime | None = None
        self._changes = 0
        self._changes_after_steps = 0
        self._present: Silence | None = None

    def observe(self, usages: Mapping[str, Usage | None], at: datetime, *, saves: bool = False) -> Silence | None:
        """
        Take one sample of every member, by rank. *saves*: the folder of checkpoints has changed since the last one.

        Returns the silence when the gang hangs. A member that is left out has ended. Another attempt: call `restart`.
        """
        if saves:
            self._saved_while_quiet()
            self._doubt_idle_members(at)
        for rank in self.members.keys() - usages.keys():
            del self.members[rank]
            self._ended[rank] = None
        stopped_by_a_person, learns = _all_are_stopped(usages), not self._may_hang_in_start
        for rank, usage in usages.items():
            if rank not in self.members:
                start = self._starts() if self._starts is not None else None
                self.members[rank] = MemberRhythm(at, self._kept, self._pasts.get(rank), start)
            self.members[rank].observe(None if stopped_by_a_person else usage, at, learns=learns)
        self._remember_pause()
        self._remember_save(at, appeared=saves)
        return self._silence(at)

    def restart(self) -> None:
        """Forget the members: another attempt begins. What is known of pauses stays."""
        self.members.clear()
        self._ended.clear()
        self._present = None
        self._quiet, self._save_began, self._saved_at, self._save_seems_over = 0.0, None, None, False
        self._start_pause = 0.0
        self._changed_at, self._changes, self._changes_after_steps = None, 0, 0
        self._pause = PresentPause()

    def to_look_at(self) -> Sequence[str]:
        """
        The ranks whose main threads are to be looked at now, each several times: of a gang that soon seems to hang,
        those that use a processor. What is seen is for `saw`. None, soon after they were last asked for.
        """
        if self._present is not None or self._cannot_go_on or self.silent_since is None:
            return ()
        if self._quiet < self._allowed_now - LOOKS_BEFORE:
            return ()
        polling = [rank for rank, member in self.members.items() if member.polls][:MOST_LOOKED_AT]
        return polling if polling and self._pause.computing.begin_looks(self._quiet) else ()

    def saw(self, rank: str, function: Hashable | None, *, is_native: bool = False) -> None:
        """
        In a look at *rank*: its main thread did not wait for others alone. It was in *function* of a package, or in
        none; *is_native*: what used a processor was compiled code, in which ranks may also wait that spin.
        """
        if rank in self.members and self._quiet:
            is_native = is_native and self.members[rank].sleeps_to_wait
            self._pause.computing.saw(rank, Look(self._quiet, function, is_native))

    @property
    def is_known(self) -> bool:
        """Whether the rhythm of every member is."""
        return bool(self.members) and all(member.rhythm for member in self.members.values())

    @property
    def silent_since(self) -> datetime | None:
        """
        When the last member stopped working, if all have left their own bands by now, for however short a time. Time
        in which it was not seen what they did does not count.
        """
        if not self.members or not _all_stopped_working(list(self.members.values())):
            return None
        return max(member.quiet_since for member in self.members.values())

    @property
    def period(self) -> float:
        """Seconds: the longest period of a member. 0 while none is known."""
        return max((member.rhythm.period for member in self.members.values() if member.rhythm), default=0.0)

    def _saved_while_quiet(self) -> None:
        """
        A gang that saves works, whatever its members show. A silence that began with the save was the save.

        Any other that seemed a hang, and one that goes on after it, shows that their levels have changed: they are
        learned anew. A shorter one is a pause, as an evaluation before the save is.
        """
        if self._quiet < SHORTEST.total_seconds():
            return
        was_the_save = self._save_began is not None and not self._save_seems_over
        has_changed = not was_the_save and (self._present is not None or self._save_seems_over)
        is_pause = not (has_changed or self._is_start) and PAUSE_FACTOR * self._quiet > self.least_allowed
        if was_the_save or is_pause:
            self._pauses.append(_Pause(self._quiet, of_save=was_the_save, polled=self._pause.mostly_polled))
        for member in self.members.values():
            if has_changed:
                member.forget_rhythm()
            else:
                member.quiet = 0.0
        self._quiet, self._save_seems_over = 0.0, was_the_save

    def _doubt_idle_members(self, at: datetime) -> None:
        """
        From one save to the next a gang makes steps. A member that seemed idle for most of that time is learned anew.

        Files may appear when a save begins and when it ends, and its peers wait for it between. So every second one
        counts: the time between three holds a save and the steps after it, or more steps.
        """
        before = self._changed_at
        if before is not None and at - before < SHORTEST:
            return
        if before is not None and all(member.stepped_at > before for member in self.members.values()):
            self._changes_after_steps += 1
        self._changed_at, self._changes = at, self._changes + 1
        if self._changes % 2:
            return
        for member in self.members.values():
            if member.seems_idle():
                member.forget_rhythm()

    def _remember_pause(self) -> None:
        quiet = min((member.quiet for member in self.members.values()), default=0.0)
        was_work = any(member.does_other_work for member in self.members.values())
        if self._is_start and quiet < self._quiet:
            self._start_pause = max(self._start_pause, self._quiet)
            if self._present is not None:
                for member in self.members.values():
                    member.learn_from_now()
        is_over = quiet < self._quiet and not (was_work or self._was_stopped or self._is_start)
        if is_over and PAUSE_FACTOR * self._quiet > self.least_allowed:
            self._pauses.append(_Pause(self._quiet, self._save_began is not None, self._pause.mostly_polled))
        if is_over and self._quiet >= LONG.total_seconds():
            for member in self.members.values():
                member.worked = 0.0
        if quiet < self._quiet:
            self._was_stopped, self._pause = False, PresentPause()
        if quiet == 0.0:
            self._save_seems_over = False
        self._was_stopped |= any("T" in member.states for member in self.members.values()) and quiet > 0
        if quiet:
            self._pause.add(self.members, quiet)
        self._quiet = quiet

    def _remember_save(self, at: datetime, *, appeared: bool) -> None:
        """
        A save is over when every member has worked after it. One that is written for a minute is one, though members
        work meanwhile; files that appear `SHORTEST` after it began are of another. Before a rhythm is known, writing
        goes on with a save, and begins none: a start writes, too.
        """
        savings = [member.saving for member in self.members.values()]
        wrote = any(each.wrote_much or (each.may_save and self._save_began is not None) for each in savings)
        if self._save_began is not None and self._saved_at is not None:
            goes_on = wrote or (appeared and at - self._save_began < SHORTEST)
            since = self._saved_at + (timedelta(0) if appeared else BACK_AFTER)
            if not goes_on and all(member.last_active > since for member in self.members.values()):
                self._saves, self._save_began = self._saves + 1, None
        if (appeared or wrote) and self._save_began is None:
            self._save_began = at
            for member in self.members.values():
                member.saving.begins(member.ring, member.rhythm)
        if appeared or wrote:
            self._saved_at = at

    def _silence(self, at: datetime) -> Silence | None:
        """The same one until a member works: a sample that shows nothing ends no silence."""
        if self._present is None or self._quiet < self._present.allowed:
            self._present = self._new_silence(at)
        return self._present

    def _new_silence(self, at: datetime) -> Silence | None:
        members = self.members
        since = self.silent_since
        if since is None:
            return None
        allowed, computes = self._allowed_now, False
        if self._pause.polled and not self._cannot_go_on:
            computes = self._pause.computing.any_at(self._quiet)
            allowed = max(allowed, COMPUTES_FOR.total_seconds() if computes else self._pause.computing.known_at)
        if self._quiet < allowed:
            if self._quiet >= self.least_allowed:
                self._pause.excuse(self._quiet)
            return None
        if not self._cannot_go_on and self._quiet < self._pause.excused_until + self.least_allowed:
            return None
        silent = tuple(
            SilentMember(rank=rank, state=member.state, last_active=member.last_active, states=member.states)
            for rank, member in members.items()
        )
        may_end = computes or self._is_first_save
        worked = 0.0 if may_end else min(member.worked for member in members.values())
        return Silence(
            since=since,
            seen_at=at,
            allowed=allowed,
            period=self.period,
            members=silent,
            ended=tuple(self._ended),
            is_start=self._is_start,
            worked=worked,
        )

    @property
    def _is_first_save(self) -> bool:
        return self._save_began is not None and self._saves_known < SAVES_KNOWN

    @property
    def _saves_known(self) -> int:
        """
        Saves that the gang came back from. Where it always writes much, as while its rhythm is that of a start, no save
        is seen to end: then steps of all members between two changes of the folder show that one is over. Without them
        these may be the files of one slow save.
        """
        return max(self._saves, self._changes_after_steps)

    @property
    def allowed(self) -> float:
        """Seconds without work that its rhythm allows, where they do not begin with a save."""
        return self._allowed(of_save=False)

    @property
    def _allowed_now(self) -> float:
        """The same of the present silence."""
        allowed = self.least_allowed
        if not self._cannot_go_on:
            allowed = self._allowed(of_save=self._save_began is not None, polled=self._pause.polled)
        return max(allowed, FIRST_SAVES.total_seconds()) if self._is_first_save else allowed

    def _allowed(self, *, of_save: bool, polled: frozenset[str] | None = None) -> float:
        """*polled*: the members that poll now. None: any."""
        pauses = (pause for pause in self._pauses if of_save or not pause.of_save)
        alike = (pause.seconds for pause in pauses if polled is None or pause.polled == polled)
        return max([self.least_allowed, *(PAUSE_FACTOR * seconds for seconds in alike)])

    @property
    def least_allowed(self) -> float:
        """
        Seconds without work that its rhythm allows, without any pause.

        What comes in each half a minute beside short steps, such as a look at the metrics or a short evaluation, is a
        period, too. Then the gang works all the time, and the longest usual gap is what the time between steps is.
        """
        members = self.members.values()
        gap = max((member.rhythm.gap for member in members if member.rhythm), default=0.0)
        between = min(self.period, max(SHORTEST_PERIOD, gap + 1))
        rhythm = max(SHORTEST.total_seconds(), PERIODS * between + 2, 2 * gap)
        if not self._is_start:
            return rhythm
        start = 0.0 if self._cannot_go_on else max(member.start.allowed for member in members if member.start)
        return max(rhythm, start, PAUSE_FACTOR * self._start_pause)

    @property
    def _is_start(self) -> bool:
        """Whether a member has had no rhythm yet, in a gang whose starts are judged."""
        return any(member.start is not None for member in self.members.values())

    @property
    def _may_hang_in_start(self) -> bool:
        """A first rhythm that is learned then is that of the hang, and all would seem to work again."""
        is_quiet = self._quiet >= SHORTEST.total_seconds()
        return is_quiet and self._is_start and self.silent_since is not None

    @property
    def _cannot_go_on(self) -> bool:
        return any(_cannot_go_on(member.states) for member in self.members.values())


def cannot_go_on(silence: Silence) -> bool:
    """
    Whether a rank is stopped or all its processes are dead, so that the others wait for it until somebody acts. Any
    other silence may end by itself: late data, a slow file server and an evaluation that only computes look like a
    hang. Where all ranks are stopped, a person did that.

    A rank that has ended well is no such sign. Its work is done, and the others often evaluate, save or upload for a
    last time then, in silence from that moment on: nothing seen from outside tells that from waiting for it.
    """
    stuck = [_cannot_go_on(member.states) for member in silence.members]
    return any(stuck) and not all(stuck)


def _all_are_stopped(usages: Mapping[str, Usage | None]) -> bool:
    """
    Whether all processes are, so that a person did that. Such time says nothing of the gang. The first that a person
    lets go on waits for the others, and so it does while the others are let go on.
    """
    return all(usage is not None and usage.states and set(usage.states) <= {"T", "Z"} for usage in usages.values())


def _cannot_go_on(states: str) -> bool:
    return "T" in states or set(states) == {"Z"}


def _all_stopped_working(members: Sequence[MemberRhythm]) -> bool:
    """
    Whether every member is silent or waiting. Unknown is neither.

    Where all members spin, each must have stopped two other things at least: an evaluation may use a processor alone.
    Or its GPUs wait for others, in a start.
    """
    states = [member.state for member in members]
    if not set(states) <= {MemberState.SILENT, MemberState.WAITING}:
        return False
    if not _starts_can_be_judged(members):
        return False
    if MemberState.SILENT in states:
        return True
    return all(_is_seen_to_poll(member) for member in members)


def _is_seen_to_poll(member: MemberRhythm) -> bool:
    """Whether it is known of one that uses a processor that it does not compute."""
    if member.start is not None:
        return member.start.waits_for_gpus
    return member.rhythm is not None and member.rhythm.shows_polling


def _starts_can_be_judged(members: Sequence[MemberRhythm]) -> bool:
    """
    Whether it means anything that members whose rhythm is not known do nothing: half of them at least have begun, and
    the kernel counts how long a main thread runs, so that of one at least it is known. And none may compute something,
    unless all have to wait for a member that cannot go on.
    """
    starts = [member.start for member in members if member.start is not None]
    if not starts:
        return True
    half_have_begun = 2 * sum(start.has_begun for start in starts) >= len(starts)
    is_counted = any(start.is_counted for start in starts)
    if not (half_have_begun and is_counted):
        return False
    return any(_cannot_go_on(member.states) for member in members) or not _may_compute(members)


def _may_compute(members: Sequence[MemberRhythm]) -> bool:
    """
    Whether a member in its start may compute something: it uses a processor, and not only to ask for its peers or to
    wait for its GPUs. Where all members ask, that may be their steps.
    """
    if all(member.start is not None and member.start.asks for member in members):
        return True
    return any(member.polls and member.start.may_compute for member in members if member.start is not None)
