"""The look at the checkpoints of gangs that run: whom, when, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta

import msgspec
import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.checkpoints.precheck import AT_ONCE, PrecheckDependencies, Prechecks
from healthd.core.api import (
    ANNOTATION_CHECKPOINT,
    ANNOTATION_CHECKPOINT_FORMAT,
    ANNOTATION_PROGRESS,
    ANNOTATION_RESTART,
    ANNOTATION_SAVES,
    ChosenCheckpoint,
    Job,
    ObjectReference,
    RejectedCheckpoint,
)
from healthd.core.api.save_stats import Saves
from healthd.core.checkpoint.verification import VerificationReport
from healthd.core.config import PrecheckPolicy
from healthd.core.recovery.gang import Root
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import Metrics
from tests.builders import a_job, a_recovery
from tests.fakes import ManualClock, counting_uids, settle

SAVING = {ANNOTATION_RESTART: "enabled", ANNOTATION_CHECKPOINT: "file:///c"}
TORN = RejectedCheckpoint(path="/c/step_8", step=8, reason="torn")


class Hall:
    """A cluster with gangs, and somebody who looks at their checkpoints. `report` is what there is to be seen."""

    def __init__(self, policy: PrecheckPolicy | None = None) -> None:
        self.clock = ManualClock()
        self.cluster = EmbeddedCluster.open(None, clock=self.clock, new_uid=counting_uids())
        self.cluster_state = ClusterState(ADAPTERS)
        self.metrics = Metrics()
        self.policy = policy or PrecheckPolicy(every=timedelta(minutes=5))
        self.seen: VerificationReport | None = VerificationReport()
        self.trouble: Exception | None = None
        self.looks: list[str] = []
        self.reported: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.slow: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    async def report(self, root: Root) -> VerificationReport | None:
        """What the store shows."""
        self.looks.append(root.ref.name)
        if self.slow is not None:
            await self.slow.wait()
        if self.trouble is not None:
            raise self.trouble
        return self.seen

    def announce(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        """What is said of an object."""
        del kind
        self.reported.append((about.name, reason))
        self.words.append(message)

    async def train(self, name: str = "train", **meta: object) -> Job:
        """A gang that runs and saves."""
        annotations = {**SAVING, **(meta.pop("annotations", None) or {})}  # type: ignore[dict-item]  # only notes
        await self.cluster.create(a_job(name, annotations=annotations, **meta))  # type: ignore[arg-type]  # of a job
        started = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
        job = await self.cluster.patch(Job, name, started, namespace="default", subresource="status")
        self.cluster_state.upsert(job)
        return job

    def watch(self) -> None:
        """Begin to look."""
        checks = Prechecks(
            self.policy,
            PrecheckDependencies(
                cluster=self.cluster,
                clock=self.clock,
                cluster_state=self.cluster_state,
                adapters=ADAPTERS,
                looker=self,
                metrics=self.metrics,
                announce=self.announce,
            ),
        )
        self._task = asyncio.create_task(checks.run())

    async def pass_time(self, **fields: float) -> None:
        """Let so much time pass; once a minute the cluster state sees what became of the gangs."""
        left = timedelta(**fields)
        while left > timedelta(0):
            await self.clock.run_for(min(left, timedelta(minutes=1)))
            left -= timedelta(minutes=1)
            for job in (await self.cluster.list(Job)).items:
                self.cluster_state.upsert(job)

    async def saves(self, name: str = "train") -> Saves:
        """What stands on the gang."""
        notes = (await self.cluster.get(Job, name, "default")).metadata.annotations
        return msgspec.json.decode(notes.get(ANNOTATION_SAVES, "{}"), type=Saves)

    def value(self, metric: str, **labels: str) -> float | None:
        """The series of the gang `train`."""
        return self.metrics.registry.get_sample_value(metric, {"namespace": "default", "gang": "train", **labels})

    def good(self, step: int, **fields: object) -> None:
        """There is a good checkpoint of this step from now on."""
        saved = int(self.clock.now().timestamp() * 1e9)
        found = ChosenCheckpoint(path=f"/c/step_{step}", step=step, saved_ns=saved)
        self.seen = msgspec.structs.replace(VerificationReport(found=found), **fields)

    async def end(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task


@pytest.fixture
async def hall() -> AsyncIterator[Hall]:
    hall = Hall()
    yield hall
    await hall.end()


async def test_a_gang_is_read_now_and_then(hall: Hall) -> None:
    await hall.train()
    hall.watch()
    await hall.pass_time(minutes=20)

    assert hall.looks == ["train"] * 4


@pytest.mark.parametrize("notes", [{ANNOTATION_CHECKPOINT: ""}, {ANNOTATION_RESTART: ""}])
async def test_a_gang_that_does_not_save_or_is_not_guarded_is_left_alone(hall: Hall, notes: dict[str, str]) -> None:
    await hall.train(annotations=notes)
    hall.watch()
    await hall.pass_time(minutes=21)

    assert hall.looks == []


async def test_a_gang_that_is_being_recovered_is_left_alone(hall: Hall) -> None:
    job = await hall.train()
    hall.cluster_state.upsert(await hall.cluster.create(a_recovery(gang=job)))
    hall.watch()
    await hall.pass_time(minutes=21)

    assert hall.looks == []
    assert hall.value("healthd_checkpoint_valid") is None


async def test_switched_off_nothing_is_read() -> None:
    hall = Hall(PrecheckPolicy(enabled=False))
    await hall.train()
    hall.watch()
    await hall.pass_time(minutes=21)

    assert hall.looks == []
    await hall.end()


async def test_only_so_many_are_read_at_once(hall: Hall) -> None:
    hall.slow = asyncio.Event()
    for number in range(AT_ONCE + 3):
        await hall.train(f"train{number}")
    hall.watch()
    await hall.pass_time(minutes=6)
    at_first = len(hall.looks)
    hall.slow.set()
    await settle()
    await hall.pass_time(seconds=10)

    assert at_first == AT_ONCE
    assert set(hall.looks) == {f"train{number}" for number in range(AT_ONCE + 3)}


async def test_what_was_saved_stands_on_the_gang(hall: Hall) -> None:
    await hall.train()
    hall.good(7, size=100)
    hall.watch()
    await hall.pass_time(minutes=6)

    assert [(save.step, save.size) for save in (await hall.saves()).good] == [(7, 100)]


async def test_a_look_that_finds_nothing_new_writes_nothing(hall: Hall) -> None:
    await hall.train()
    hall.good(7)
    hall.watch()
    await hall.pass_time(minutes=6)
    before = (await hall.cluster.get(Job, "train", "default")).metadata.resource_version
    await hall.pass_time(minutes=10)

    assert (await hall.cluster.get(Job, "train", "default")).metadata.resource_version == before
    assert len(hall.looks) > 2


async def test_the_cost_of_a_fault_is_shown_and_grows(hall: Hall) -> None:
    await hall.train()
    hall.good(7)
    hall.watch()
    await hall.pass_time(minutes=10)
    early = hall.value("healthd_checkpoint_lost_work_seconds")
    await hall.pass_time(minutes=1)
    late = hall.value("healthd_checkpoint_lost_work_seconds")

    assert early is not None
    assert late == early + 60
    assert hall.value("healthd_checkpoint_valid") == 1


async def test_a_worry_is_reported_when_it_begins_and_when_it_is_over(hall: Hall) -> None:
    await hall.train()
    hall.good(7, rejected=[TORN])
    hall.watch()
    await hall.pass_time(minutes=21)
    shown = hall.value("healthd_checkpoint_concern", concern="refused")
    hall.good(9)
    await hall.pass_time(minutes=21)

    assert hall.reported == [("train", "CheckpointRefused"), ("train", "CheckpointRefusedOver")]
    assert shown == 1
    assert hall.value("healthd_checkpoint_concern", concern="refused") is None


async def test_a_new_leader_does_not_report_it_again(hall: Hall) -> None:
    await hall.train()
    hall.good(7, rejected=[TORN])
    hall.watch()
    await hall.pass_time(minutes=21)
    await hall.end()
    hall.watch()
    await hall.pass_time(minutes=21)

    assert hall.reported == [("train", "CheckpointRefused")]


@pytest.mark.slow
@pytest.mark.parametrize("trouble", [OSError("the store is gone"), RuntimeError("a fault of ours")])
async def test_trouble_with_one_look_does_not_end_the_others(hall: Hall, trouble: Exception) -> None:
    await hall.train()
    hall.trouble = trouble
    hall.watch()
    await hall.pass_time(minutes=6)
    hall.trouble = None
    hall.good(7)
    await hall.pass_time(minutes=6)

    assert [save.step for save in (await hall.saves()).good] == [7]


@pytest.mark.parametrize(
    "written",
    [
        "nonsense",
        '{"good": [{"at": "2026-01-01T00:00:00"}]}',
        '{"good": [{"at": "0001-01-01T00:00:00Z"}, {"at": "9999-12-31T23:59:59Z"}]}',
        '{"good": [' + ",".join(['{"at": "2026-01-01T00:00:00Z"}'] * 99) + "]}",
    ],
)
async def test_what_somebody_wrote_on_his_gang_disturbs_no_one(hall: Hall, written: str) -> None:
    await hall.train("other", annotations={ANNOTATION_SAVES: written, ANNOTATION_PROGRESS: '{"intervals": [1e300]}'})
    await hall.train()
    hall.good(7)
    hall.watch()
    await hall.pass_time(minutes=11)

    assert [save.step for save in (await hall.saves()).good] == [7]
    assert hall.value("healthd_checkpoint_valid") == 1


async def test_where_nothing_can_be_seen_nothing_is_noted_or_shown(hall: Hall) -> None:
    await hall.train()
    hall.seen = None
    hall.watch()
    await hall.pass_time(minutes=21)

    assert await hall.saves() == Saves()
    assert hall.value("healthd_checkpoint_valid") is None
    assert hall.value("healthd_checkpoint_lost_work_seconds") is None


async def test_a_gang_that_has_not_saved_yet_has_all_its_work_to_lose(hall: Hall) -> None:
    await hall.train()
    hall.watch()
    await hall.pass_time(minutes=6)

    assert (hall.value("healthd_checkpoint_valid"), hall.reported) == (0, [])
    assert hall.value("healthd_checkpoint_lost_work_seconds") == 6 * 60


@pytest.mark.parametrize(
    ("notes", "why"),
    [
        ({ANNOTATION_CHECKPOINT_FORMAT: "no-such"}, "unknown checkpoint format 'no-such'"),
        ({ANNOTATION_CHECKPOINT_FORMAT: "marker: DONE\nfiles: [unclosed\n"}, "is no YAML"),
        ({ANNOTATION_CHECKPOINT_FORMAT: "marked: DONE\nfils: []\n"}, "it may have steps, files"),
        ({ANNOTATION_CHECKPOINT_FORMAT: "ranks: 8\nsteps: s{step}\n"}, "give marker, manifest or files"),
        ({ANNOTATION_CHECKPOINT: "ftp://server/runs"}, "healthd reads pvc://claim/path"),
        ({ANNOTATION_CHECKPOINT: "file://runs/llama"}, "healthd reads pvc://claim/path"),
        ({ANNOTATION_CHECKPOINT: "s3://[bucket/runs"}, "healthd reads pvc://claim/path"),
        ({ANNOTATION_CHECKPOINT: "pvc:///runs"}, "write pvc://claim/path"),
    ],
)
async def test_what_is_declared_wrong_is_reported_at_the_first_sample(
    hall: Hall, notes: dict[str, str], why: str
) -> None:
    await hall.train(annotations=notes)
    hall.good(7)
    hall.watch()
    await hall.pass_time(minutes=5)

    (message,) = hall.words
    assert hall.reported == [("train", "CheckpointRefused")]
    assert message.startswith("a fault now would hold the gang; ")
    assert f"would be refused: {next(iter(notes))}: " in message
    assert why in message
    assert hall.value("healthd_checkpoint_concern", concern="refused") == 1


async def test_what_was_declared_wrong_and_is_corrected_is_over(hall: Hall) -> None:
    await hall.train(annotations={ANNOTATION_CHECKPOINT_FORMAT: "no-such"})
    hall.good(7)
    hall.watch()
    await hall.pass_time(minutes=5)
    corrected = {"metadata": {"annotations": {ANNOTATION_CHECKPOINT_FORMAT: None}}}
    await hall.cluster.patch(Job, "train", corrected, namespace="default")
    await hall.pass_time(minutes=7)

    assert hall.reported == [("train", "CheckpointRefused"), ("train", "CheckpointRefusedOver")]
    assert hall.value("healthd_checkpoint_valid") == 1


async def test_a_store_that_cannot_be_read_twice_in_a_row_is_reported(hall: Hall) -> None:
    await hall.train()
    hall.trouble = OSError("stale file handle")
    hall.watch()
    await hall.pass_time(minutes=5)
    at_first = list(hall.reported)
    await hall.pass_time(minutes=5)

    assert at_first == []
    assert hall.reported == [("train", "CheckpointRefused")]
    assert hall.words == ["whether anything would be resumed from is not known: stale file handle"]


async def test_checkpoints_that_are_all_gone_are_reported(hall: Hall) -> None:
    await hall.train()
    hall.good(7)
    hall.watch()
    await hall.pass_time(minutes=6)
    hall.seen = VerificationReport()
    await hall.pass_time(minutes=11)

    (message,) = hall.words
    assert "nothing is there any more, though step 7" in message
    assert hall.value("healthd_checkpoint_saved_timestamp_seconds") is None
    assert hall.value("healthd_checkpoint_valid") == 0


async def test_a_gang_that_is_gone_is_not_shown_any_more(hall: Hall) -> None:
    await hall.train()
    hall.good(7)
    hall.watch()
    await hall.pass_time(minutes=6)
    last = await hall.cluster.get(Job, "train", "default")
    await hall.cluster.delete(Job, "train", namespace="default")
    hall.cluster_state.remove(last)
    await hall.pass_time(minutes=1)

    assert hall.value("healthd_checkpoint_valid") is None
