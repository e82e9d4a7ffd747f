"""Stragglers of a run: when they are reported, what is logged, notified and recorded of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from healthd.cluster.embedded import EmbeddedCluster
from healthd.controller.checkpoints.mounted import FileCheckpoints
from healthd.core.api import Job, ObjectMeta
from healthd.core.api.health import GpuClock, GpuClocks
from healthd.core.config import HangPolicy
from healthd.core.config.gangs import StragglerMode
from healthd.core.hang.samples import Usage
from healthd.core.hang.silence import GangRhythm
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.straggler_text import straggler_lines
from healthd.core.recovery.hangs.gang_stragglers import KEPT
from healthd.gangs.annotations import metadata_of_root
from healthd.local.gang import NAMESPACE, RunSpec
from healthd.local.hang.stragglers import StragglerRecord, StragglerWatch
from healthd.local.reports.lines import sentence
from healthd.local.reports.notify import Facts, variables
from healthd.local.reports.run_log import RunLog
from tests.builders import a_job
from tests.fakes import START, ManualClock, counting_uids

SECOND = timedelta(seconds=1)
SLOW = Straggler(
    rank="2",
    slower=0.2,
    since=START,
    seen_at=START + timedelta(minutes=2),
    ran=0.8,
    starved=0.0,
    peers_ran=0.6,
    peers_starved=0.0,
    confidence=0.9,
)
OVER = replace(SLOW, ended_at=START + timedelta(minutes=9))


def stragglers_of(annotations: Mapping[str, str]) -> Sequence[Straggler]:
    """Those on record of a root."""
    return metadata_of_root("Job", ObjectMeta(name="train", annotations=dict(annotations))).stragglers


class Run:
    """A run whose log is read."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path) -> None:
        self.notified: list[Facts] = []
        spec = RunSpec(
            name="train", command=["true"], nproc=4, checkpoint=folder / "c", state=folder / "s", working_dir=folder
        )
        self.cluster = cluster
        self.log = RunLog(spec, cluster, ManualClock(), FileCheckpoints(), None, self.notified.append)

    async def record(self) -> Sequence[Straggler]:
        return stragglers_of((await self.cluster.get(Job, "train", NAMESPACE)).metadata.annotations)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with EmbeddedCluster.open(None, clock=ManualClock(), new_uid=counting_uids()) as cluster:
        yield Run(cluster, tmp_path)


async def test_a_straggler_is_logged_notified_and_recorded_and_so_is_its_end_but_for_the_notification(run: Run) -> None:
    await run.cluster.create(a_job("train", namespace=NAMESPACE))
    with capture_logs() as logs:
        await run.log.straggler(SLOW)
        await run.log.straggler(OVER)

    assert [(each["event"], each["log_level"]) for each in logs] == [
        ("run.straggler", "warning"),
        ("run.straggler_over", "info"),
    ]
    assert sentence(logs[0]).startswith("rank 2 is about 20% slower than its peers")
    assert sentence(logs[1]) == "rank 2 keeps up with the others again, after 9 minutes"
    (facts,) = run.notified
    assert (variables(facts)["HEALTHD_EVENT"], variables(facts)["HEALTHD_SUSPECTS"]) == ("straggler", "2")
    assert await run.record() == (OVER,)


async def test_a_straggler_that_ends_because_the_ranks_are_stopped_is_recorded_without_a_line(run: Run) -> None:
    await run.cluster.create(a_job("train", namespace=NAMESPACE))
    with capture_logs() as logs:
        await run.log.straggler(replace(OVER, was_stopped=True))

    assert logs == []
    assert [each.was_stopped for each in await run.record()] == [True]


async def test_a_run_whose_record_is_gone_is_notified_all_the_same(run: Run) -> None:
    await run.log.straggler(SLOW)

    assert len(run.notified) == 1


def test_only_the_newest_are_kept() -> None:
    record = StragglerRecord()
    texts = [record.encoded_with(replace(SLOW, since=START + n * SECOND)) for n in range(3 * KEPT)]

    found = stragglers_of({"healthd.dev/stragglers": texts[-1]})
    assert [each.since for each in found] == [START + n * SECOND for n in range(2 * KEPT, 3 * KEPT)]


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"rank": 3}]', "null", "[" * 10_000])
def test_a_record_that_cannot_be_read_is_none(text: str) -> None:
    assert stragglers_of({"healthd.dev/stragglers": text}) == ()


async def reported(policy: HangPolicy, *, hangs_after: int = 300) -> list[Straggler]:
    """
    Five minutes of four ranks, of which rank 2 works more than the others, and then a stop. They hang after so many
    seconds.
    """
    gang, found = GangRhythm(), list[Straggler]()

    async def report(straggler: Straggler) -> None:
        found.append(straggler)

    watch, at = StragglerWatch(policy, report), START
    for second in range(300):
        at = START + second * SECOND
        gang.observe({str(rank): _usage(second, 0.8 if rank == 2 else 0.5) for rank in range(4)}, at)
        hangs_since = START + hangs_after * SECOND if second >= hangs_after else None
        await watch.observe(gang, at, hangs_since=hangs_since)
    await watch.restart(at)
    return found


async def test_a_slow_gpu_of_a_run_is_reported_once_and_ends_when_the_ranks_are_stopped() -> None:
    gang, found = GangRhythm(), list[Straggler]()

    async def report(straggler: Straggler) -> None:
        found.append(straggler)

    watch, at = StragglerWatch(HangPolicy(), report), START
    clocks = {
        str(rank): GpuClocks(
            begin=START, end=START, usual=mhz, highest=1980, gpus=[GpuClock(pci=f"0000:3b:00.{rank}", mhz=mhz)]
        )
        for rank, mhz in enumerate((1755, 1740, 1404, 1755))
    }
    for second in range(300):
        at = START + second * SECOND
        gang.observe({str(rank): _usage(second, 0.5) for rank in range(4)}, at)
        await watch.observe(gang, at, clocks=clocks)
    await watch.restart(at)

    begun, ended = found
    assert (begun.rank, begun.gpu) == ("2", "0000:3b:00.2")
    assert begun.slower == pytest.approx(0.25)
    assert (ended.rank, ended.since, ended.was_stopped) == ("2", begun.since, True)


async def test_a_rank_whose_gpu_waits_for_its_host_is_reported_once_and_ends_when_the_ranks_are_stopped() -> None:
    """Its main thread works more than those of its peers from the same moment on, which is the same straggler."""
    gang, found = GangRhythm(), list[Straggler]()

    async def report(straggler: Straggler) -> None:
        found.append(straggler)

    watch, at, used = StragglerWatch(HangPolicy(), report), START, {rank: Usage(states="S") for rank in range(8)}
    for second in range(1500):
        at, is_slow = START + second * SECOND, second >= 1200
        for rank, usage in used.items():
            more = 0.2 * (is_slow and rank == 5)
            used[rank] = usage._replace(
                cpu=usage.cpu + 0.3 + 0.1 * (second % 3),
                switches=usage.switches + 40 + 4 * (second % 3),
                ran=usage.ran + 0.5 + more,
                gpu=usage.gpu + (0.3 if is_slow else 0.4),
                kernels=usage.kernels + 0.98 - more,
            )
        gang.observe({str(rank): usage for rank, usage in used.items()}, at)
        await watch.observe(gang, at)
    await watch.restart(at)

    begun, ended = found
    assert (begun.rank, begun.ended_at) == ("5", None)
    assert (ended.rank, ended.since, ended.was_stopped) == ("5", begun.since, True)


async def test_a_rank_whose_gpu_alone_shows_that_it_is_late_is_reported_too() -> None:
    gang, found = GangRhythm(), list[Straggler]()

    async def report(straggler: Straggler) -> None:
        found.append(straggler)

    watch, used = StragglerWatch(HangPolicy(), report), {rank: Usage(states="S") for rank in range(8)}
    for second in range(1350):
        is_slow = second >= 1200
        for rank, usage in used.items():  # all of their main threads poll
            used[rank] = usage._replace(
                cpu=usage.cpu + 1.0,
                ran=usage.ran + 1.0,
                gpu=usage.gpu + (0.3 if is_slow else 0.4) + 0.1 * (second % 2),
                kernels=usage.kernels + 0.98 - 0.2 * (is_slow and rank == 5),
            )
        gang.observe({str(rank): usage for rank, usage in used.items()}, START + second * SECOND)
        await watch.observe(gang, START + second * SECOND)

    (late,) = found
    assert (late.rank, late.gpu, late.ended_at) == ("5", "", None)
    assert late.idle == pytest.approx(0.22, abs=0.01)


def _usage(second: int, share: float) -> Usage:
    rate = 1 + 0.1 * (second % 3)
    return Usage(cpu=0.3 * rate * second, switches=40 * rate * second, ran=share * second, states="S")


async def test_a_slow_rank_of_a_run_is_reported_once_and_ends_when_the_ranks_are_stopped() -> None:
    begun, ended = await reported(HangPolicy())

    assert (begun.rank, begun.ended_at) == ("2", None)
    assert (ended.rank, ended.since, ended.was_stopped) == ("2", begun.since, True)


async def test_a_slow_rank_of_a_run_that_hangs_until_it_is_stopped_was_slow_until_the_hang_began() -> None:
    _, ended = await reported(HangPolicy(), hangs_after=240)

    assert (ended.rank, ended.ended_at, ended.was_stopped) == ("2", START + 240 * SECOND, True)
    assert straggler_lines([ended])[0].endswith("; then no rank worked any more, until all were stopped")


async def test_a_slow_rank_of_a_run_that_hung_for_a_while_is_slow_until_the_stop() -> None:
    gang, found = GangRhythm(), list[Straggler]()

    async def report(straggler: Straggler) -> None:
        found.append(straggler)

    watch, at = StragglerWatch(HangPolicy(), report), START
    for second in range(400):
        at = START + second * SECOND
        gang.observe({str(rank): _usage(second, 0.8 if rank == 2 else 0.5) for rank in range(4)}, at)
        hangs_since = START + 300 * SECOND if 300 <= second < 330 else None
        await watch.observe(gang, at, hangs_since=hangs_since)
    await watch.restart(at)

    assert [(each.ended_at, each.hung) for each in found] == [(None, False), (at, False)]


async def test_nothing_is_reported_where_the_configuration_says_so_or_the_run_hangs() -> None:
    assert await reported(HangPolicy(stragglers=StragglerMode.IGNORE)) == []
    assert await reported(HangPolicy(), hangs_after=0) == []
