"""
One member of a gang: its newest samples, what is usual for it, and for how long it has done nothing.

What is not known is never silence: a member that is traced by a debugger, waits for a processor or was not sampled.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from math import isnan

from healthd.core.api.health import MemberState
from healthd.core.hang.past import Past
from healthd.core.hang.rhythm import (
    LEARNED_FROM,
    MUCH_IO,
    NOISE,
    WINDOW,
    Activity,
    Rhythm,
    classify,
    is_much_more,
    learn,
    moves_much,
)
from healthd.core.hang.samples import KEPT, Rates, SampleRing, Usage, rates
from healthd.core.hang.saving import Saving
from healthd.core.hang.start import LITTLE, Start

LATE = 3.0
"""Seconds between two samples, beyond which they say nothing: the machine slept, or healthd had no processor."""
LEARN_EVERY = timedelta(seconds=15)
LEARN_AGAIN = timedelta(minutes=1)
"""The same, once a rhythm is known."""
YOUNG = timedelta(minutes=10)
"""A rhythm that is known for less may be that of loading and compiling, which are steady for minutes."""


class MemberRhythm:
    """One member: its ring, its rhythm once it is learned, and for how long it has done nothing."""

    def __init__(self, at: datetime, kept: int = KEPT, past: Past | None = None, start: Start | None = None) -> None:
        self.ring = SampleRing(kept)
        self.past = past or Past()
        self.gpu_past = Past()
        self.rhythm: Rhythm | None = None
        self.other_work: Rhythm | None = None
        """Learned of what seemed a silence, soon after the start: an evaluation, which comes again."""
        self.start = start
        """Until its first rhythm is learned, where that is judged. Then, and if a rhythm is forgotten: None."""
        self.last_active = at
        self.unseen = timedelta(0)
        """Since then, the time in which it was not seen what it did."""
        self.stepped_at = at
        """When it last worked, and moved little data: it may have made a step, and was not only saving."""
        self.quiet = 0.0
        """Seconds in which it was seen to do nothing since it last worked. Unseen time does not count."""
        self.worked = 0.0
        """Seconds in which it worked by its present rhythm, since the last `LONG` pause of its gang."""
        self.judged, self.judged_idle = 0.0, 0.0
        """Seconds since `seems_idle` was last asked, and those of them in which its rhythm showed it to be idle."""
        self.states = ""
        self.saving = Saving()
        self.does_other_work = False
        """By its newest sample: what seemed a silence was none."""
        self.computes = False
        """By its newest sample: it uses a processor alone, and would not while it waits for others."""
        self._activity: Activity | None = None
        self._before: tuple[datetime, Usage] | None = None
        self._looked_at = at
        self._learned_at = at
        self._known_at = at
        """When the first rhythm was learned."""
        self._usual_at = at
        """When as much work as the rhythm shows was last learned."""
        self._learns_from = 0
        """The newest samples that show the present rhythm."""
        self._learns_from_least = 0
        """So many of them are needed to learn it anew."""

    @property
    def state(self) -> MemberState:
        """What it does, by its newest sample. A pause within its own rhythm is work."""
        if self._activity is None:
            return MemberState.UNKNOWN
        if self.quiet <= (self.rhythm.gap if self.rhythm else 0.0) + 1:
            return MemberState.WORKING if self.rhythm else MemberState.UNKNOWN
        return MemberState.WAITING if self._activity is Activity.SPINNING else MemberState.SILENT

    @property
    def polls(self) -> bool:
        """Whether it uses a processor, and does nothing else that is usual."""
        return self._activity is Activity.SPINNING

    @property
    def sleeps_to_wait(self) -> bool:
        """Whether it is known to be asleep while it waits for others."""
        return self.rhythm is not None and self.rhythm.sleeps_to_wait

    @property
    def quiet_since(self) -> datetime:
        """Its last work, as much later as it was unseen since: from then on it was seen to do nothing."""
        return self.last_active + self.unseen

    def observe(self, usage: Usage | None, at: datetime, *, learns: bool = True) -> None:
        """Take a sample. None: it could not be read. *learns*: what is usual may be learned from it."""
        quiet, looked_at, self._looked_at = self.quiet, self._looked_at, at
        self._observe(usage, at, learns=learns)
        if self.last_active == at:
            self.unseen = timedelta(0)
        elif self.quiet == quiet:
            self.unseen += at - looked_at

    def _observe(self, usage: Usage | None, at: datetime, *, learns: bool) -> None:
        before, self._before = self._before, (at, usage) if usage is not None else None
        self._activity, self.does_other_work, self.computes = None, False, False
        self.saving.clear()
        if usage is None or before is None:
            return
        seconds = (at - before[0]).total_seconds()
        if not 0 < seconds <= LATE:
            return
        self.states = usage.states
        sample = rates(before[1], usage, seconds)
        self.ring.add(at, sample)
        self._learns_from += 1
        if sample.read + sample.written < MUCH_IO:  # what loads and saves works, at any level
            self.past.add(sample.cpu, seconds)
        if usage.gpu and not isnan(sample.gpu):
            self.gpu_past.add(sample.gpu, seconds)
        self._judge(sample, at, seconds)
        if self.saving.observe(sample, self.rhythm, seconds):
            self._learns_from, self._learns_from_least = 0, WINDOW
        if learns and not self.saving.goes_on:
            self._learn(at)

    def forget_rhythm(self) -> None:
        """Learn anew, from later samples alone."""
        self.rhythm, self.other_work, self.start, self.quiet, self.worked = None, None, None, 0.0, 0.0
        self.learn_from_now()

    def learn_from_now(self) -> None:
        """What came before is not usual."""
        self._learns_from = self._learns_from_least = 0

    def seems_idle(self) -> bool:
        """Whether its rhythm showed it to be idle for most of the time since this was last asked."""
        seems_idle = self.judged >= LEARNED_FROM and self.judged_idle > self.judged / 2
        self.judged = self.judged_idle = 0.0
        return seems_idle

    def _judge(self, sample: Rates, at: datetime, seconds: float) -> None:
        if self.rhythm is None:
            self._take(self.start.observe(sample, seconds) if self.start else Activity.WORKING, at, seconds)
            return
        activity = self._activity_of(sample, self.rhythm)
        if activity is Activity.WORKING and not moves_much(sample, self.rhythm):
            self.stepped_at = at
        self._take(activity, at, seconds)
        self.computes = self.polls and self.rhythm.shows_to_compute(sample)
        self.judged += seconds
        if self.state is MemberState.WORKING:
            self.worked += seconds
        elif self._activity is not None:
            self.judged_idle += seconds

    def _activity_of(self, sample: Rates, rhythm: Rhythm) -> Activity:
        """What looks like polling beside its steps may be its other work."""
        activity = classify(sample, rhythm)
        if activity is Activity.SPINNING and self.other_work is not None:
            return classify(sample, self.other_work)
        return activity

    def _take(self, activity: Activity, at: datetime, seconds: float) -> None:
        if activity is Activity.WORKING:
            self.last_active, self.quiet, self._activity = at, 0.0, activity
        elif "t" not in self.states and not _is_starved(activity, self.states):
            self._activity = activity
            self.quiet += seconds

    def _learn(self, at: datetime) -> None:
        """
        Learn anew now and then, but never from a silence. What follows a start is no silence if it is work, and to wait
        for GPUs is none.
        """
        every = LEARN_AGAIN if self.rhythm else LEARN_EVERY
        if at - self._learned_at < every or (self.start is not None and self.start.waits_for_gpus):
            return
        self._learned_at = at
        if self.rhythm is None:
            self.rhythm, self._known_at, self._usual_at = self._usual(self._learns_from), at, at
            if self.rhythm is not None:
                self.start, self.quiet = None, 0.0
        elif self.quiet <= self.rhythm.gap + 1:
            self._learn_again(at, self.rhythm)
        elif at - self._known_at < YOUNG:
            self._learn_other_work(at)

    def _learn_again(self, at: datetime, before: Rhythm) -> None:
        """Much more work than before may be a compilation, beside which the steps after it would look silent."""
        if self._learns_from < self._learns_from_least:
            return
        known = self._usual(self._learns_from)
        is_more = known is not None and is_much_more(known, before)
        if known is None or (is_more and at - self._usual_at < YOUNG):
            return
        self.rhythm, self._usual_at = known, at
        if is_more:
            self.worked = 0.0

    def _learn_other_work(self, at: datetime) -> None:
        """Of a member that seems silent: it works if it uses a processor and does two other things beside it."""
        known = self._usual(min(int(self.quiet), self._learns_from))
        if known is not None and known.shows_polling and known.means.get("cpu", 0.0) >= LITTLE:
            self.rhythm, self.other_work, self.quiet, self.last_active = known, known, 0.0, at
            self._learns_from, self.worked, self.does_other_work = LEARNED_FROM, 0.0, True

    def _usual(self, count: int) -> Rhythm | None:
        """The rhythm that the newest *count* samples show, unless most of its life would be silence beside it."""
        known = learn(self.ring, count)
        if known is not None and "gpu" in known.floors and self.gpu_past.is_mostly_below(known.floors["gpu"]):
            known = learn(self.ring, count, signals=NOISE.keys() - {"gpu"})
        if known is not None and "cpu" in known.floors and self.past.is_mostly_below(known.floors["cpu"]):
            return None
        return known


def _is_starved(activity: Activity, states: str) -> bool:
    """It wants a processor and gets none."""
    return activity is Activity.IDLE and "R" in states
