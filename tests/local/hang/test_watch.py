"""When the watch of a run's ranks reports a silence, and when it lets the controller restart the gang for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import cast

import pytest

from healthd.core.api import Device
from healthd.core.config import HangPolicy
from healthd.core.config.gangs import SilenceMode, StragglerMode
from healthd.core.hang.gpus import GpuUse, GpuUses
from healthd.core.hang.history import ActivityHistory
from healthd.core.hang.samples import Usage
from healthd.core.hang.silence import Silence
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.suspects.evidence import Activity, ProcessEvidence, RankEvidence, TaskState
from healthd.core.hang.suspects.vote import vote
from healthd.core.hang.work.own_waits import OFTEN, SELDOM
from healthd.local.attention import Attention
from healthd.local.hang.gpus import SlotGpus
from healthd.local.hang.record import HangRecord
from healthd.local.hang.stack_looks import Seen, StackLooks
from healthd.local.hang.stragglers import StragglerWatch
from healthd.local.hang.watch import HangWatch, RankActivity
from healthd.local.machine.slots import Slot
from healthd.local.processes.runner import ProcessRunner, RunningRank
from healthd.probes.usage.looks import Looks
from healthd.probes.usage.process_tree import ProcessTree
from tests.fakes import START, ManualClock

SECOND = timedelta(seconds=1)


class Tree:
    """A rank's processes that use the same in every second, while they work."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._used = Usage(states="S")

    def read(self) -> Usage | None:
        if self._run.works:
            more = self._run.work
            self._used = Usage._make([*(a + b for a, b in zip(self._used[:-1], more[:-1], strict=True)), "S"])
        return self._used

    def close(self) -> None:
        self._run.closed += 1


class Run:
    """Two ranks that are watched, and what was reported of them."""

    def __init__(self, policy: HangPolicy | None = None) -> None:
        self.works = True
        self.work = Usage(cpu=0.4, switches=40, faults=50, calls=5, written=100)
        """What a rank uses in a second in which it works."""
        self.saved = 0
        """When the folder of checkpoints was last seen to change."""
        self.closed = 0
        self.wakes = 0
        self.reported: list[Silence] = []
        self.asked: list[dict[str, Activity]] = []
        self.histories: list[ActivityHistory] = []
        self.cancelled = 0
        self.record: HangRecord | None = None
        """The answer of the witnesses."""
        self.answered = asyncio.Event()
        """The witnesses have answered."""
        self.answered.set()
        self.ranks: Sequence[RunningRank] = [RunningRank(f"uid-{n}", str(n), 0, n) for n in range(2)]
        self.policy = policy or HangPolicy()
        self.clock = ManualClock()
        self.attention = Attention(self.clock)
        self.watch = self.watching()

    def watching(
        self,
        gpus: SlotGpus | None = None,
        stragglers: StragglerWatch | None = None,
        looks: Looks | None = None,
        stacks: StackLooks | None = None,
    ) -> HangWatch:
        """A watch of this run."""
        return HangWatch(
            self.policy,
            self.clock,
            running=lambda: self.ranks,
            saved=lambda: self.saved,
            report=self._report,
            locate=self._locate,
            wake=self._wake,
            stragglers=stragglers,
            gpus=gpus,
            open_tree=lambda _: cast("ProcessTree", Tree(self)),
            looks=looks,
            stacks=stacks,
        )

    async def _report(self, silence: Silence) -> None:
        self.reported.append(silence)

    async def _locate(
        self,
        silence: Silence,
        ranks: Sequence[RunningRank],
        activities: Mapping[str, Activity],
        history: ActivityHistory,
    ) -> HangRecord | None:
        self.asked.append(dict(activities))
        self.histories.append(history)
        try:
            await self.answered.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.record

    def _wake(self) -> None:
        self.wakes += 1

    async def go_on(self, seconds: int) -> None:
        """So many samples."""
        for _ in range(seconds):
            self.clock.advance(SECOND)
            self.attention.note()
            await self.watch.cycle(self.clock.now())
            await self.settle()

    def known(self) -> list[str]:
        """The ranks of which the rhythm is."""
        return [rank for rank, member in self.watch.rhythm.members.items() if member.rhythm]

    async def known_after(self, seconds: int) -> list[str]:
        """The same after so many further samples."""
        await self.go_on(seconds)
        return self.known()

    async def settle(self) -> None:
        """Let the questions go on."""
        for _ in range(5):
            await asyncio.sleep(0)

    def activity(self) -> RankActivity:
        """What the controller may know."""
        runner = cast("ProcessRunner", self)
        return RankActivity(runner, self.watch, self.policy, self.attention)

    def last(self, _: object) -> None:
        return None

    last_work = last


async def hung(policy: HangPolicy | None = None, *, answers: bool = True) -> Run:
    """A run whose ranks worked, and stopped. The witnesses answer at once, or not yet."""
    run = Run(policy)
    if not answers:
        run.answered.clear()
    await run.go_on(90)
    run.works = False
    await run.go_on(30)
    return run


async def test_a_folder_of_checkpoints_that_is_first_looked_at_when_the_ranks_start_is_no_save() -> None:
    run = Run()
    run.saved, run.work = 7, run.work._replace(ran=0.3)
    await run.go_on(2)
    run.works = False
    await run.go_on(31)

    assert [silence.is_start for silence in run.reported] == [True]


@pytest.mark.parametrize(
    ("policy", "is_on"),
    [
        (HangPolicy(), True),
        (HangPolicy(silence=SilenceMode.IGNORE), False),
        (HangPolicy(enabled=False), False),
    ],
)
async def test_ranks_are_sampled_unless_hangs_are_ignored(policy: HangPolicy, is_on: bool) -> None:
    assert Run(policy).watch.is_on is is_on


async def test_a_silence_is_reported_once_and_the_controller_wakes() -> None:
    run = await hung()

    (silence,) = run.reported
    assert silence.since == START + 90 * SECOND
    assert [member.rank for member in silence.members] == ["0", "1"]
    assert run.wakes == 1


async def test_ranks_that_do_nothing_before_their_rhythm_is_known_are_reported_and_not_restarted() -> None:
    run = Run(RESTARTS)
    run.work = run.work._replace(ran=0.3)
    await run.go_on(20)
    run.works = False
    await run.go_on(40)

    (silence,) = run.reported
    assert silence.is_start
    assert silence.seen_at - silence.since == timedelta(seconds=30)
    assert run.asked
    assert silence.worked == 0, "so no silence is short enough to be restarted for"


async def test_a_silence_does_not_grow_while_the_machine_sleeps() -> None:
    run = await hung(RESTARTS)
    before = run.activity().silence([])
    run.attention.note()
    run.clock.advance(timedelta(hours=8))

    after = run.activity().silence([])

    assert before is not None
    assert after is not None
    assert after.since - before.since == timedelta(hours=8)


async def test_its_end_is_reported_once() -> None:
    run = await hung()
    run.works = True
    await run.go_on(30)

    assert [silence.ended_at for silence in run.reported] == [None, START + 121 * SECOND]


async def test_ranks_that_are_stopped_for_a_restart_are_no_longer_silent() -> None:
    run = await hung(HangPolicy(silence=SilenceMode.RESTART))
    run.ranks = []
    await run.go_on(60)

    assert (run.reported[-1].ended_at, run.reported[-1].was_stopped) == (START + 121 * SECOND, True)
    assert run.activity().silence([]) is None
    assert run.closed == 2


async def test_another_attempt_is_learned_anew() -> None:
    run = await hung()
    run.ranks = [rank._replace(uid=f"{rank.uid}-again", attempt=1) for rank in run.ranks]
    await run.go_on(60)

    assert len(run.reported) == 2


async def test_ranks_that_a_launcher_started_are_learned_in_its_place() -> None:
    run = Run()
    run.ranks = run.ranks[:1]
    await run.go_on(60)
    below = [run.ranks[0]._replace(uid=f"uid-0/{n}", rank=str(n), pid=n, is_launched=True) for n in range(3)]
    run.ranks = below
    known = run.known(), await run.known_after(1), await run.known_after(60)
    run.works = False
    await run.go_on(30)

    assert known == (["0"], [], ["0", "1", "2"])
    assert [[member.rank for member in silence.members] for silence in run.reported] == [["0", "1", "2"]]


async def test_ranks_that_a_launcher_starts_again_are_a_start_of_their_own() -> None:
    """A pause of the start before would make a hang of this one late."""
    run = Run()
    run.work = run.work._replace(ran=0.3)
    await run.go_on(20)
    run.works = False
    await run.go_on(29)
    run.ranks, run.works = [rank._replace(uid=f"{rank.uid}/9", is_launched=True) for rank in run.ranks], True
    await run.go_on(5)
    run.works = False
    await run.go_on(31)

    assert [silence.is_start for silence in run.reported] == [True]


async def test_a_restart_between_two_samples_is_no_work_of_the_ranks_that_hung() -> None:
    run = await hung()
    run.ranks = [rank._replace(uid=f"{rank.uid}-again", attempt=1) for rank in run.ranks]
    await run.go_on(1)

    assert (run.reported[-1].ended_at, run.reported[-1].was_stopped) == (START + 121 * SECOND, True)


@pytest.mark.parametrize(("mode", "restarts"), [(SilenceMode.TELL, False), (SilenceMode.RESTART, True)])
async def test_the_controller_sees_it_only_where_it_is_to_restart(mode: SilenceMode, restarts: bool) -> None:
    run = await hung(HangPolicy(silence=mode))

    assert (run.activity().silence([]) is not None) is restarts


async def test_the_controller_knows_when_a_rank_last_worked_once_its_rhythm_is_known() -> None:
    run = Run()
    await run.go_on(10)
    before = run.activity().usual_work([])
    await run.go_on(80)
    run.works = False
    await run.go_on(30)

    assert (before, run.activity().usual_work([])) == (None, START + 90 * SECOND)


async def test_ranks_that_only_use_a_processor_may_poll_so_it_is_not_known_whether_they_work() -> None:
    run = Run()
    run.work = Usage(cpu=0.9)
    await run.go_on(90)

    assert run.activity().usual_work([]) is None


async def test_the_controller_knows_for_how_long_ranks_that_hang_have_done_next_to_nothing() -> None:
    run = await hung()
    at_first = run.activity().inactive_for([])
    await run.go_on(300)

    assert (at_first, run.activity().inactive_for([])) == (timedelta(0), timedelta(minutes=5))


async def test_ranks_of_a_new_attempt_have_done_so_for_no_time() -> None:
    run = await hung()
    run.ranks = [rank._replace(uid=f"{rank.uid}-again", attempt=1) for rank in run.ranks]
    await run.go_on(1)

    assert run.activity().inactive_for([]) is None


STATES = (TaskState.SLEEPING, TaskState.STOPPED, TaskState.SLEEPING)
RESTARTS = HangPolicy(silence=SilenceMode.RESTART)


class TestWitnesses:
    async def test_they_are_asked_once_with_what_each_rank_did_in_the_silence(self) -> None:
        run = await hung()

        assert run.asked == [{"0": Activity(cpu=0, io=0, network=0), "1": Activity(cpu=0, io=0, network=0)}]

    async def test_they_are_asked_with_the_picture_of_the_minutes_before(self) -> None:
        (history,) = (await hung()).histories

        assert [(each.rank, each.signs[-12:]) for each in history.ranks] == [(0, "777777000000"), (1, "777777000000")]

    async def test_a_second_silence_is_asked_about_again(self) -> None:
        run = await hung()
        run.works = True
        await run.go_on(60)
        run.works = False
        await run.go_on(60)

        assert len(run.asked) == 2

    async def test_samples_go_on_while_they_are_asked_and_the_restart_waits(self) -> None:
        run = await hung(RESTARTS, answers=False)
        waiting = run.activity().silence([]), run.wakes
        run.answered.set()
        await run.settle()

        assert waiting == (None, 0)
        assert (run.activity().silence([]), run.wakes) == (run.reported[0], 1)

    async def test_the_restart_knows_who_is_suspected_once_they_have_answered(self) -> None:
        run = await hung(RESTARTS, answers=False)
        ranks = [RankEvidence(n, process=ProcessEvidence(STATES[n]), node=f"slot-{n}") for n in range(3)]
        run.record = HangRecord(since=START, location=vote(ranks), ranks=tuple(ranks))
        asked = run.watch.suspects
        run.answered.set()
        await run.settle()
        silence = run.activity().silence([])

        assert asked == ()
        assert silence is not None
        assert [(each.member, each.node, each.witnesses) for each in silence.suspects] == [("1", "slot-1", 1)]

    async def test_ranks_that_work_again_are_asked_no_more(self) -> None:
        run = await hung(answers=False)
        run.works = True
        await run.go_on(1)

        assert (run.cancelled, run.watch.is_locating) == (1, False)

    @pytest.mark.parametrize("left", [0, 1])
    async def test_when_a_rank_ends_they_are_asked_no_more_and_the_restart_waits_no_longer(self, left: int) -> None:
        run = await hung(RESTARTS, answers=False)
        run.ranks = run.ranks[:left]
        await run.go_on(1)

        assert (run.cancelled, run.watch.is_locating, run.wakes) == (1, False, 1)

    async def test_the_end_of_the_run_ends_the_questions_and_the_silence(self) -> None:
        run = await hung(answers=False)
        watching = asyncio.create_task(run.watch.run())
        await run.settle()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

        assert (run.cancelled, run.watch.is_locating) == (1, False)
        assert run.reported[-1].ended_at == run.clock.now()
        assert run.reported[-1].was_stopped


@pytest.mark.parametrize("policy", [HangPolicy(silence=SilenceMode.IGNORE), HangPolicy(enabled=False)])
async def test_where_silences_are_ignored_nothing_is_sampled(policy: HangPolicy) -> None:
    run = Run(policy)

    async with asyncio.timeout(5):
        await run.watch.run()
    assert run.clock.next_deadline() is None


class CountedLooks(Looks):
    """Whether they go on, and at how many ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = False

    def start(self) -> None:
        self.go_on = True

    def stop(self) -> None:
        self.go_on = False


async def never(straggler: Straggler) -> None:
    """No rank is slow here."""
    raise AssertionError(straggler)


async def test_main_threads_are_looked_at_while_ranks_are_compared() -> None:
    run, looks = Run(), CountedLooks()
    watching = asyncio.create_task(run.watching(stragglers=StragglerWatch(run.policy, never), looks=looks).run())
    looks.every = OFTEN
    await run.clock.run_for(timedelta(seconds=3))
    assert (looks.go_on, len(looks.looked_at)) == (True, 2)
    assert looks.every == SELDOM  # both ranks do the same

    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert (looks.go_on, len(looks.looked_at)) == (False, 0)


class Layers(StackLooks):
    """Looks that show at once a rank that computes, or one that is caught in a loop."""

    def __init__(self, functions: Sequence[str]) -> None:
        super().__init__()
        self._functions = functions
        self._seen: list[Seen] = []

    def begin(self, ranks: Sequence[RunningRank]) -> None:
        self._seen = [Seen(rank.name, function) for rank in ranks for function in self._functions]

    def take(self) -> Sequence[Seen]:
        seen, self._seen = self._seen, []
        return seen


@pytest.mark.parametrize(
    ("functions", "reports"), [(["relu", "collate", "linear"], 0), (["relu", "relu", "linear"], 1), ([], 1)]
)
async def test_ranks_that_use_a_processor_alone_are_reported_unless_one_is_seen_to_compute(
    functions: list[str], reports: int
) -> None:
    run = Run()
    run.watch = run.watching(stacks=Layers(functions))
    await run.go_on(90)
    run.work = Usage(cpu=0.95)
    await run.go_on(60)

    assert len(run.reported) == reports


async def test_main_threads_are_not_looked_at_where_slow_ranks_are_ignored() -> None:
    run, looks = Run(HangPolicy(stragglers=StragglerMode.IGNORE)), CountedLooks()
    watching = asyncio.create_task(run.watching(stragglers=StragglerWatch(run.policy, never), looks=looks).run())
    await run.clock.run_for(timedelta(seconds=2))

    assert not looks.go_on
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


class Driver:
    """One GPU of each rank's slot: it computes while the ranks work, and polls for others otherwise."""

    def __init__(self, run: Run) -> None:
        self.computes = False
        """Also while the ranks do nothing else."""
        self.closed = 0
        self._run = run
        self._memory = self._kernels = 0.0

    def use(self, now: datetime) -> GpuUses:
        """A second later each time."""
        self._kernels += 1.0
        self._memory += 0.4 * (self._run.works or self.computes)
        return GpuUses(now, dict.fromkeys(("0000:3b:00.0", "0000:3c:00.0"), GpuUse(self._memory, self._kernels, 7e9)))

    def close(self) -> None:
        self.closed += 1


def on_gpus() -> tuple[Run, Driver]:
    """A run of two ranks with a GPU each."""
    run = Run()
    driver = Driver(run)
    devices = [Device(pci="0000:3b:00.0"), Device(pci="0000:3c:00.0")]
    slots = [Slot(name=f"slot-{number}", devices=(device,)) for number, device in enumerate(devices)]
    run.ranks = [rank._replace(node=f"slot-{number}") for number, rank in enumerate(run.ranks)]
    run.watch = run.watching(SlotGpus(slots, driver))
    return run, driver


async def test_ranks_that_only_wait_for_their_gpus_work() -> None:
    run, driver = on_gpus()
    await run.go_on(90)
    run.works, driver.computes = False, True
    await run.go_on(600)

    assert run.reported == []
    assert run.activity().usual_work([]) == run.clock.now()


async def test_a_hang_says_what_the_gpus_did() -> None:
    run, _ = on_gpus()
    await run.go_on(90)
    run.works = False
    await run.go_on(30)

    assert len(run.reported) == 1
    assert {rank: activity.gpu_utilisation for rank, activity in run.asked[0].items()} == {"0": 100.0, "1": 100.0}


async def test_no_gpu_is_held_while_no_rank_runs() -> None:
    run, driver = on_gpus()
    await run.go_on(90)
    run.ranks = []
    await run.go_on(3)

    assert driver.closed == 1


class EndedStragglers(StragglerWatch):
    """Remembers when the ranks were stopped."""

    def __init__(self, policy: HangPolicy) -> None:
        super().__init__(policy, never)
        self.stopped_at: list[datetime] = []

    async def restart(self, at: datetime) -> None:
        self.stopped_at.append(at)


async def test_the_end_of_a_run_ends_its_stragglers_too() -> None:
    run = Run()
    stragglers = EndedStragglers(run.policy)
    watching = asyncio.create_task(run.watching(stragglers=stragglers).run())
    await run.settle()
    assert stragglers.stopped_at == []

    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)

    assert stragglers.stopped_at == [run.clock.now()]
