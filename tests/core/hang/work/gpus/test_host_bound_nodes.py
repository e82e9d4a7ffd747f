"""Nodes all of whose GPUs wait for their host: which of a gang are named, by the windows that agents publish."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import timedelta

import pytest
from msgspec.structs import replace

from healthd.core.api.health import MOST_WINDOWS, GpuWork
from healthd.core.hang.straggler import ShownBy, Straggler
from healthd.core.hang.work.gpus.host_bound_nodes import HostBoundNodes, RankGpus
from healthd.core.hang.work.work_share import WorkShare
from healthd.core.node.reporting import WORK_AFTER
from tests.fakes import START

LENGTH = 15
MINUTE = timedelta(minutes=1)
TRAINS = WorkShare(0.4, own_waits=0.02)
LATE = {5: WorkShare(0.36, own_waits=0.12)}
WAITS = WorkShare(0.36, own_waits=0.02)


class Gang:
    """Eight nodes, each with one pod that has all of its GPUs. Their agents write every few minutes, one by one."""

    def __init__(self, nodes: int = 8, minutes: int = 30) -> None:
        self.now, self.dice, self.number = START, random.Random(4), 0
        self.windows: dict[str, list[WorkShare]] = {f"rank-{number}": [] for number in range(nodes)}
        self.published: dict[str, RankGpus] = {}
        self.nodes: HostBoundNodes | None = None
        assert self.train(minutes * MINUTE) == []

    def train(
        self, time: timedelta, odd: Mapping[int, WorkShare] | None = None, others: WorkShare = TRAINS
    ) -> list[Straggler]:
        """What changes while some nodes do something else than the *others*."""
        end, found = self.now + time, list[Straggler]()
        while self.now < end:
            self.now += timedelta(seconds=LENGTH)
            self.number += 1
            for number, (name, windows) in enumerate(self.windows.items()):
                share = (odd or {}).get(number, others)
                noise = self.dice.gauss(0, 0.005)
                windows.append(share._replace(ran=share.ran + noise, own_waits=max(0.0, share.own_waits + noise)))
                if (self.number + number) % (WORK_AFTER // timedelta(seconds=LENGTH)) == 0:
                    self._publish(name)
            found += self.compare() if len(self.published) == len(self.windows) else []
        return found

    def compare(self) -> list[Straggler]:
        if self.nodes is None or not self.nodes.is_of(self.published):
            self.nodes = HostBoundNodes(self.published)
        return self.nodes.observe(self.published, self.now)

    def lead(self) -> None:
        """Another controller leads, and takes over what is on record."""
        assert self.nodes
        present, self.nodes = self.nodes.present, HostBoundNodes(self.published)
        for each in present:
            self.nodes.adopt(each)

    def _publish(self, name: str) -> None:
        newest = self.windows[name][-MOST_WINDOWS:]
        memory, idle = [each.ran for each in newest], [each.own_waits for each in newest]
        work = GpuWork(end=self.now, seconds=LENGTH, memory=memory, idle=idle)
        self.published[name] = RankGpus(f"uid-{name}", work)


def test_a_node_whose_gpus_all_begin_to_wait_for_their_host_is_named() -> None:
    gang = Gang()
    (late,) = gang.train(7 * MINUTE, LATE, WAITS)

    assert (late.rank, late.shown_by, late.is_only_reported) == ("rank-5", ShownBy.HOST_BOUND, True)
    assert late.idle - late.peers_idle == pytest.approx(0.1, abs=0.01)
    assert late.since == START + 30 * MINUTE


def test_it_is_over_when_it_keeps_up() -> None:
    gang = Gang()
    gang.train(7 * MINUTE, LATE, WAITS)
    kept_up = gang.now
    (over,) = gang.train(7 * MINUTE)

    assert (over.rank, over.ended_at) == ("rank-5", kept_up)
    assert gang.nodes
    assert gang.nodes.present == []


def test_nodes_that_all_wait_for_their_hosts_are_not_late() -> None:
    assert Gang().train(20 * MINUTE, others=LATE[5]) == []


def test_a_node_that_is_done_early_holds_up_nothing() -> None:
    assert Gang().train(20 * MINUTE, {5: WorkShare(0.36, own_waits=0.12)}) == []


def test_another_controller_reports_it_no_second_time_and_reports_its_end() -> None:
    gang = Gang()
    gang.train(7 * MINUTE, LATE, WAITS)
    gang.lead()
    assert gang.train(20 * MINUTE, LATE, WAITS) == []

    (over,) = gang.train(7 * MINUTE)
    assert (over.rank, over.ended_at is not None) == ("rank-5", True)


def test_an_evaluation_says_nothing_of_one_that_another_controller_reported() -> None:
    gang = Gang()
    gang.train(7 * MINUTE, LATE, WAITS)
    gang.lead()
    gang.train(7 * MINUTE, LATE, WAITS)

    assert gang.train(2 * MINUTE, {0: TRAINS}, WorkShare(0.0)) == []
    assert gang.train(7 * MINUTE, LATE, WAITS) == []


def test_windows_that_end_in_the_time_to_come_and_lists_that_do_not_fit_count_as_nothing() -> None:
    gang = Gang()
    gang.train(MINUTE)
    known = gang.published["rank-5"]
    gang.published["rank-5"] = known._replace(work=replace(known.work, end=gang.now + 5 * MINUTE))
    assert gang.compare() == []
    gang.published["rank-5"] = known._replace(work=replace(known.work, idle=[1.0]))

    assert gang.compare() == []


def test_other_pods_and_windows_of_another_length_are_another_gang() -> None:
    gang = Gang()
    assert gang.nodes
    known = gang.published["rank-5"]

    assert not gang.nodes.is_of({**gang.published, "rank-5": known._replace(pod="another")})
    assert not gang.nodes.is_of({**gang.published, "rank-5": known._replace(work=replace(known.work, seconds=30))})


def test_after_the_clock_was_set_back_it_is_ahead() -> None:
    gang = Gang()
    assert gang.nodes

    assert not gang.nodes.is_ahead(gang.now)
    assert gang.nodes.is_ahead(gang.now - 5 * MINUTE)
