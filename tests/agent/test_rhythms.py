"""When the rhythms of pods are read, and when what they do is handed on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from healthd.agent.rhythms import AGAIN_AFTER, WITHIN, ReadGpus, RhythmSampler, SettledRhythms
from healthd.core.api import PodRhythm
from healthd.core.api.health import GPUS, MOST_WINDOWS, GpuClock, MemberState, PodActivity
from healthd.core.hang.gpus import GpuUse, GpuUses
from healthd.core.hang.pods import CHOOSE_EVERY, SAMPLE_EVERY
from healthd.core.hang.samples import Stall, Usage
from healthd.core.hang.work.rank_time import RankTime
from tests.fakes import START

SECOND = timedelta(seconds=1)


class Machine:
    """One rank that trains, and does nothing once it hangs. Each look is a second later."""

    def __init__(self) -> None:
        self.now = START
        self.used = Usage()
        self.works = True
        self.looks = 0
        self.quiet_looks = 0
        self.questions: list[datetime] = []

    def processor_times(self) -> Mapping[str, float]:
        """Counts the looks at all pods."""
        self.looks += 1
        return {"rank": self.used.cpu}

    def read(self, uids: Collection[str]) -> Mapping[str, Usage]:
        """Of the pods that are sampled."""
        return dict.fromkeys(uids, self.used)

    def stalls(self, uids: Collection[str]) -> Mapping[str, Stall]:
        """It waits for its disk. Counts the looks at quiet pods."""
        self.quiet_looks += 1
        return dict.fromkeys(uids, Stall(io_wait=0.7))

    def until_known(self, sampler: RhythmSampler) -> Sequence[PodRhythm]:
        """The first rhythms."""
        while not (rhythms := self.turn(sampler)):
            assert self.now < START + timedelta(minutes=3)
        return rhythms

    def until_quiet(self, sampler: RhythmSampler) -> Sequence[PodRhythm]:
        """It hangs, and this is seen within 15 s."""
        self.works, hung = False, self.now
        while (rhythms := self.turn(sampler))[0].state is MemberState.WORKING:
            assert self.now - hung <= timedelta(seconds=15)
        return rhythms

    def rank_times(self, uids: Collection[str]) -> Mapping[str, Sequence[RankTime]]:
        """Two ranks share the pod, and each has half of what it uses. Counts the questions."""
        self.questions.append(self.now)
        half = self.used.cpu / 2
        return {uid: [RankTime(number=each, pid=7 + each, ran=half, starved=0) for each in (0, 1)] for uid in uids}

    def turn(self, sampler: RhythmSampler) -> Sequence[PodRhythm]:
        """One read at the sampler's own pace."""
        rhythms, waits = sampler.read(self.now), sampler.every
        self.now += waits
        if self.works:
            cores = waits.total_seconds()
            total = self.used.cpu + cores
            self.used = Usage(cpu=total, faults=60 * total, system=0.1 * total)
        return rhythms


def test_a_node_without_busy_pods_is_looked_at_four_times_a_minute() -> None:
    machine = Machine()
    sampler = RhythmSampler(machine)
    machine.works = False
    for _ in range(4):
        machine.turn(sampler)

    assert (sampler.every, machine.now - START) == (CHOOSE_EVERY, timedelta(minutes=1))


def test_a_rank_is_sampled_each_second_and_its_hang_is_seen() -> None:
    machine = Machine()
    sampler = RhythmSampler(machine)
    machine.until_known(sampler)
    (rhythm,) = machine.until_quiet(sampler)

    assert (rhythm.state, sampler.every) == (MemberState.SILENT, SAMPLE_EVERY)
    assert machine.looks <= (machine.now - START) / CHOOSE_EVERY + 1


def test_a_pod_that_fell_quiet_is_looked_at_once() -> None:
    machine = Machine()
    sampler = RhythmSampler(machine)
    for _ in range(100):
        machine.turn(sampler)
    assert machine.quiet_looks == 0

    machine.works = False
    for _ in range(60):
        rhythms = machine.turn(sampler)

    assert rhythms[0].activity == PodActivity(io_wait=0.7)
    assert machine.quiet_looks == 1


def test_the_ranks_of_a_pod_are_compared_each_five_seconds_while_it_works() -> None:
    machine = Machine()
    sampler = RhythmSampler(machine, ask_times=machine.rank_times)
    machine.until_known(sampler)
    known_at = machine.now
    for _ in range(60):
        machine.turn(sampler)
    assert {later - at for at, later in pairwise(machine.questions)} == {timedelta(seconds=5)}
    assert (machine.now - known_at) / len(machine.questions) <= timedelta(seconds=5)

    machine.until_quiet(sampler)
    asked = len(machine.questions)
    for _ in range(60):
        machine.turn(sampler)
    assert len(machine.questions) == asked


def test_where_stragglers_are_not_wanted_no_rank_is_asked_for() -> None:
    machine = Machine()
    sampler = RhythmSampler(machine, ask_times=machine.rank_times, with_work=False)
    machine.until_known(sampler)
    for _ in range(60):
        machine.turn(sampler)

    assert machine.questions == []


def test_a_read_that_is_a_little_early_looks_at_all_pods_too() -> None:
    machine = Machine()
    sampler = RhythmSampler(machine)
    sampler.read(START)
    sampler.read(START + CHOOSE_EVERY - timedelta(milliseconds=200))

    assert machine.looks == 2


def silent(uid: str = "a") -> PodRhythm:
    """A pod that hangs."""
    return PodRhythm(uid=uid, state=MemberState.SILENT, since=START, period=2, allowed=12)


def working(uid: str = "a", period: float = 2) -> PodRhythm:
    """One that does not."""
    return PodRhythm(uid=uid, state=MemberState.WORKING, period=period, allowed=12)


class Handed:
    """What is handed on, second by second."""

    def __init__(self, jitter: float = 1.0) -> None:
        self.settled = SettledRhythms(lambda: jitter)
        self.now = START

    def after(self, seconds: int, *rhythms: PodRhythm) -> list[PodRhythm]:
        """What is handed on after these were seen for so long."""
        seen, handed = list(rhythms), list[PodRhythm]()
        for _ in range(seconds):
            self.now += SECOND
            handed = list(self.settled.ingest(seen, self.now))
        return handed


def test_a_rhythm_that_became_known_or_changed_is_handed_on_at_once() -> None:
    handed = Handed()

    assert handed.after(1, working()) == [working()]
    assert handed.after(1, working(period=6)) == [working(period=6)]


def test_pods_that_fall_silent_in_the_same_seconds_are_handed_on_together() -> None:
    handed = Handed()
    handed.after(1, working("a"), working("b"))

    assert handed.after(2, silent("a"), working("b")) == [working("a"), working("b")]
    assert handed.after(4, silent("a"), silent("b")) == [silent("a"), silent("b")]


def test_agents_hand_on_the_silence_of_a_gang_at_different_moments() -> None:
    soon, late = Handed(jitter=0), Handed(jitter=1)
    waits = [timedelta(seconds=sum(not each.after(1, silent()) for _ in range(9))) for each in (soon, late)]

    assert waits == [WITHIN // 2 + SECOND / 2, WITHIN]


def test_a_pod_that_works_again_before_it_was_handed_on_was_never_silent() -> None:
    handed = Handed()
    handed.after(1, working())
    handed.after(3, silent())

    assert handed.after(9, working()) == [working()]


def test_a_pod_that_works_again_is_handed_on_soon() -> None:
    handed = Handed(jitter=0)
    handed.after(20, silent())

    assert handed.after(4, working()) == [working()]


def test_pods_that_fall_silent_one_after_the_other_are_handed_on_in_groups() -> None:
    handed, changes, before = Handed(), 0, list[PodRhythm]()
    for second in range(60):
        after = handed.after(1, *(silent(f"pod-{number:02}") for number in range(second)))
        changes += after != before
        before = after

    assert changes <= 60 / AGAIN_AFTER.total_seconds()


class GpuMachine(Machine):
    """The rank hardly uses a processor: its GPU does the work."""

    def processor_times(self) -> Mapping[str, float]:
        """None of its pods is busy."""
        return {"rank": 0.0}

    def read_gpus(self, now: datetime) -> GpuUses:
        """Its one GPU, half of the memory of which is used while it works. Kernels run all the time."""
        return GpuUses(now, {"gpu": GpuUse(self.used.cpu / 2, (now - START).total_seconds(), 7e9)})


def test_gpus_are_sampled_each_second_once_they_work_though_no_pod_is_busy() -> None:
    machine = GpuMachine()
    sampler = RhythmSampler(machine, read_gpus=machine.read_gpus)
    machine.until_known(sampler)
    (rhythm,) = machine.until_quiet(sampler)

    assert (rhythm.uid, rhythm.activity) == (GPUS, PodActivity(gpu_utilisation=100))
    assert sampler.every == SAMPLE_EVERY


def runs_at(machine: Machine, mhz: float) -> ReadGpus:
    """The GPU of *machine*, at this clock while it works."""

    def read(now: datetime) -> GpuUses:
        memory = machine.used.cpu / 2
        return GpuUses(now, {"gpu": GpuUse(memory, 2 * memory, 7e9, mhz * memory, 1980)})

    return read


def test_the_clocks_of_gpus_that_work_are_listed_with_them() -> None:
    machine = Machine()
    sampler = RhythmSampler(machine, read_gpus=runs_at(machine, 1400))
    for _ in range(300):
        rhythms = machine.turn(sampler)
    assert [each.clocks.gpus for each in rhythms if each.clocks] == [[GpuClock(pci="gpu", mhz=1400, newest=1400)]]
    assert rhythms[-1].uid == GPUS

    machine.works = False
    for _ in range(30):
        rhythms = machine.turn(sampler)
    assert [each.clocks for each in rhythms] == [None, None]


def test_a_gpu_that_the_others_wait_for_is_listed_with_them() -> None:
    machine, idle = Machine(), 0.0
    sums = {f"gpu-{number}": GpuUse(0.0, 0.0, 7e9) for number in range(4)}

    def read(now: datetime) -> GpuUses:
        """Of its four GPUs the second one runs no kernel for *idle* of the time, and all of them do less then."""
        for name, use in sums.items():
            memory = (0.4 + 0.1 * (now.second % 2)) * (1 - idle)
            sums[name] = GpuUse(use.memory + memory, use.kernels + 1 - idle * (name == "gpu-1"), use.held)
        return GpuUses(now, dict(sums))

    sampler = RhythmSampler(machine, read_gpus=read)
    for _ in range(1200):
        rhythms = machine.turn(sampler)
    assert [each.host_bound_gpus for each in rhythms] == [[], []]
    (work,) = (each.gpu_work for each in rhythms if each.gpu_work)
    assert (work.seconds, set(work.idle)) == (15, {0.0})
    assert all(0.44 < each < 0.46 for each in work.memory)
    assert len(work.memory) == MOST_WINDOWS
    idle = 0.2
    for _ in range(150):
        rhythms = machine.turn(sampler)

    assert [[late.pci for late in each.host_bound_gpus] for each in rhythms] == [[], ["gpu-1"]]


class Starting(Machine):
    """Its pod begins after the agent, loads for 20 s and then waits. A GPU may work meanwhile."""

    begins, loaded = START + timedelta(seconds=15), START + timedelta(seconds=35)
    memory = 0.0

    def processor_times(self) -> Mapping[str, float]:
        """Of the pod, once it is there, beside one that was there before."""
        return {"agent": 0.0, "rank": self.used.cpu} if self.now >= self.begins else {"agent": 0.0}

    def turn(self, sampler: RhythmSampler) -> Sequence[PodRhythm]:
        """The pod loads by itself."""
        self.works = self.begins <= self.now < self.loaded
        return super().turn(sampler)

    def read_gpus(self, now: datetime) -> GpuUses:
        """A process of some pod holds its memory."""
        return GpuUses(now, {"gpu": GpuUse(self.memory, self.memory, 7e9)})


def test_a_pod_that_waits_in_its_start_is_listed_unless_a_gpu_works_meanwhile() -> None:
    machine = Starting()
    sampler = RhythmSampler(machine, read_gpus=machine.read_gpus)
    while machine.now < START + timedelta(minutes=5):
        machine.memory += 0.5
        pods = [each for each in machine.turn(sampler) if each.uid == "rank"]
    assert pods == []

    stopped = machine.now
    while not pods:
        pods = [each for each in machine.turn(sampler) if each.uid == "rank"]
        assert machine.now - stopped < timedelta(minutes=3)
    (pod,) = pods
    assert (pod.state, pod.is_start, pod.idle_gpus) == (MemberState.SILENT, True, 1)
    assert timedelta(seconds=118) <= machine.now - stopped <= timedelta(seconds=123)
    assert machine.quiet_looks == 1


def test_where_work_is_not_compared_clocks_are_not_either() -> None:
    machine = Machine()
    sampler = RhythmSampler(machine, read_gpus=runs_at(machine, 1400), with_work=False)
    for _ in range(300):
        rhythms = machine.turn(sampler)

    assert [(each.uid, each.clocks) for each in rhythms] == [("rank", None), (GPUS, None)]


def test_gpus_are_listed_after_the_pods_and_the_list_stays_the_same_while_nothing_changes() -> None:
    machine = Machine()
    sampler = RhythmSampler(machine, read_gpus=lambda now: GpuUses(now, {"gpu": GpuUse(machine.used.cpu / 2, 0, 7e9)}))
    for _ in range(300):
        rhythms = machine.turn(sampler)
    machine.works = False
    for _ in range(30):
        rhythms = machine.turn(sampler)

    assert [(each.uid, each.state) for each in rhythms] == [("rank", MemberState.SILENT), (GPUS, MemberState.SILENT)]
    assert machine.turn(sampler) is rhythms
