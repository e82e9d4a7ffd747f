"""Asking all witnesses of a silence once, of real processes, and what is reported when they do not answer."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import Pod
from healthd.core.hang.history import ActivityHistory, RankHistory
from healthd.core.hang.silence import GangRhythm, Silence
from healthd.core.hang.suspects.evidence import Activity, RankEvidence, TaskState
from healthd.core.hang.suspects.ras import RasRank
from healthd.local.hang import evidence as hang_evidence
from healthd.local.hang.evidence import HangLocator, activities_of, dumps_in
from healthd.local.hang.record import HangRecord
from healthd.local.processes.main_process import main_process
from healthd.local.processes.runner import ProcessRunner, RunningRank
from healthd.probes.hang.gather import LocalRank
from tests.builders import a_pod
from tests.core.hang.sampled import Gang, computes, sleeps, steps
from tests.fakes import START, counting_uids
from tests.local.helpers import in_background, running, shell, until, witness_at
from tests.probes.hang.dumps import a_dump, an_entry, pickled

SILENCE = Silence(since=START, seen_at=START, allowed=12, period=2, members=())
Keep = Callable[[Sequence[RankEvidence]], None]


class Reported:
    """What a locator reports."""

    def __init__(self) -> None:
        self.records: list[HangRecord] = []

    async def __call__(self, silence: Silence, record: HangRecord) -> None:
        assert record.since == silence.since
        self.records.append(record)

    @property
    def reasons(self) -> list[str]:
        return [record.location.reason for record in self.records]


@pytest.fixture
def reported() -> Reported:
    return Reported()


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Three processes that wait."""
    started = [subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in range(3)]
    yield started
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster.open(None, clock=SystemClock(), new_uid=counting_uids()) as embedded:
        yield embedded


@pytest.fixture
def no_py_spy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def ranks_of(processes: Sequence[subprocess.Popen[bytes]], log: str = "") -> list[RunningRank]:
    return [
        RunningRank(f"uid-{n}", str(n), 0, os.getpid(), each.pid, f"slot-{n}", log) for n, each in enumerate(processes)
    ]


def stop(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


@pytest.mark.usefixtures("no_py_spy")
class TestRealProcesses:
    async def test_a_stopped_rank_is_named_without_py_spy_torch_and_nccl(
        self, reported: Reported, processes: list[subprocess.Popen[bytes]]
    ) -> None:
        stop(processes[1])
        await HangLocator(reported).locate(SILENCE, ranks_of(processes), {"0": Activity(cpu=0.5)})

        (record,) = reported.records
        assert [(suspect.rank, suspect.node) for suspect in record.location.suspects] == [(1, "slot-1")]
        assert record.ranks[0].activity == Activity(cpu=0.5)

    async def test_the_picture_of_the_last_minutes_is_kept_also_without_an_answer(self, reported: Reported) -> None:
        history = ActivityHistory(start=START, interval=2, ranks=(RankHistory(0, "70"),))
        await HangLocator(reported).locate(SILENCE, [], {}, history)

        assert [record.history for record in reported.records] == [history]

    async def test_dumps_of_the_flight_recorder_are_read_where_the_owner_asked_for_them(
        self, reported: Reported, processes: list[subprocess.Popen[bytes]], tmp_path: Path
    ) -> None:
        for number, entries in enumerate([2, 2, 1]):
            dump = a_dump(*(an_entry(n + 1, pending=n + 1 == entries == 2) for n in range(entries)))
            (tmp_path / f"dump_{number}").write_bytes(pickled(dump))
        dumps = dumps_in({"TORCH_FR_DUMP_TEMP_FILE": "dump_"}, tmp_path)
        await HangLocator(reported, dumps=dumps).locate(SILENCE, ranks_of(processes), {})

        assert [suspect.rank for suspect in reported.records[0].location.suspects] == [2]

    async def test_a_number_that_belongs_to_another_process_by_now_is_not_looked_at(
        self, reported: Reported, processes: list[subprocess.Popen[bytes]]
    ) -> None:
        ranks = [rank._replace(shim=1) for rank in ranks_of(processes)]
        await HangLocator(reported).locate(SILENCE, ranks, {})

        assert reported.reasons == ["the processes of the ranks were not found"]

    async def test_a_log_that_is_a_pipe_holds_nothing(
        self, reported: Reported, processes: list[subprocess.Popen[bytes]], tmp_path: Path
    ) -> None:
        os.mkfifo(tmp_path / "pipe")
        await HangLocator(reported).locate(SILENCE, ranks_of(processes, str(tmp_path / "pipe")), {})

        assert [each.process and each.process.state for each in reported.records[0].ranks] == [TaskState.SLEEPING] * 3
        assert any("not a regular file" in trouble for trouble in reported.records[0].ranks[0].troubles)


WAITING = 'echo step 7; sleep 60 & echo ready > "$1"; wait'


@pytest.mark.usefixtures("no_py_spy")
async def test_a_rank_of_a_run_that_its_shell_started_is_named(
    reported: Reported, tmp_path: Path, cluster: EmbeddedCluster
) -> None:
    runner = ProcessRunner(cluster, SystemClock(), log_dir=tmp_path / "logs", environ={"PATH": "/usr/bin:/bin"})
    with witness_at(tmp_path / "witness") as witness:
        async with in_background(runner):
            for number in range(3):
                container = running(shell(WAITING, witness.path))
                await cluster.create(a_pod(f"rank-{number}", node=f"slot-{number}", index=number, container=container))
            for number in range(3):
                await until(cluster, Pod, f"rank-{number}", lambda pod: pod.status.phase == "Running", "default")
                await witness.hear()
            ranks = runner.running()
            child = main_process(ranks[1].pid, ranks[1].shim)
            os.kill(child, signal.SIGSTOP)
            await HangLocator(reported).locate(SILENCE, ranks, {})

    (record,) = reported.records
    assert [(suspect.rank, suspect.node) for suspect in record.location.suspects] == [(1, "slot-1")]
    assert record.ranks[1].process is not None
    assert (record.ranks[1].process.pid, record.ranks[1].log) == (child, ("step 7",))
    assert child != ranks[1].pid


@pytest.mark.usefixtures("no_py_spy")
async def test_what_ras_says_of_a_rank_is_a_witness(
    reported: Reported, processes: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = RasRank((), "dead")
    monkeypatch.setattr(hang_evidence, "ask_nccl", lambda pids, **_: {2: lost} if len(pids) == 3 else {})
    await HangLocator(reported).locate(SILENCE, ranks_of(processes), {})

    (suspect,) = reported.records[0].location.suspects
    assert (suspect.rank, suspect.witnesses[0].words) == (2, "does not answer over the RAS network: dead")


class TestNoAnswer:
    @pytest.fixture
    def held(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
        """A file system that holds the question until the event is set, after the states of two ranks were read."""
        release = threading.Event()

        def gather(ranks: Sequence[LocalRank], *, keep: Keep, **_: object) -> list[RankEvidence]:
            keep([RankEvidence(each.rank, log=("x",)) for each in ranks[:2]])
            release.wait(20)
            keep([RankEvidence(each.rank, log=("late",)) for each in ranks])
            return []

        monkeypatch.setattr(hang_evidence, "gather", gather)
        yield release
        release.set()

    async def test_at_the_deadline_the_vote_is_on_what_was_read(
        self, reported: Reported, held: threading.Event, processes: list[subprocess.Popen[bytes]]
    ) -> None:
        locator = HangLocator(reported, deadline_s=0.2)
        async with asyncio.timeout(5):
            await locator.locate(SILENCE, ranks_of(processes), {})
        held.set()

        assert [(each.rank, each.log) for each in reported.records[0].ranks] == [(0, ("x",)), (1, ("x",))]
        assert [reason.partition(";")[0] for reason in reported.reasons] == [
            "no rank differs from the others in what is known of them"
        ]

    @pytest.mark.usefixtures("held")
    async def test_where_a_question_is_held_no_second_thread_is_added(
        self, reported: Reported, processes: list[subprocess.Popen[bytes]]
    ) -> None:
        locator = HangLocator(reported, deadline_s=0.1)
        for _ in range(3):
            await locator.locate(SILENCE, ranks_of(processes), {})

        threads = [thread for thread in threading.enumerate() if thread.name == "hang evidence"]
        assert len(threads) == 1
        assert [reason[:24] for reason in reported.reasons[1:]] == ["an earlier question has "] * 2

    @pytest.mark.usefixtures("held")
    async def test_a_cancelled_question_is_reported(
        self, reported: Reported, processes: list[subprocess.Popen[bytes]]
    ) -> None:
        asking = asyncio.create_task(HangLocator(reported).locate(SILENCE, ranks_of(processes), {}))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

        assert reported.reasons == ["a rank ended or worked again while it was asked"]

    async def test_a_question_that_fails_is_a_reason_and_no_error(
        self, reported: Reported, monkeypatch: pytest.MonkeyPatch, processes: list[subprocess.Popen[bytes]]
    ) -> None:
        def broken(*_: object, **__: object) -> list[RankEvidence]:
            raise MemoryError("no room \udcff\x1b[2J")

        monkeypatch.setattr(hang_evidence, "gather", broken)
        await HangLocator(reported).locate(SILENCE, ranks_of(processes), {})

        assert reported.reasons == ["the witnesses could not be asked: no room \\udcff\\u001b[2J"]

    async def test_a_question_to_nccl_that_fails_loses_nothing_else(
        self, reported: Reported, monkeypatch: pytest.MonkeyPatch, processes: list[subprocess.Popen[bytes]]
    ) -> None:
        def broken(*_: object, **__: object) -> dict[int, RasRank]:
            raise MemoryError("no room")

        monkeypatch.setattr(hang_evidence, "ask_nccl", broken)
        stop(processes[0])
        await HangLocator(reported).locate(SILENCE, ranks_of(processes), {})

        assert [suspect.rank for suspect in reported.records[0].location.suspects] == [0]

    async def test_a_vote_that_fails_is_a_reason_and_no_error(
        self, reported: Reported, monkeypatch: pytest.MonkeyPatch, processes: list[subprocess.Popen[bytes]]
    ) -> None:
        monkeypatch.setattr(hang_evidence, "vote", lambda _: 1 // 0)
        await HangLocator(reported).locate(SILENCE, ranks_of(processes), {})

        assert reported.reasons[0].startswith("the vote failed: ZeroDivisionError")


def test_a_rank_without_samples_after_the_silence_has_no_activity() -> None:
    rhythm = GangRhythm()
    rhythm.observe({"0": None}, START)

    assert activities_of(rhythm, START) == {}


def test_a_rank_computes_that_is_awake_and_usually_sleeps_while_it_waits() -> None:
    gang = Gang(2)
    gang.run(120, steps(ran=0.7))
    since = gang.now
    gang.run(15, computes, sleeps)

    known = activities_of(gang.rhythm, since)
    assert [known[rank].computes for rank in ("0", "1")] == [True, False]


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({}, ""),
        ({"TORCH_FR_DUMP_TEMP_FILE": ""}, ""),
        ({"TORCH_FR_DUMP_TEMP_FILE": "/tmp/fr_", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/tmp/old_"}, "/tmp/fr_"),
        ({"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "old_"}, "/work/old_"),
    ],
)
def test_dumps_are_looked_for_where_the_variables_say(environ: dict[str, str], path: str) -> None:
    assert dumps_in(environ, Path("/work")) == path
