"""
Samples the ranks of a run each second, and sees when all of them have stopped doing their usual work.

What is seen is reported once when it begins and once when it is over. The controller restarts the gang for it only
where the configuration says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import structlog

from healthd.clock import Clock
from healthd.core.api import HangSuspect, Pod
from healthd.core.config.gangs import HangPolicy, SilenceMode
from healthd.core.hang.gpus import GpuUse
from healthd.core.hang.history import ActivityHistory, history_of
from healthd.core.hang.inactivity import Inactivity
from healthd.core.hang.samples import Usage
from healthd.core.hang.silence import GangRhythm, Silence
from healthd.core.hang.start import Start
from healthd.core.hang.suspects.evidence import Activity
from healthd.core.hang.suspects.suspicion import suspects_of
from healthd.core.hang.work.own_waits import seconds_between_looks
from healthd.local.attention import Attention
from healthd.local.hang.evidence import activities_of
from healthd.local.hang.gpus import SlotGpus
from healthd.local.hang.record import HangRecord
from healthd.local.hang.stack_looks import StackLooks
from healthd.local.hang.stragglers import StragglerWatch
from healthd.local.processes.runner import ProcessRunner, RunningRank
from healthd.probes.usage.looks import Looks
from healthd.probes.usage.process_tree import ProcessTree

log = structlog.get_logger(__name__)

SAMPLE_EVERY = timedelta(seconds=1)

Locate = Callable[
    [Silence, Sequence[RunningRank], Mapping[str, Activity], ActivityHistory],
    Coroutine[Any, Any, HangRecord | None],
]


class HangWatch:
    """
    The rhythm of the ranks that *running* returns.

    *saved* returns a value that changes when the folder of checkpoints does. *report* gets each silence when it begins,
    and again with its end. *locate* asks who holds up the others, once for each silence; it is cancelled when a rank
    ends or works again, and never holds up a sample. *wake* is called when the controller has something to do.
    *stragglers* sees the samples, too, and *looks* at main threads between them. *stacks* tell of ranks that use a
    processor alone whether they compute. *gpus* are those of the slots.
    """

    def __init__(
        self,
        policy: HangPolicy,
        clock: Clock,
        *,
        running: Callable[[], Sequence[RunningRank]],
        saved: Callable[[], object],
        report: Callable[[Silence], Awaitable[None]],
        locate: Locate,
        wake: Callable[[], None],
        stragglers: StragglerWatch | None = None,
        gpus: SlotGpus | None = None,
        open_tree: Callable[[RunningRank], ProcessTree] | None = None,
        looks: Looks | None = None,
        stacks: StackLooks | None = None,
    ) -> None:
        self.rhythm = GangRhythm(starts=Start)
        self.silence: Silence | None = None
        """The present silence, as it was first seen."""
        self.inactivity = Inactivity()
        self._policy = policy
        self._clock = clock
        self._running = running
        self._saved = saved
        self._report = report
        self._locate = locate
        self._locating: asyncio.Task[HangRecord | None] | None = None
        self._asked: frozenset[str] = frozenset()
        """The pods of the ranks that are asked."""
        self._wake = wake
        self._stragglers = stragglers
        self._gpus = gpus or SlotGpus([])
        self._open_tree = open_tree or tree_of
        self._trees: dict[RunningRank, ProcessTree] = {}
        self._looks = looks or Looks()
        self._stacks = stacks or StackLooks()
        self._watched: frozenset[str] = frozenset()
        """The pods of the ranks of the last sample."""
        self._last_save = saved()

    @property
    def is_on(self) -> bool:
        """Whether ranks are sampled."""
        return self._policy.enabled and self._policy.silence is not SilenceMode.IGNORE

    async def run(self) -> None:
        """Sample until cancelled. Returns at once where silences are ignored."""
        if not self.is_on:
            return
        if self._stragglers is not None and self._stragglers.is_on:
            self._looks.start()
        try:
            while True:
                await self._clock.sleep(SAMPLE_EVERY)
                await self.cycle(self._clock.now())
        finally:
            self._looks.stop()
            self._keep_only([])
            self._gpus.close()
            await self._ask_no_more()
            await self._restart(self._clock.now())
            await self._over(self._clock.now(), was_stopped=True)

    @property
    def is_locating(self) -> bool:
        """Whether the witnesses of the present silence are still asked, which has a deadline."""
        return self._locating is not None and not self._locating.done()

    @property
    def suspects(self) -> tuple[HangSuspect, ...]:
        """Who holds up the others in the present silence, by the vote. Empty also while the witnesses are asked."""
        asked = self._locating
        if asked is None or not asked.done() or asked.cancelled() or asked.exception():
            return ()
        record = asked.result()
        return suspects_of(record.location, record.ranks) if record is not None else ()

    async def cycle(self, now: datetime) -> None:
        """Take one sample of every rank, and report what has changed."""
        ranks = self._running()
        self._keep_only(ranks)
        if self._asked - {rank.uid for rank in ranks}:
            await self._ask_no_more()
        if not ranks:
            self._gpus.close()
            await self._restart(now)
            await self._over(now, was_stopped=True)
            return
        others, self._watched = self._watched, frozenset(rank.uid for rank in ranks)
        if others.isdisjoint(self._watched):  # another attempt, which begins with what was saved before
            self._last_save = self._saved()
            await self._restart(now)
            await self._over(now, was_stopped=True)
        saved, before = self._saved(), self._last_save
        self._last_save = saved
        was_known = self.rhythm.is_known
        for seen in self._stacks.take():
            self.rhythm.saw(seen.rank, seen.function, is_native=seen.is_native)
        silence = self.rhythm.observe(self._sample(ranks, now), now, saves=saved != before)
        if self.rhythm.is_known and not was_known:
            log.info("run.rhythm_known", period=self.rhythm.period, attempt=ranks[0].attempt)
        self.inactivity.observe(self.rhythm, hangs=silence is not None)
        to_look_at = self.rhythm.to_look_at()
        self._stacks.begin([rank for rank in ranks if rank.name in to_look_at])
        if silence is None:
            await self._over(now)
        elif self.silence is None:
            self.silence = silence
            await self._report(silence)
            self._ask(silence, ranks)
        self._looks.every = seconds_between_looks(member.ring for member in self.rhythm.members.values())
        if self._stragglers is not None:
            clocks = self._gpus.clocks()
            first = {rank.node: rank for rank in reversed(ranks)}  # those that a launcher started have one slot
            of_ranks = {rank.name: clocks[node] for node, rank in first.items() if node in clocks}
            hangs_since = self.silence.since if self.silence is not None else None
            await self._stragglers.observe(self.rhythm, now, hangs_since=hangs_since, clocks=of_ranks)

    async def _restart(self, now: datetime) -> None:
        self.rhythm.restart()
        self._stacks.forget()
        self.inactivity.observe(self.rhythm, hangs=False)
        if self._stragglers is not None:
            await self._stragglers.restart(now)

    def _ask(self, silence: Silence, ranks: Sequence[RunningRank]) -> None:
        self._asked = frozenset(rank.uid for rank in ranks)
        history = history_of(self.rhythm, silence)
        question = self._locate(silence, ranks, activities_of(self.rhythm, silence.since), history)
        self._locating = asyncio.create_task(question, name="hang evidence")
        self._locating.add_done_callback(lambda _: self._wake())

    async def _ask_no_more(self) -> None:
        """Cancel the questions, which then end with a report."""
        self._asked = frozenset()
        if self._locating is not None:
            self._locating.cancel()
            await asyncio.gather(self._locating, return_exceptions=True)
            self._locating = None

    def _sample(self, ranks: Sequence[RunningRank], now: datetime) -> dict[str, Usage | None]:
        for rank in ranks:
            if rank not in self._trees:
                self._trees[rank] = self._open_tree(rank)
        self._looks.looked_at = tuple(self._trees.values())
        gpus = self._gpus.read(now)
        return {rank.name: _used(self._trees[rank].read(), gpus.get(rank.node)) for rank in ranks}

    async def _over(self, now: datetime, *, was_stopped: bool = False) -> None:
        if self.silence is not None:
            await self._ask_no_more()
            ended = msgspec.structs.replace(self.silence, ended_at=now, was_stopped=was_stopped)
            self.silence = None
            await self._report(ended)

    def _keep_only(self, ranks: Sequence[RunningRank]) -> None:
        over = [self._trees.pop(rank) for rank in self._trees.keys() - set(ranks)]
        self._looks.looked_at = tuple(self._trees.values())
        for tree in over:
            tree.close()


def tree_of(rank: RunningRank) -> ProcessTree:
    """The processes of *rank*."""
    return ProcessTree(rank.pid, with_root=True, beside=rank.beside) if rank.is_launched else ProcessTree(rank.shim)


def _used(usage: Usage | None, gpu: GpuUse | None) -> Usage | None:
    if usage is None or gpu is None:
        return usage
    return usage._replace(gpu=gpu.memory, kernels=gpu.kernels)


class RankActivity:
    """What the controller may know of the ranks: output and processor time, and a silence to restart them for."""

    def __init__(self, runner: ProcessRunner, watch: HangWatch, policy: HangPolicy, attention: Attention) -> None:
        self.missed_since = attention.missed_since
        self.last = runner.last
        self.last_work = runner.last_work
        self._watch = watch
        self._restarts = policy.silence is SilenceMode.RESTART

    def usual_work(self, pods: Sequence[Pod]) -> datetime | None:  # noqa: ARG002 - one gang runs here
        """When a rank last worked by its own rhythm. None while no rhythm is known that would show a rank to poll."""
        members = self._watch.rhythm.members.values()
        known = (member for member in members if member.rhythm is not None and member.rhythm.shows_polling)
        return max((member.last_active for member in known), default=None)

    def inactive_for(self, pods: Sequence[Pod]) -> timedelta | None:  # noqa: ARG002 - one gang runs here
        """For how long every rank has done next to nothing. None while one works, or that is not known."""
        return self._watch.inactivity.lasts

    def silence(self, pods: Sequence[Pod]) -> Silence | None:  # noqa: ARG002 - one gang runs here
        """The present silence, where the gang is to be restarted for it: once its witnesses have been asked."""
        silence = self._watch.silence
        if silence is None or not self._restarts or self._watch.is_locating:
            return None
        later = self.missed_since(silence.seen_at)
        return msgspec.structs.replace(silence, since=silence.since + later, suspects=self._watch.suspects)
