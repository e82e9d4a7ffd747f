"""GPUs that have nothing to do while others wait for them: which of them are named, by windows and samples."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest

from healthd.core.hang.gpus import GpuRhythms, GpuUse, GpuUses
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.gpus.host_bound_gpus import HostBoundGpus, HostBoundGpusOfNode
from healthd.core.hang.work.straggler_text import effect_of, sentence_of
from healthd.core.hang.work.work_share import ShareWindow, WorkShare
from tests.fakes import START

LENGTH = timedelta(seconds=5)
MINUTE = timedelta(minutes=1)
TRAINS = WorkShare(0.4, own_waits=0.02)
"""Its memory is used for two fifths of the time, and it hardly has to wait for its host."""
LATE = 0.1


def waits_for_late(by: float = LATE) -> WorkShare:
    """A GPU beside one whose host comes late: steps are longer, and it waits in a kernel."""
    return WorkShare(TRAINS.ran / (1 + by), own_waits=TRAINS.own_waits)


def is_late(by: float = LATE) -> WorkShare:
    return waits_for_late(by)._replace(own_waits=TRAINS.own_waits + by / (1 + by))


class Gang:
    """Eight GPUs, half an hour after the start, or so many *minutes*."""

    def __init__(self, length: timedelta = LENGTH, minutes: int = 30) -> None:
        self.gpus, self.now, self.dice, self.length = HostBoundGpus(), START, random.Random(3), length
        assert self.train(minutes * MINUTE) == []

    def train(
        self, time: timedelta, odd: Mapping[int, WorkShare] | None = None, others: WorkShare = TRAINS
    ) -> list[Straggler]:
        """For so long some GPUs do something else than the *others*. What changed."""
        end, found = self.now + time, list[Straggler]()
        while self.now < end:
            shares = {str(number): self._noisy((odd or {}).get(number, others)) for number in range(8)}
            found += self.gpus.add(ShareWindow(self.now, self.now + self.length, shares))
            self.now += self.length
        return found

    def _noisy(self, share: WorkShare) -> WorkShare:
        idle = min(1.0, max(0.0, share.own_waits + self.dice.gauss(0, 0.01)))
        return share._replace(ran=max(0.0, share.ran + self.dice.gauss(0, 0.01)), own_waits=idle)


def test_a_gpu_whose_host_comes_late_is_named_within_two_minutes() -> None:
    gang = Gang()
    (late,) = gang.train(2 * MINUTE, {5: is_late()}, waits_for_late())

    assert (late.rank, late.since) == ("5", START + 30 * MINUTE)
    assert late.slower == pytest.approx(LATE, abs=0.02)
    assert late.idle == pytest.approx(0.11, abs=0.01)
    assert late.peers_idle == pytest.approx(0.02, abs=0.01)


def test_the_sentence_says_what_its_gpu_does() -> None:
    (late,) = Gang().train(2 * MINUTE, {5: is_late()}, waits_for_late())

    assert sentence_of(late) == (
        "rank 5 is about 9% slower than its peers, and they wait for it (75% sure): its GPU runs no kernel 11% of the "
        "time, those of its peers 2%, which wait for it: its host comes late, as with data that load slowly or other "
        "work of its processor"
    )
    assert effect_of(late) == "about 9% slower, because of rank 5"


def test_it_is_over_when_its_host_keeps_up() -> None:
    gang = Gang()
    gang.train(5 * MINUTE, {5: is_late()}, waits_for_late())
    kept_up = gang.now
    (over,) = gang.train(3 * MINUTE)

    assert (over.rank, over.ended_at, over.idle > 0) == ("5", kept_up, True)


def test_a_gpu_that_is_done_early_and_waits_without_a_kernel_holds_up_nothing() -> None:
    early = WorkShare(0.85 * TRAINS.ran, own_waits=TRAINS.own_waits + 0.15)

    assert Gang().train(20 * MINUTE, {5: early}) == []


def test_a_gpu_that_usually_waits_without_a_kernel_is_not_named_when_another_node_slows_all() -> None:
    """It is done early in each step. When steps get longer, it waits for longer, and no other of its node does."""
    early = WorkShare(0.85 * TRAINS.ran, own_waits=TRAINS.own_waits + 0.15)
    gang = Gang()
    assert gang.train(60 * MINUTE, {5: early}) == []

    slowed = WorkShare(early.ran / 1.2, own_waits=1 - (1 - early.own_waits) / 1.2)
    assert gang.train(20 * MINUTE, {5: slowed}, waits_for_late(0.2)) == []


def test_an_evaluation_before_makes_no_late_gpu_of_one_that_is_done_early() -> None:
    """All GPUs do more in it than in steps, so after it all seem to do less than before."""
    gang = Gang()
    assert gang.train(2 * MINUTE, others=WorkShare(0.6)) == []
    early = WorkShare(0.85 * TRAINS.ran, own_waits=TRAINS.own_waits + 0.15)

    assert gang.train(10 * MINUTE, {5: early}) == []


def test_data_that_are_late_for_all_make_no_late_gpu_of_one_that_is_done_early() -> None:
    gang = Gang()
    early = WorkShare(0.85 * TRAINS.ran, own_waits=TRAINS.own_waits + 0.15)
    assert gang.train(MINUTE, {5: early}) == []
    assert gang.train(MINUTE, {5: early._replace(ran=0.1)}, WorkShare(0.1, own_waits=0.75)) == []

    assert gang.train(10 * MINUTE, {5: early}) == []


def test_a_gpu_is_not_named_where_many_of_its_peers_work_as_before() -> None:
    """They are of other jobs, of which two do less by chance."""
    others = dict.fromkeys((0, 1, 2), TRAINS)

    assert Gang().train(20 * MINUTE, {**others, 5: is_late()}, waits_for_late()) == []


def test_the_first_one_is_named_too_where_steps_are_long() -> None:
    gang = Gang(length=timedelta(seconds=15))
    found = gang.train(15 * MINUTE, {0: is_late(0.3)}, waits_for_late(0.3))

    assert [each.rank for each in found] == ["0"]


@pytest.mark.parametrize(("rank", "named"), [(0, []), (5, ["5"])])
def test_the_first_one_has_to_wait_for_longer_than_others_soon_after_the_start(rank: int, named: list[str]) -> None:
    found = Gang(minutes=8).train(3 * MINUTE, {rank: is_late(0.09)}, waits_for_late(0.09))

    assert [each.rank for each in found] == named


def test_gpus_that_all_wait_for_their_hosts_are_not_late() -> None:
    assert Gang().train(20 * MINUTE, others=is_late(0.3)) == []


def test_a_gpu_that_has_always_waited_for_its_host_is_not_named() -> None:
    gang = Gang()
    gang.gpus = HostBoundGpus()

    assert gang.train(30 * MINUTE, {5: is_late()}, waits_for_late()) == []


def test_a_save_by_rank_0_makes_it_no_late_one() -> None:
    gang, waits = Gang(), WorkShare(0.0, own_waits=0.0)
    for _ in range(20):
        assert gang.train(MINUTE, {0: WorkShare(0.0, own_waits=1.0)}, waits) == []
        assert gang.train(5 * MINUTE) == []


def test_a_moment_in_which_data_are_late_is_none() -> None:
    gang = Gang()

    assert gang.train(50 * timedelta(seconds=1), {5: is_late(0.5)}, waits_for_late(0.5)) == []
    assert gang.train(10 * MINUTE) == []


class Node:
    """GPUs that are sampled each second, in the way of an agent."""

    def __init__(self, *pcis: str) -> None:
        self.sums = {pci: GpuUse(0.0, 0.0, 6e10) for pci in pcis}
        self.rhythms, self.compares, self.now, self.dice = GpuRhythms(), HostBoundGpusOfNode(), START, random.Random(5)

    def train(self, seconds: int, late: str = "", by: float = LATE) -> None:
        for second in range(seconds):
            self.now += timedelta(seconds=1)
            for pci, sums in self.sums.items():
                memory = (0.5 if second % 2 else 0.3) / (1 + by * bool(late)) * self.dice.uniform(0.95, 1.05)
                idle = by / (1 + by) * (pci == late) + self.dice.uniform(0.0, 0.04)
                self.sums[pci] = GpuUse(sums.memory + memory, sums.kernels + 1 - idle, sums.held)
            self.see(self.now)

    def see(self, at: datetime) -> None:
        self.rhythms.observe(GpuUses(at, dict(self.sums)))
        self.compares.observe(self.rhythms.gang, at)


PCIS = [f"0000:{number:02x}:00.0" for number in range(0x3B, 0x43)]


def test_a_node_lists_the_address_of_a_late_gpu_and_its_end() -> None:
    node = Node(*PCIS)
    node.train(1200)
    assert node.compares.listed == []
    node.train(120, late=PCIS[3])
    (late,) = node.compares.listed
    assert (late.pci, late.ended_at) == (PCIS[3], None)
    assert late.idle == pytest.approx(0.11, abs=0.015)

    node.train(180)
    (over,) = node.compares.listed
    assert (over.pci, over.since, over.ended_at is not None) == (PCIS[3], late.since, True)


def test_the_gpus_of_the_next_job_are_compared_anew() -> None:
    node = Node(*PCIS)
    node.train(1200)
    node.train(120, late=PCIS[3])
    node.sums = {pci: sums._replace(held=0.0) for pci, sums in node.sums.items()}
    node.see(node.now + timedelta(seconds=1))
    (over,) = node.compares.listed
    assert (over.pci, over.ended_at) == (PCIS[3], node.now + timedelta(seconds=1))

    node.sums = {pci: sums._replace(held=6e10) for pci, sums in node.sums.items()}
    node.train(600, late=PCIS[3])  # it has been so since that job began
    assert node.compares.listed == [over]


def test_after_a_gpu_is_lost_the_others_are_compared_anew() -> None:
    node = Node(*PCIS)
    node.train(1200)
    node.train(120, late=PCIS[3])
    del node.sums[PCIS[7]]
    node.rhythms = GpuRhythms()  # as after a restart of the driver
    node.train(600, late=PCIS[3])

    (over,) = node.compares.listed
    assert (over.pci, over.ended_at is not None) == (PCIS[3], True)


def test_a_node_with_one_gpu_has_none_that_is_late() -> None:
    node = Node(PCIS[0])
    node.train(1200)
    node.train(300, late=PCIS[0])

    assert node.compares.listed == []


def test_gpus_that_do_not_answer_for_a_moment_are_not_late() -> None:
    node = Node(*PCIS)
    node.train(1200)
    for _ in range(30):
        sums = dict(node.sums)
        node.sums.pop(PCIS[2])
        node.train(3)
        node.sums = {**node.sums, PCIS[2]: sums[PCIS[2]]}
        node.train(3)

    assert node.compares.listed == []
