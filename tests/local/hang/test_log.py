"""What a run logs, notifies and records of a hang."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from healthd.cluster.embedded import EmbeddedCluster
from healthd.controller.checkpoints.mounted import FileCheckpoints
from healthd.core.api import ANNOTATION_PROGRESS, Cause, HangSuspect, Job, Recovery
from healthd.core.api.health import MemberState
from healthd.core.api.model import CauseKind
from healthd.core.config.gangs import HangPolicy, SilenceMode
from healthd.core.hang.silence import Silence, SilentMember
from healthd.core.hang.suspects.evidence import Frame, ProcessEvidence, RankEvidence, Stack, TaskState
from healthd.core.hang.suspects.vote import vote
from healthd.core.recovery.progress import NO_PROGRESS, Progress
from healthd.gangs.job import read_job
from healthd.local.gang import NAMESPACE, RunSpec
from healthd.local.hang.record import HangRecord, record_of
from healthd.local.reports.lines import sentence
from healthd.local.reports.notify import Facts, variables
from healthd.local.reports.run_log import RunLog
from tests.builders import a_job, a_recovery
from tests.fakes import START, ManualClock, counting_uids

MEMBER = SilentMember(rank="0", state=MemberState.SILENT, last_active=START, states="S")
SILENCE = Silence(
    since=START, seen_at=START + timedelta(seconds=12), allowed=12, period=2, members=(MEMBER,), worked=36000
)
RESTARTS = HangPolicy(silence=SilenceMode.RESTART)
SAVED = Progress(step=9, intervals=[60, 60, 60])
SLEEPS, STOPPED = (ProcessEvidence(state) for state in (TaskState.SLEEPING, TaskState.STOPPED))


class Run:
    """A run whose log is read."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path) -> None:
        self.notified: list[Facts] = []
        spec = RunSpec(
            name="train", command=["true"], nproc=4, checkpoint=folder / "c", state=folder / "s", working_dir=folder
        )
        self.cluster = cluster
        self.log = RunLog(spec, cluster, ManualClock(), FileCheckpoints(), None, self.notified.append)

    async def begin(self, progress: Progress = NO_PROGRESS) -> None:
        notes = {ANNOTATION_PROGRESS: msgspec.json.encode(progress).decode()}
        await self.cluster.create(a_job("train", namespace=NAMESPACE, annotations=notes))

    async def record(self) -> HangRecord | None:
        job = await self.cluster.get(Job, "train", NAMESPACE)
        return record_of(job.metadata.annotations, read_job(job).silence)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with EmbeddedCluster.open(None, clock=ManualClock(), new_uid=counting_uids()) as cluster:
        yield Run(cluster, tmp_path)


def a_record(*processes: ProcessEvidence) -> HangRecord:
    ranks = tuple(RankEvidence(rank, node=f"slot-{rank}", process=each) for rank, each in enumerate(processes))
    return HangRecord(since=START, location=vote(ranks), ranks=ranks)


async def test_the_suspect_is_logged_notified_and_recorded(run: Run) -> None:
    await run.begin()
    record = a_record(SLEEPS, SLEEPS, STOPPED, SLEEPS)
    with capture_logs() as logs:
        await run.log.silent(SILENCE, policy=HangPolicy())
        await run.log.located(SILENCE, record, policy=HangPolicy())

    named = "rank 2 on slot-2 holds up the others (90% sure): its process is stopped"
    assert [event["event"] for event in logs] == ["run.hangs", "run.hang_located"]
    assert sentence(logs[1]) == named
    (facts,) = run.notified
    assert variables(facts)["HEALTHD_SUSPECTS"] == "2"
    assert str(facts["message"]).endswith(named)
    assert "--hang restart" in str(facts["hint"])
    assert await run.record() == record


@pytest.mark.parametrize(
    ("progress", "states", "when"),
    [
        (
            NO_PROGRESS,
            "S",
            "it is not restarted for that: its usual pauses are known once 4 of its saves have been seen",
        ),
        (SAVED, "S", "it is restarted when that has lasted for 600 s (hang.floor)"),
        (SAVED, "T", "it is restarted"),
        (SAVED, "Z", "it is restarted"),
    ],
)
async def test_it_is_said_when_the_restart_comes(run: Run, progress: Progress, states: str, when: str) -> None:
    await run.begin(progress)
    silence = msgspec.structs.replace(SILENCE, members=(msgspec.structs.replace(MEMBER, states=states), MEMBER))
    with capture_logs() as logs:
        await run.log.silent(silence, policy=RESTARTS)
        await run.log.located(silence, a_record(SLEEPS, SLEEPS, STOPPED, SLEEPS), policy=RESTARTS)

    assert (logs[0]["note"], run.notified[0]["hint"]) == (when, when)
    assert logs[1]["note"] == "", "it is not said again"


async def test_a_state_that_cannot_be_read_is_no_word_that_nothing_is_done(run: Run) -> None:
    with capture_logs() as logs:
        await run.log.silent(SILENCE, policy=RESTARTS)

    assert "the state of the run cannot be read" in str(logs[0]["note"])


async def test_it_is_said_when_two_witnesses_make_it_a_reason_for_a_restart(run: Run) -> None:
    await run.begin(SAVED)
    silence = msgspec.structs.replace(SILENCE, worked=900.0)
    waits, reads = (Stack((Frame(name, file),)) for name, file in (("wait", "torch/distributed/c.py"), ("row", "r.py")))
    record = a_record(*[STOPPED if rank == 2 else SLEEPS for rank in range(4)])
    ranks = tuple(replace(each, stack=reads if each.rank == 2 else waits) for each in record.ranks)
    with capture_logs() as logs:
        await run.log.silent(silence, policy=RESTARTS)
        await run.log.located(silence, HangRecord(since=START, location=vote(ranks), ranks=ranks), policy=RESTARTS)

    assert "unless two witnesses name a rank" in str(logs[0]["note"])
    assert logs[1]["note"] == "it is restarted when that has lasted for 600 s (hang.floor)"
    assert sentence(logs[1]).endswith(f"\n{logs[1]['note']}")


async def test_a_slot_that_was_suspected_before_is_named(run: Run) -> None:
    await run.begin()
    hang = Cause(kind=CauseKind.HANG, message="it hung", at=START, suspects=[HangSuspect(member="2", node="slot-2")])
    await run.cluster.create(a_recovery("train-1", namespace=NAMESPACE))
    status = {"status": {"causes": msgspec.to_builtins([hang])}}
    await run.cluster.patch(Recovery, "train-1", status, namespace=NAMESPACE, subresource="status")
    with capture_logs() as logs:
        await run.log.located(SILENCE, a_record(SLEEPS, SLEEPS, STOPPED, SLEEPS), policy=RESTARTS)

    assert "suspected before in hangs that led to a restart: slot-2 (1 time)" in str(logs[0]["text"])


async def test_without_a_suspect_the_notification_has_the_reason(run: Run) -> None:
    await run.begin()
    with capture_logs() as logs:
        await run.log.located(SILENCE, a_record(SLEEPS, SLEEPS), policy=RESTARTS)

    assert logs[0]["text"] == (
        "no rank is named: no rank differs from the others in what is known of them; "
        "no Python stack was read, which would tell most (it needs py-spy)"
    )
    assert "HEALTHD_SUSPECTS" not in variables(run.notified[0])
    assert "no rank is named" in str(run.notified[0]["message"])


async def test_the_end_of_a_hang_keeps_its_record_and_a_later_hang_has_its_own(run: Run) -> None:
    await run.begin()
    await run.log.silent(SILENCE, policy=HangPolicy())
    await run.log.located(SILENCE, a_record(STOPPED, SLEEPS, SLEEPS), policy=HangPolicy())
    await run.log.silent(msgspec.structs.replace(SILENCE, ended_at=START + timedelta(minutes=1)), policy=HangPolicy())
    kept = await run.record()
    await run.log.silent(msgspec.structs.replace(SILENCE, since=START + timedelta(minutes=9)), policy=HangPolicy())

    assert kept is not None
    assert await run.record() is None


async def test_a_run_whose_record_is_gone_is_notified_all_the_same(run: Run) -> None:
    await run.log.located(SILENCE, a_record(STOPPED, SLEEPS, SLEEPS), policy=HangPolicy())

    assert len(run.notified) == 1
