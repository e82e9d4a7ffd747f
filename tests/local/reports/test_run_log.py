"""The end of a run: where it ended is recorded, and said in the same words by all that are asked later."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.controller.checkpoints.mounted import FileCheckpoints
from healthd.core.api import ChosenCheckpoint, Job, Recovery, RecoveryStatus
from healthd.core.api.health import MemberState
from healthd.core.api.model import Phase
from healthd.core.config import HangPolicy
from healthd.core.hang.silence import Silence, SilentMember
from healthd.core.recovery.decide import open_recovery
from healthd.core.report.listing.gangs import gang_row
from healthd.gangs.job import JobAdapter, read_job
from healthd.local.checkpoints.memory import Seen, ended_with, seen_of
from healthd.local.gang import NAMESPACE, RunSpec, job_of
from healthd.local.reports.run_log import RunLog
from healthd.local.state.folder import database, make_private, runs_dir
from healthd.local.state.known_runs import read_run
from tests.builders import a_cause
from tests.fakes import START

pytestmark = pytest.mark.slow

End = Callable[[RunLog], Coroutine[Any, Any, None]]
COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}


def a_spec(tmp_path: Path) -> RunSpec:
    out = tmp_path / "out"
    out.mkdir()
    return RunSpec(name="train", command=["t"], nproc=1, checkpoint=out, state=tmp_path / "s", working_dir=tmp_path)


def save(folder: Path, step: int) -> None:
    """A safetensors file that will load."""
    header = json.dumps({"w": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}).encode()
    data = struct.pack("<Q", len(header)) + header + struct.pack("<d", step)
    (folder / f"step-{step}.safetensors").write_bytes(data)


def opened(spec: RunSpec) -> EmbeddedCluster:
    make_private(spec.state)
    return EmbeddedCluster.open(database(spec.state), clock=SystemClock(), new_uid=lambda: str(uuid.uuid4()))


async def end(cluster: EmbeddedCluster, spec: RunSpec, how: End) -> None:
    await how(RunLog(spec, cluster, SystemClock(), FileCheckpoints(), None))


async def give_up(cluster: EmbeddedCluster, spec: RunSpec) -> None:
    root = read_job(await cluster.get(Job, spec.name, NAMESPACE))
    recovery = open_recovery(root, a_cause())
    await cluster.create(recovery)
    await JobAdapter().stop(cluster, root, recovery.metadata.name)
    status = RecoveryStatus(phase=Phase.GAVE_UP, message="no progress")
    patch = {"status": {"phase": status.phase, "message": status.message}}
    await cluster.patch(Recovery, recovery.metadata.name, patch, namespace=NAMESPACE, subresource="status")


@pytest.mark.parametrize(
    ("how", "state"),
    [
        (lambda log: log.ended(0), {"status": COMPLETE}),
        (lambda log: log.ended(1), {}),
        (lambda log: log.stopped(), {"spec": {"suspend": True}}),
    ],
    ids=["finished", "given up", "stopped"],
)
async def test_a_run_that_ended_stands_at_the_step_that_it_left_not_at_one_that_does_not_load(
    tmp_path: Path, how: End, state: dict[str, Any]
) -> None:
    spec = a_spec(tmp_path)
    save(spec.checkpoint, 10)
    (spec.checkpoint / "step-120.pt").write_bytes(b"no checkpoint at all" * 99)
    with opened(spec) as cluster:
        await cluster.create(job_of(spec, ChosenCheckpoint(), since=START, seen=Seen(step=120)))
        if not state:
            await give_up(cluster, spec)
        for part, values in state.items():
            subresource = "status" if part == "status" else ""
            await cluster.patch(Job, spec.name, {part: values}, namespace=NAMESPACE, subresource=subresource)
        await end(cluster, spec, how)
        job = await cluster.get(Job, spec.name, NAMESPACE)
    run, root = await read_run(spec.state), read_job(job)

    assert run is not None
    assert (run.step, ended_with(job, root).step, gang_row(root, [], [], START).step) == (10, 10, 10)
    assert seen_of(job, root, ()).step == 120


@pytest.mark.parametrize("is_usual", [True, False])
async def test_the_command_that_explains_a_run_that_was_given_up_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_usual: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    spec = a_spec(tmp_path)
    spec = replace(spec, state=runs_dir() / spec.name) if is_usual else spec
    with opened(spec) as cluster, capture_logs() as logs:
        await cluster.create(job_of(spec, ChosenCheckpoint(), since=START))
        await end(cluster, spec, lambda log: log.ended(1))

    (note,) = [line["note"] for line in logs if line["event"] == "run.gave_up"]
    assert note.startswith(f"`healthd explain train{'' if is_usual else f' --state {spec.state}'}` shows more")


async def test_a_second_start_of_a_finished_run_names_the_step_that_it_left(tmp_path: Path) -> None:
    spec = a_spec(tmp_path)
    save(spec.checkpoint, 10)
    with opened(spec) as cluster, capture_logs() as logs:
        await cluster.create(job_of(spec, ChosenCheckpoint(), since=START, seen=Seen(step=120)))
        await end(cluster, spec, lambda log: log.ended(0))
        await end(cluster, spec, lambda log: log.done())

    (note,) = [line["note"] for line in logs if line["event"] == "run.done"]
    assert "finished in an earlier run, at step 10;" in note


async def test_a_run_that_left_nothing_that_loads_stands_at_no_step(tmp_path: Path) -> None:
    spec = a_spec(tmp_path)
    with opened(spec) as cluster:
        await cluster.create(job_of(spec, ChosenCheckpoint(), since=START, seen=Seen(step=120)))
        await cluster.patch(Job, spec.name, {"spec": {"suspend": True}}, namespace=NAMESPACE)
        await end(cluster, spec, lambda log: log.stopped())
    run = await read_run(spec.state)

    assert run is not None
    assert run.step == -1


@pytest.mark.parametrize(
    ("is_start", "states", "restarts"),
    [(False, "SS", True), (True, "SS", False), (True, "ST", True)],
    ids=["a hang", "a start in which all sleep", "a start in which one is stopped"],
)
async def test_a_hang_says_that_an_option_restarts_where_it_does(
    tmp_path: Path, *, is_start: bool, states: str, restarts: bool
) -> None:
    spec = a_spec(tmp_path)
    members = [
        SilentMember(rank=str(rank), state=MemberState.SILENT, last_active=START, states=state)
        for rank, state in enumerate(states)
    ]
    silence = Silence(since=START, seen_at=START, allowed=30, period=0, members=tuple(members), is_start=is_start)

    with capture_logs() as logs:
        await RunLog(spec, opened(spec), SystemClock(), FileCheckpoints(), None).silent(silence, policy=HangPolicy())

    [note] = [entry["note"] for entry in logs if entry["event"] == "run.hangs"]
    assert ("--hang restart restarts" in note) is restarts
