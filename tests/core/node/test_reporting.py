"""When what an agent knows is worth a write."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from healthd.core.api import Device, KernelLogCursor, Nic, NodeHealthStatus, PodEnd, PodRhythm
from healthd.core.api.health import (
    GPUS,
    MOST_WINDOWS,
    GpuClock,
    GpuClocks,
    HostBoundGpu,
    MemberState,
    PodSlowRank,
    PodWork,
)
from healthd.core.api.model import Verdict
from healthd.core.node.reporting import (
    CLOCKS_CHANGED_AFTER,
    CURSOR_AFTER,
    DETAILS_AFTER,
    GROWTH_AFTER,
    PODS_AFTER,
    REFRESH_AFTER,
    RENEW_AFTER,
    RENEWED_FOR,
    RHYTHMS_AFTER,
    SILENT_AFTER,
    SLOW_RANKS_AFTER,
    WORK_AFTER,
    WORK_ASKED_AFTER,
    WORK_CHANGED_AFTER,
    is_silent,
    write_at,
)
from tests.core.node.test_conditions import a_finding
from tests.fakes import START

STORED = NodeHealthStatus(
    verdict=Verdict.UNHEALTHY,
    findings=[a_finding()],
    boot_id="boot-1",
    cursor=KernelLogCursor(boot_id="boot-1", sequence=100, source="kmsg"),
    seen_at=START,
)


def waits(**changes: Any) -> timedelta:
    """How long after the last write a change is written."""
    return write_at(STORED, replace(STORED, seen_at=None, **changes), written=START) - START


def a_cursor(sequence: int, boot_id: str = "boot-1") -> KernelLogCursor:
    """Where reading stands."""
    return KernelLogCursor(boot_id=boot_id, sequence=sequence, source="kmsg")


def test_nothing_new_is_written_now_and_then_as_a_sign_of_life() -> None:
    assert waits() == REFRESH_AFTER


def test_an_agent_that_was_away_for_long_shows_at_once_that_it_lives_again() -> None:
    back = START + timedelta(hours=9)

    assert write_at(STORED, STORED, written=back) < back
    assert write_at(replace(STORED, seen_at=None), STORED, written=back) == back


def test_an_agent_that_lives_is_never_silent_and_one_that_is_dead_soon_is() -> None:
    slowest, busy = 1.5 * REFRESH_AFTER, timedelta(minutes=10)

    assert not is_silent(STORED, START + slowest + busy)
    assert is_silent(STORED, START + SILENT_AFTER + busy)
    assert is_silent(replace(STORED, seen_at=None), START)
    assert is_silent(None, START)


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": Verdict.HEALTHY},
        {"message": "else"},
        {"findings": []},
        {"findings": [replace(a_finding(), cleared_at=START)]},
        {"findings": [replace(a_finding(), quarantines=False)]},
        {"inventory": [Device(pci="0000:3b:00.0")]},
        {"boot_id": "boot-2"},
    ],
)
def test_what_others_act_on_is_written_at_once(change: dict[str, Any]) -> None:
    assert waits(**change) == timedelta(0)


@pytest.mark.parametrize("change", [{"live_pods": ["a"]}, {"gone_pods": [PodEnd(uid="a", at=START)]}])
def test_pods_that_begin_and_end_are_written_every_two_seconds_at_most(change: dict[str, Any]) -> None:
    assert waits(**change) == PODS_AFTER


@pytest.mark.parametrize("change", [{"lost_records": 9}, {"findings": [replace(a_finding(), count=2)]}])
def test_repeats_and_losses_wait_half_a_minute(change: dict[str, Any]) -> None:
    assert waits(**change) == DETAILS_AFTER


def test_what_counters_grow_by_waits_a_quarter_of_an_hour() -> None:
    port = Nic(pci="0000:5c:00.0", port=1, rail=0)
    stored, known = (
        replace(STORED, nics=[port]),
        replace(STORED, nics=[replace(port, growth={"ib.packet_seq_err": 12})]),
    )

    assert write_at(stored, known, written=START) == START + GROWTH_AFTER
    assert write_at(stored, replace(known, lost_records=9), written=START) == START + DETAILS_AFTER


def test_what_counters_grow_by_does_not_put_off_the_sign_of_life() -> None:
    known = replace(STORED, nics=[Nic(pci="0000:5c:00.0", port=1, growth={"ib.packet_seq_err": 12})])
    stored = replace(known, nics=[replace(known.nics[0], growth={})])
    written = START + REFRESH_AFTER - timedelta(minutes=1)

    assert write_at(stored, known, written=written) == START + REFRESH_AFTER


def test_a_port_of_another_rate_waits_half_a_minute() -> None:
    port = Nic(pci="0000:5c:00.0", port=1, rail=0, rate_gbps=400)
    stored, known = replace(STORED, nics=[port]), replace(STORED, nics=[replace(port, rate_gbps=200)])

    assert write_at(stored, known, written=START) == START + DETAILS_AFTER


def test_a_cursor_that_moved_a_little_waits_for_the_hour() -> None:
    assert waits(cursor=a_cursor(101)) == REFRESH_AFTER


def test_a_cursor_that_would_soon_be_overwritten_in_the_ring_waits_a_minute() -> None:
    assert waits(cursor=a_cursor(100 + 256)) == CURSOR_AFTER
    assert waits(cursor=a_cursor(0, boot_id="boot-2")) == CURSOR_AFTER


def test_a_cursor_rides_along_with_what_is_worth_more() -> None:
    assert waits(cursor=a_cursor(101), live_pods=["a"]) == PODS_AFTER


def rhythm(state: MemberState = MemberState.WORKING, *, uid: str = "a", period: float = 2) -> PodRhythm:
    """Of a pod."""
    since = None if state is MemberState.WORKING else START
    return PodRhythm(uid=uid, state=state, since=since, period=period, allowed=12)


@pytest.mark.parametrize("state", [MemberState.SILENT, MemberState.WAITING])
def test_a_pod_that_falls_silent_or_works_again_is_written_at_once(state: MemberState) -> None:
    works, quiet = replace(STORED, rhythms=[rhythm()]), replace(STORED, rhythms=[rhythm(state)])

    assert write_at(works, quiet, written=START) == START
    assert write_at(quiet, works, written=START) == START
    assert write_at(quiet, STORED, written=START) == START


def test_another_silence_of_the_same_pod_is_written_at_once() -> None:
    first = rhythm(MemberState.SILENT)
    stored = replace(STORED, rhythms=[first])

    later = replace(first, since=START + timedelta(minutes=1))
    assert write_at(stored, replace(STORED, rhythms=[later]), written=START) == START


@pytest.mark.parametrize("state", [MemberState.SILENT, MemberState.WAITING])
def test_a_silence_is_renewed_each_minute_while_a_gang_may_be_restarted_for_it(state: MemberState) -> None:
    stored = replace(STORED, rhythms=[rhythm(state), rhythm(uid="b")])
    reported = START + timedelta(seconds=12)
    soon, late = reported + timedelta(minutes=3), reported + RENEWED_FOR

    assert write_at(stored, stored, written=soon) == soon + RENEW_AFTER
    assert write_at(stored, stored, written=late) == START + REFRESH_AFTER


def test_a_silence_in_a_start_is_not_renewed_for_no_gang_is_restarted_for_it() -> None:
    stored = replace(STORED, rhythms=[replace(rhythm(MemberState.SILENT), is_start=True)])

    assert write_at(stored, stored, written=START + timedelta(minutes=3)) == START + REFRESH_AFTER


def test_pods_that_work_cost_no_further_write() -> None:
    assert waits(rhythms=[]) == write_at(stored := replace(STORED, rhythms=[rhythm()]), stored, written=START) - START


def test_a_rhythm_that_became_known_can_wait() -> None:
    assert waits(rhythms=[rhythm()]) == RHYTHMS_AFTER


def test_a_period_that_changed_can_wait_for_longer() -> None:
    stored = replace(STORED, rhythms=[rhythm()])

    assert write_at(stored, replace(stored, rhythms=[rhythm(period=9)]), written=START) == START + GROWTH_AFTER


def works(cores: Sequence[float]) -> NodeHealthStatus:
    """A node with one pod that used so many cores in windows one after the other."""
    end = START + timedelta(seconds=15 * len(cores))
    work = PodWork(end=end, seconds=15, cores=list(cores[-MOST_WINDOWS:]))
    return replace(STORED, rhythms=[replace(rhythm(), work=work)])


def test_the_work_of_pods_is_written_every_few_minutes() -> None:
    assert write_at(works([4.0] * 20), works([4.0] * 21), written=START) == START + WORK_AFTER


def test_a_pod_that_works_more_or_less_than_before_is_written_soon_and_for_some_minutes() -> None:
    history, waits = [4.0] * 30, list[timedelta]()
    for _ in range(30):
        stored, history = works(history), [*history, 3.6]
        waits.append(write_at(stored, works(history), written=START) - START)

    soon = [number for number, wait in enumerate(waits) if wait == WORK_CHANGED_AFTER]
    assert soon == list(range(soon[0], soon[-1] + 1))
    assert (soon[0], 4 <= len(soon) <= 12) == (2, True)
    assert set(waits) == {WORK_CHANGED_AFTER, WORK_AFTER}


def test_the_newest_minutes_are_written_as_often_as_they_are_cut_while_they_are_asked_for() -> None:
    def asked(cores: Sequence[float]) -> NodeHealthStatus:
        recent = PodWork(end=START, seconds=5, cores=list(cores))
        return replace(STORED, rhythms=[replace(each, recent=recent) for each in works([4.0] * 20).rhythms])

    assert write_at(works([4.0] * 20), asked([4.0]), written=START) == START + WORK_ASKED_AFTER
    assert write_at(asked([4.0]), asked([4.0, 4.0]), written=START) == START + WORK_ASKED_AFTER
    assert write_at(asked([4.0]), works([4.0] * 20), written=START) == START + GROWTH_AFTER


def test_a_rank_that_became_slow_is_written_within_seconds_and_so_is_its_end() -> None:
    slow = PodSlowRank(
        rank=13, pid=7, since=START, slower=0.2, ran=0.6, starved=0.0, peers_ran=0.5, peers_starved=0.0, confidence=0.9
    )

    def known(*ranks: PodSlowRank) -> NodeHealthStatus:
        return replace(STORED, rhythms=[replace(each, slow_ranks=list(ranks)) for each in works([4.0] * 20).rhythms])

    assert write_at(known(), known(slow), written=START) == START + SLOW_RANKS_AFTER
    ended = replace(slow, ended_at=START)
    assert write_at(known(slow), known(ended), written=START) == START + SLOW_RANKS_AFTER
    assert write_at(known(slow), known(slow), written=START) == START + REFRESH_AFTER


def test_a_gpu_that_others_wait_for_is_written_within_seconds_and_so_is_its_end() -> None:
    late = HostBoundGpu(pci="0000:3b:00.0", since=START, slower=0.1, idle=0.11, peers_idle=0.02, confidence=0.75)

    def known(*gpus: HostBoundGpu) -> NodeHealthStatus:
        return replace(STORED, rhythms=[replace(rhythm(uid=GPUS), host_bound_gpus=list(gpus))])

    assert write_at(known(), known(late), written=START) == START + SLOW_RANKS_AFTER
    assert write_at(known(late), known(replace(late, ended_at=START)), written=START) == START + SLOW_RANKS_AFTER
    assert write_at(known(late), known(late), written=START) == START + REFRESH_AFTER


def clocked(mhz: float, seconds: int = 0) -> NodeHealthStatus:
    """A node of whose two GPUs one runs at *mhz*."""
    end = START + timedelta(seconds=seconds)
    gpus = [GpuClock(pci="0000:3b:00.0", mhz=mhz), GpuClock(pci="0000:af:00.0", mhz=1755)]
    clocks = GpuClocks(begin=START, end=end, usual=1755, highest=1980, gpus=gpus)
    return replace(STORED, rhythms=[replace(rhythm(uid=GPUS), clocks=clocks)])


@pytest.mark.parametrize(
    ("before", "now", "wait"),
    [
        (clocked(1755), clocked(1755), REFRESH_AFTER),
        (clocked(1755), clocked(1755, seconds=15), WORK_AFTER),
        (clocked(1755), clocked(1740, seconds=15), WORK_AFTER),
        (clocked(1755), clocked(1610, seconds=15), CLOCKS_CHANGED_AFTER),
        (clocked(1610), clocked(1755, seconds=15), CLOCKS_CHANGED_AFTER),
        (works([4.0] * 20), clocked(1755), CLOCKS_CHANGED_AFTER),
        (clocked(1755), works([4.0] * 20), WORK_AFTER),
    ],
    ids=["the same", "newer", "a bit slower", "slower", "faster", "known now", "not known any more"],
)
def test_a_gpu_that_runs_slower_or_faster_is_written_soon(
    before: NodeHealthStatus, now: NodeHealthStatus, wait: timedelta
) -> None:
    assert write_at(before, now, written=START) == START + wait


def test_the_same_work_costs_no_write() -> None:
    assert write_at(works([4.0] * 20), works([4.0] * 20), written=START) == START + REFRESH_AFTER
