"""What a state folder says of its run, and whose a checkpoint is."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.controller.act import record
from healthd.core.api import ANNOTATION_STOPPED_BY, ChosenCheckpoint, Job, RecoveryStatus
from healthd.core.api.model import Phase
from healthd.core.recovery.decide import open_recovery
from healthd.gangs.job import JobAdapter, read_job
from healthd.local.checkpoints.memory import Seen
from healthd.local.gang import RunSpec, job_of, restarts_of
from healthd.local.state.folder import database, forget, held, make_private
from healthd.local.state.known_runs import KnownRun, Standing, is_held, known_runs, read_run, who_saved
from tests.builders import a_cause

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def a_spec(tmp_path: Path, name: str = "llama") -> RunSpec:
    return RunSpec(
        name=name,
        command=["python", "train.py", "--name", "a b"],
        nproc=2,
        checkpoint=tmp_path / "out",
        state=tmp_path / "runs" / name,
        working_dir=tmp_path,
    )


async def a_state(spec: RunSpec, since: datetime = NOW, status: dict[str, object] | None = None) -> Path:
    make_private(spec.state)
    with EmbeddedCluster.open(database(spec.state), clock=SystemClock(), new_uid=lambda: str(uuid.uuid4())) as cluster:
        await cluster.create(job_of(spec, ChosenCheckpoint(), 3, since, Seen(step=7)))
        if status:
            await cluster.patch(Job, spec.name, {"status": status}, namespace="default", subresource="status")
    return spec.state


async def test_a_run_is_reported_as_it_was_begun(tmp_path: Path) -> None:
    run = await read_run(await a_state(a_spec(tmp_path)))

    assert run is not None
    assert (run.name, run.folder, run.command) == ("llama", str(tmp_path), "python train.py --name 'a b'")
    assert (run.checkpoints, run.ranks, run.step, run.restarts) == (str(tmp_path / "out"), 2, 7, 3)
    assert (run.since, run.standing) == (NOW, Standing.INTERRUPTED)


async def test_what_its_user_started_is_no_restart(tmp_path: Path) -> None:
    spec = a_spec(tmp_path)
    by_hand, fresh = job_of(spec, ChosenCheckpoint(), 3, restarts=2), job_of(spec, ChosenCheckpoint(), 3, restarts=0)

    assert restarts_of(by_hand, read_job(by_hand)) == 2
    assert restarts_of(fresh, read_job(fresh)) == 0


@pytest.mark.parametrize(("kind", "standing"), [("Complete", Standing.FINISHED), ("Failed", Standing.GAVE_UP)])
async def test_a_run_that_ended_is_reported_so(tmp_path: Path, kind: str, standing: Standing) -> None:
    state = await a_state(a_spec(tmp_path), status={"conditions": [{"type": kind, "status": "True"}]})
    run = await read_run(state)

    assert run is not None
    assert run.standing is standing


async def test_a_run_that_is_held_waits_and_does_not_run(tmp_path: Path) -> None:
    spec = a_spec(tmp_path)
    state = await a_state(spec)
    with EmbeddedCluster.open(database(state), clock=SystemClock(), new_uid=lambda: str(uuid.uuid4())) as cluster:
        root = read_job(await cluster.get(Job, spec.name, "default"))
        recovery = await cluster.create(open_recovery(root, a_cause()))
        status = RecoveryStatus(phase=Phase.HELD, held_in=Phase.CHOOSING, message="none loads")
        await record(cluster, recovery, status, NOW)
    with held(state):
        during = await read_run(state)

    assert during is not None
    assert during.standing is Standing.WAITING


async def test_a_run_that_was_given_up_started_again_and_stopped_by_its_user_was_stopped(tmp_path: Path) -> None:
    spec = a_spec(tmp_path)
    state = await a_state(spec)
    with EmbeddedCluster.open(database(state), clock=SystemClock(), new_uid=lambda: str(uuid.uuid4())) as cluster:
        root = read_job(await cluster.get(Job, spec.name, "default"))
        recovery = await cluster.create(open_recovery(root, a_cause()))
        await record(cluster, recovery, RecoveryStatus(phase=Phase.GAVE_UP, message="no progress"), NOW)
        await JobAdapter().stop(cluster, root, recovery.metadata.name)
        given_up = await read_run(state)
        by_user = {ANNOTATION_STOPPED_BY: None}
        await cluster.patch(Job, spec.name, {"metadata": {"annotations": by_user}}, namespace="default")
        stopped = await read_run(state)

    assert given_up is not None
    assert stopped is not None
    assert (given_up.standing, stopped.standing) == (Standing.GAVE_UP, Standing.STOPPED)


async def test_a_run_whose_lock_is_held_is_running(tmp_path: Path) -> None:
    state = await a_state(a_spec(tmp_path))
    with held(state):
        during = is_held(state)

    assert during
    assert not is_held(state)
    assert not is_held(tmp_path)


async def test_the_newest_run_comes_first_and_one_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    await a_state(a_spec(tmp_path, "old"), NOW - timedelta(days=1))
    await a_state(a_spec(tmp_path, "new"), NOW)
    (tmp_path / "runs" / "broken").mkdir()
    database(tmp_path / "runs" / "broken").write_text("not a database at all, and too long for an empty one")

    assert [run.name for run in await known_runs(tmp_path / "runs")] == ["new", "old"]


async def test_what_is_forgotten_is_gone_and_what_is_not_healthds_stays(tmp_path: Path) -> None:
    state = await a_state(a_spec(tmp_path))
    (state / "logs" / "attempt-0").mkdir(parents=True)
    (state / "notes.txt").write_text("mine")
    forget(state)

    assert [path.name for path in state.iterdir()] == ["notes.txt"]
    assert await read_run(state) is None


def a_run(name: str, checkpoints: Path, since: datetime) -> KnownRun:
    return KnownRun(
        name=name,
        state=Path("/state") / name,
        standing=Standing.FINISHED,
        folder="/home/ann",
        command="python train.py",
        checkpoints=str(checkpoints),
        ranks=1,
        step=9,
        restarts=0,
        since=since,
    )


def saved(at: datetime) -> ChosenCheckpoint:
    return ChosenCheckpoint(path="/out/step-9", step=9, saved_ns=int(at.timestamp()) * 10**9)


def test_a_checkpoint_is_of_the_run_during_which_it_was_saved(tmp_path: Path) -> None:
    hours = [NOW - timedelta(hours=hour) for hour in range(6)]
    others = [
        a_run("first", tmp_path, hours[4]),
        a_run("second", tmp_path, hours[2]),
        a_run("elsewhere", tmp_path / "b", hours[2]),
    ]

    assert who_saved(saved(NOW), tmp_path, NOW, others) == ""
    assert who_saved(saved(hours[1]), tmp_path, NOW, others).startswith("the run 'second', finished at step 9 (")
    assert who_saved(saved(hours[3]), tmp_path, NOW, others).startswith("the run 'first'")
    assert who_saved(saved(hours[5]), tmp_path, NOW, others) == "no run that this machine knows of"


def test_a_run_whose_folder_is_a_link_to_itself_saved_nothing_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    others = [a_run("looped", tmp_path / "loop", NOW - timedelta(hours=2))]

    assert who_saved(saved(NOW - timedelta(hours=1)), tmp_path, NOW, others) == "no run that this machine knows of"
