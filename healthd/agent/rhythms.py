"""
The rhythm of the pods of this node, and of its GPUs: sampled each second, and handed on for the report.

A pod that falls silent, or works again, is what others act on, so it is reported soon. But a gang falls silent on all
its nodes in the same second: each agent waits a moment of its own, and then reports all its pods with one write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from msgspec.structs import replace

from healthd.core.api import PodRhythm
from healthd.core.api.health import MemberState, PodProcess
from healthd.core.backoff import Jitter, no_jitter
from healthd.core.hang.gpus import GpuRhythms, GpuUses
from healthd.core.hang.pods import CHOOSE_EVERY, SAMPLE_EVERY, GpusOfNode, PodRhythms
from healthd.core.hang.samples import Stall, Usage
from healthd.core.hang.work.gpus.gpu_clocks import ClockWindows
from healthd.core.hang.work.gpus.gpu_windows import gpu_windows
from healthd.core.hang.work.gpus.host_bound_gpus import HostBoundGpusOfNode
from healthd.core.hang.work.rank_time import RankTime
from healthd.core.node.reporting import RENEWED_FOR, quiet_pods

WITHIN = timedelta(seconds=5)
"""A silence is handed on in the second half of this time."""
AGAIN_AFTER = timedelta(seconds=10)
"""Between two times that silences are handed on: pods of a busy node may fall silent one after the other."""


class Usages(Protocol):
    """What the pods of the node have used, by uid. These calls block, and raise nothing."""

    def processor_times(self) -> Mapping[str, float]:
        """Seconds of processor time of every pod."""
        ...

    def read(self, uids: Collection[str]) -> Mapping[str, Usage]:
        """All signals of these pods; a pod that is gone or starts again is left out."""
        ...

    def stalls(self, uids: Collection[str]) -> Mapping[str, Stall]:
        """Why these pods may do nothing; a pod that is gone is left out."""
        ...


AskProcesses = Callable[[Collection[str]], Mapping[str, PodProcess]]
"""What the processes of these pods do, by uid. It blocks for seconds at most, and raises nothing."""


def ask_none(uids: Collection[str]) -> Mapping[str, PodProcess]:  # noqa: ARG001 - an AskProcesses
    """Without the component `hang-evidence` no process is known."""
    return {}


AskRankTimes = Callable[[Collection[str]], Mapping[str, Sequence[RankTime]]]
"""How long the ranks of these pods ran, by uid. It blocks for a second at most, and raises nothing."""


def ask_no_times(uids: Collection[str]) -> Mapping[str, Sequence[RankTime]]:  # noqa: ARG001 - an AskRankTimes
    """Without the component."""
    return {}


ReadGpus = Callable[[datetime], GpuUses]
"""How much the GPUs of the node were used so far. It is called with the time, blocks for no driver, raises nothing."""


class RhythmSampler:
    """
    Samples the pods that are busy enough, and the GPUs. Its calls block and come from one thread at a time.

    *with_work*: their work and the clocks of the GPUs are published, too, for the comparison with others of their gang.
    """

    def __init__(
        self,
        usages: Usages,
        ask: AskProcesses = ask_none,
        jitter: Jitter = no_jitter,
        *,
        ask_times: AskRankTimes = ask_no_times,
        read_gpus: ReadGpus = GpuUses,
        with_work: bool = True,
    ) -> None:
        self._usages = usages
        self._ask = ask
        self._ask_times = ask_times
        self._read_gpus = read_gpus
        late = WITHIN * jitter()
        self._rhythms = PodRhythms(late=late if with_work else None)
        self._gpus = GpuRhythms()
        self._clocks = ClockWindows() if with_work else None
        self._gpu_work = gpu_windows(late)
        self._host_bound = HostBoundGpusOfNode()
        self._chosen_at: datetime | None = None
        self._read: tuple[Sequence[PodRhythm], PodRhythm | None] = ((), None)
        self._published: Sequence[PodRhythm] = ()

    @property
    def every(self) -> timedelta:
        """How soon to read again."""
        return SAMPLE_EVERY if self._rhythms.sampled or self._gpus.are_used else CHOOSE_EVERY

    def read(self, now: datetime, *, finely: bool = False) -> Sequence[PodRhythm]:
        """
        The pods whose rhythm is known, and the GPUs; the same list object again when nothing changed. *finely*: with
        the newest minutes of their work in short windows, which the controller asks for.
        """
        if self._chosen_at is None or not timedelta(0) <= now - self._chosen_at < CHOOSE_EVERY - SAMPLE_EVERY / 2:
            self._chosen_at = now
            self._rhythms.choose(self._usages.processor_times(), now)
        self._rhythms.observe(self._usages.read(self._rhythms.sampled), now, finely=finely)
        gpus = self._observe_gpus(now)
        silent_since = gpus.since if gpus is not None else None
        self._rhythms.observe_gpus(GpusOfNode(self._gpus.answering, self._gpus.worked_at, silent_since))
        if quiet := self._rhythms.to_look_at:
            self._rhythms.look_at(self._usages.stalls(quiet), self._ask(quiet))
        if working := self._rhythms.to_compare(now):
            self._rhythms.compare(self._ask_times(working), now)
        pods = self._rhythms.published()
        if pods is not self._read[0] or gpus != self._read[1]:
            self._read = (pods, gpus)
            self._published = [*pods, gpus] if gpus is not None else pods
        return self._published

    def _observe_gpus(self, now: datetime) -> PodRhythm | None:
        uses = self._read_gpus(now)
        self._gpus.observe(uses)
        # A node may have pods that have had nothing to do for days. For these its GPUs do not matter.
        rhythm = self._gpus.published(now, a_pod_is_quiet=self._rhythms.fell_quiet(now - RENEWED_FOR))
        if self._clocks is None:
            return rhythm
        self._clocks.observe(uses)
        self._host_bound.observe(self._gpus.gang, now)
        if rhythm is None:
            return None
        rhythm = replace(rhythm, host_bound_gpus=list(self._host_bound.listed))
        if rhythm.state is not MemberState.WORKING:
            return rhythm
        self._gpu_work.observe(self._gpus.gang, rhythm.period, now)
        return replace(rhythm, clocks=self._clocks.of(), gpu_work=self._gpu_work.newest)


class SettledRhythms:
    """The rhythms as they are handed on: changes that others act on wait for those of the same moment."""

    def __init__(self, jitter: Jitter) -> None:
        self._jitter = jitter
        self._handed: Sequence[PodRhythm] = ()
        self._handed_at: datetime | None = None
        self._due: datetime | None = None

    def ingest(self, rhythms: Sequence[PodRhythm], now: datetime) -> Sequence[PodRhythm]:
        """What to report now, after *rhythms* were seen."""
        if rhythms is self._handed or quiet_pods(rhythms) == quiet_pods(self._handed):
            self._due = None
            self._handed = rhythms
            return rhythms
        if self._due is None:
            self._due = self._due_after(now)
        if now >= self._due:
            self._handed, self._handed_at, self._due = rhythms, now, None
        return self._handed

    def _due_after(self, now: datetime) -> datetime:
        soon = now + WITHIN * (1 + self._jitter()) / 2
        return soon if self._handed_at is None else max(soon, self._handed_at + AGAIN_AFTER)
