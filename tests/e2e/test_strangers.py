"""Training scripts that never heard of healthd, and do what training scripts do."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from healthd.core.model import Phase
from tests.e2e.driver import Stage

pytestmark = pytest.mark.slow

RENDEZVOUS = """
import argparse, os, socket
parser = argparse.ArgumentParser()
parser.add_argument("--save-dir", required=True)
args = parser.parse_args()
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(place) as server:
        met = [server.accept()[0].recv(8).decode() for _ in range(world - 1)]
    open(args.save_dir + "/met", "w").write(" ".join(sorted(met)))
else:
    while True:
        try:
            socket.create_connection(place).sendall(str(rank).encode())
            break
        except ConnectionRefusedError:
            continue
"""
"""A rendezvous as `init_method="env://"` makes it."""

WORKERS = """
import multiprocessing, os, signal, sys
def work(folder):
    witness = os.open(folder + "/witness", os.O_WRONLY)
    os.write(witness, f"waits {os.environ['RANK']} 0\\n".encode())
    signal.pause()
if __name__ == "__main__" and os.environ["HEALTHD_ATTEMPT"] == "0":
    workers = [multiprocessing.get_context("fork").Process(target=work, args=sys.argv[1:]) for _ in range(2)]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
"""
"""A data loader: worker processes, which here never end by themselves."""

SAVES_WHEN_ASKED = """
import os, signal, sys, zipfile
folder, rank = sys.argv[1], os.environ["RANK"]
def save(*_):
    if rank == "0":
        with zipfile.ZipFile(folder + "/checkpoints/step-12.pt", "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("archive/data.pkl", b"\\x80\\x02}q\\x00.")
            archive.writestr("archive/data/0", b"1" * 64)
            archive.writestr("archive/version", b"3\\n")
    sys.exit(0)
if os.environ["HEALTHD_ATTEMPT"] == "0":
    os.makedirs(folder + "/checkpoints", exist_ok=True)
    signal.signal(signal.SIGTERM, save)
    witness = os.open(folder + "/witness", os.O_WRONLY)
    os.write(witness, f"waits {rank} 0\\n".encode())
    signal.pause()
print("resumes from", os.environ["HEALTHD_RESUME_FROM"], os.environ["HEALTHD_RESUME_STEP"])
"""
"""What many clusters ask of a job: SIGTERM means save, then end as if all were well."""

DAEMON = """
import os, signal, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        witness = os.open(sys.argv[1] + "/witness", os.O_WRONLY)
        os.write(witness, f"waits {os.environ['RANK']} 0\\n".encode())
        signal.pause()
    os._exit(0)
os.wait()
os.open(sys.argv[1] + "/gate", os.O_RDONLY)
"""
"""A script that leaves a helper behind (a metrics pusher, a cache), and ends well."""


def script(text: str, *arguments: str | Path) -> list[str]:
    """The command that runs it."""
    return [sys.executable, "-I", "-S", "-c", text, *map(str, arguments)]


async def test_ranks_meet_as_the_environment_tells_them(stage: Stage, tmp_path: Path) -> None:
    async with stage.life("--nproc", "3", command=script(RENDEZVOUS, "--save-dir", tmp_path)) as life:
        assert await life.ended() == 0, life.log

    assert (tmp_path / "met").read_text() == "1 2"


async def test_worker_processes_go_with_their_rank(stage: Stage, tmp_path: Path) -> None:
    async with stage.life("--spares", "1", command=script(WORKERS, tmp_path)) as life:
        await stage.all_wait(life, 0)
        stage.break_gpu(0)

        assert await life.ended() == 0, life.log
    [recovery] = await stage.recoveries()

    assert [attempt.number for attempt in recovery.status.attempts] == [1]
    stage.check_writers()


async def test_a_rank_that_saves_and_ends_well_when_asked_is_run_again(stage: Stage, tmp_path: Path) -> None:
    stage.configure(grace="1h")
    async with stage.life(command=script(SAVES_WHEN_ASKED, tmp_path)) as life:
        await stage.all_wait(life, 0)
        life.signal(signal.SIGTERM)

        assert await life.ended() == 143, life.log
    async with stage.life(command=script(SAVES_WHEN_ASKED, tmp_path)) as life:
        assert await life.ended() == 0, life.log

    logs = [(stage.state / "logs" / "attempt-1" / f"rank-{rank}.log").read_text() for rank in range(2)]

    assert logs == [f"resumes from {stage.checkpoints}/step-12.pt 12\n"] * 2
    stage.check_writers()


async def test_a_recovery_resumes_from_what_ranks_saved_when_they_were_stopped(stage: Stage, tmp_path: Path) -> None:
    stage.configure(grace="1h")
    async with stage.life("--spares", "1", command=script(SAVES_WHEN_ASKED, tmp_path)) as life:
        await stage.all_wait(life, 0)
        stage.break_gpu(0)

        assert await life.ended() == 0, life.log
    [recovery] = await stage.recoveries()

    assert recovery.status.phase in (Phase.RECOVERED, Phase.SUPERSEDED)
    assert recovery.status.attempts[-1].checkpoint.step == 12
    stage.check_writers()


async def test_a_helper_that_was_left_behind_has_the_grace_and_no_more(stage: Stage, tmp_path: Path) -> None:
    async with stage.life(command=script(DAEMON, tmp_path)) as life:
        await stage.all_wait(life, 0)
        stage.open_gate()

        assert await life.ended() == 0, life.log
    stage.check_writers()
