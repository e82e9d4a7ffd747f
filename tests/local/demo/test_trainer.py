"""The demo's trainer, as real processes: it computes the same whatever happens to it, and it stalls as NCCL does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from healthd.checkpoints.latest import latest
from healthd.local.demo import trainer

pytestmark = pytest.mark.slow


@contextmanager
def gang(root: Path, *args: str, ranks: int = 4, **env: str) -> Iterator[list[subprocess.Popen[str]]]:
    """A rank process each; whatever still runs at the end is killed."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    command = [sys.executable, trainer.__file__, "--checkpoint", str(root), "--every", "10", *args]
    base = {**os.environ, **env, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    members = [
        subprocess.Popen(
            command, env={**base, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(ranks)
    ]
    try:
        yield members
    finally:
        for member in members:
            member.kill()
            member.communicate()


def run(root: Path, *args: str, ranks: int = 4, **env: str) -> list[str]:
    """Train to the end; the lines of rank 0."""
    with gang(root, "--steps", "30", *args, ranks=ranks, **env) as members:
        output = [member.communicate(timeout=60) for member in members]

        assert [member.returncode for member in members] == [0] * ranks, output
    return output[0][0].splitlines()


def interrupt(root: Path, *args: str) -> None:
    """Train until rank 2 crashes before step 25 and rank 0 hangs for it; then end everybody."""
    with gang(root, "--steps", "30", "--crash-at", "25", "--crash-rank", "2", *args) as members:
        assert members[0].stdout is not None
        assert any(line.startswith("waiting for a rank that is gone") for line in members[0].stdout)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("undisturbed")
    run(root)
    return root


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    losses = [float(line.split()[3]) for line in run(tmp_path, "--steps", "60", ranks=1) if line.startswith("step ")]

    assert losses[-1] < losses[0] / 10


def test_two_runs_end_with_the_same_weights(undisturbed: Path, tmp_path: Path) -> None:
    run(tmp_path)

    assert files(tmp_path / "step-000030") == files(undisturbed / "step-000030")


def test_an_interrupted_run_ends_with_the_same_weights(undisturbed: Path, tmp_path: Path) -> None:
    interrupt(tmp_path)
    lines = run(tmp_path, HEALTHD_RESUME_FROM=str(tmp_path / "step-000020"), HEALTHD_ATTEMPT="1")

    assert lines[0] == "resumed from step 20"
    assert files(tmp_path / "step-000030") == files(undisturbed / "step-000030")


def test_a_resumed_run_on_fewer_ranks_ends_with_the_same_weights(undisturbed: Path, tmp_path: Path) -> None:
    run(tmp_path, ranks=3, HEALTHD_RESUME_FROM=str(undisturbed / "step-000010"))

    assert trainer.load(tmp_path / "step-000030") == trainer.load(undisturbed / "step-000030")


def test_the_others_wait_for_a_dead_rank_without_end(tmp_path: Path) -> None:
    with gang(tmp_path, "--steps", "1000000", "--every", "1000000") as members:
        streams = [member.stdout for member in members if member.stdout]
        next(line for line in streams[0] if line.startswith("step 3 "))
        members[1].send_signal(signal.SIGKILL)
        members[1].wait()
        next(line for line in streams[0] if line.startswith("waiting for a rank that is gone"))

        assert [member.poll() for member in members] == [None, -signal.SIGKILL, None, None]


def test_a_software_fault_ends_its_rank_with_a_traceback(tmp_path: Path) -> None:
    with gang(tmp_path, "--steps", "5", "--crash-at", "3", "--crash-rank", "1", ranks=2) as members:
        _, errors = members[1].communicate(timeout=60)

        assert members[1].returncode == 1
        assert "ZeroDivisionError: a bug of the training script" in errors


def test_a_crash_is_for_the_attempt_that_was_named(tmp_path: Path) -> None:
    args = ("--crash-at", "25", "--crash-attempt", "1")

    assert run(tmp_path, *args, HEALTHD_ATTEMPT="0")[-1].startswith("done at step 30")


def test_what_it_writes_is_a_checkpoint_that_will_load(undisturbed: Path) -> None:
    answer = latest(undisturbed)

    assert answer.found is not None
    assert (answer.found.step, answer.found.format) == (30, "safetensors")
    assert answer.rejected == ()


def test_a_torn_write_is_refused_and_the_one_before_is_taken(tmp_path: Path) -> None:
    run(tmp_path, "--torn-at", "30")

    answer = latest(tmp_path)

    assert answer.found is not None
    assert answer.found.step == 20
    assert [(r.step, "model-00004-of-00004.safetensors" in r.reason) for r in answer.rejected] == [(30, True)]


def test_only_the_first_attempt_tears_its_write(tmp_path: Path) -> None:
    run(tmp_path, "--torn-at", "30", HEALTHD_ATTEMPT="1")

    assert latest(tmp_path).rejected == ()
