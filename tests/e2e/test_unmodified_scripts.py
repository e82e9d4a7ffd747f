"""Training scripts that never heard of healthd, and do what training scripts do."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from healthd.core.api.model import Phase
from healthd.local.state.known_runs import read_run
from tests.e2e.driver import FIRST_BUS, ROOT, RunFolder

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


async def healthd(*arguments: str) -> str:
    """What another `healthd` of the operator prints, while the run goes on."""
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "healthd.cli.main", *arguments], cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()

    assert process.returncode == 0
    return printed.decode()


def pid_of(run_folder: RunFolder, rank: int) -> int:
    """The process that wrote last as *rank*."""
    pids: list[int] = [line["pid"] for line in run_folder.journal() if line["rank"] == rank]
    return pids[-1]


async def test_ranks_meet_by_their_environment(run_folder: RunFolder, tmp_path: Path) -> None:
    async with run_folder.life("--nproc", "3", command=script(RENDEZVOUS, "--save-dir", tmp_path)) as life:
        assert await life.ended() == 0, life.log

    assert (tmp_path / "met").read_text() == "1 2"


async def test_worker_processes_go_with_their_rank(run_folder: RunFolder, tmp_path: Path) -> None:
    async with run_folder.life("--spares", "1", command=script(WORKERS, tmp_path)) as life:
        await run_folder.all_wait(life, 0)
        run_folder.break_gpu(0)

        assert await life.ended() == 0, life.log
    [recovery] = await run_folder.recoveries()

    assert [attempt.number for attempt in recovery.status.attempts] == [1]
    run_folder.check_writers()


async def test_a_rank_that_saves_and_ends_well_when_asked_is_run_again(run_folder: RunFolder, tmp_path: Path) -> None:
    run_folder.configure(grace="1h")
    async with run_folder.life(command=script(SAVES_WHEN_ASKED, tmp_path)) as life:
        await run_folder.all_wait(life, 0)
        life.signal(signal.SIGTERM)

        assert await life.ended() == 143, life.log
    async with run_folder.life(command=script(SAVES_WHEN_ASKED, tmp_path)) as life:
        assert await life.ended() == 0, life.log

    logs = [(run_folder.state / "logs" / "attempt-1" / f"rank-{rank}.log").read_text() for rank in range(2)]

    assert logs == [f"resumes from {run_folder.checkpoints}/step-12.pt 12\n"] * 2
    run_folder.check_writers()


async def test_a_recovery_resumes_from_what_ranks_saved_when_they_were_stopped(
    run_folder: RunFolder, tmp_path: Path
) -> None:
    run_folder.configure(grace="1h")
    async with run_folder.life("--spares", "1", command=script(SAVES_WHEN_ASKED, tmp_path)) as life:
        await run_folder.all_wait(life, 0)
        run_folder.break_gpu(0)

        assert await life.ended() == 0, life.log
    [recovery] = await run_folder.recoveries()

    assert recovery.status.phase in (Phase.RECOVERED, Phase.SUPERSEDED)
    assert recovery.status.attempts[-1].checkpoint.step == 12
    run_folder.check_writers()


async def test_a_helper_that_was_left_behind_has_the_grace_and_no_more(run_folder: RunFolder, tmp_path: Path) -> None:
    async with run_folder.life(command=script(DAEMON, tmp_path)) as life:
        await run_folder.all_wait(life, 0)
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    run_folder.check_writers()


async def test_a_slot_that_is_repaired_while_the_run_waits_for_it_takes_its_rank_back(run_folder: RunFolder) -> None:
    async with run_folder.life("--spares", "1") as life:
        await run_folder.all_wait(life, 0)
        run_folder.break_gpu(0)
        await run_folder.all_wait(life, 1)
        await life.says("recovery.phase", phase=Phase.RECOVERED)
        run_folder.break_gpu(1)
        await life.says("recovery.phase", phase=Phase.HELD, why="no spare for slot-1: needs 1 more healthy slot")
        repaired = await healthd("repair", "slot-1", "--state", str(run_folder.state))
        await run_folder.all_wait(life, 2)
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    assert "slot-1" in repaired
    assert [recovery.status.placement for recovery in await run_folder.recoveries()] == [
        {"0": "slot-2", "1": "slot-1"},
        {"0": "slot-2", "1": "slot-1"},
    ]
    run_folder.check_writers()


async def test_a_third_bad_slot_is_beyond_the_budget_until_one_is_repaired(run_folder: RunFolder) -> None:
    async with run_folder.life("--spares", "3") as life:
        await run_folder.all_wait(life, 0)
        run_folder.break_gpu(0)
        await run_folder.all_wait(life, 1)
        await life.says("recovery.phase", phase=Phase.RECOVERED)
        run_folder.break_gpu(1)
        await run_folder.all_wait(life, 2)
        await life.says("recovery.phase", phase=Phase.RECOVERED)
        run_folder.break_gpu(2)
        refused = await life.says("quarantine.refused", node="slot-2")
        await life.says("recovery.phase", phase=Phase.HELD)
        ranks_while_held = run_folder.marked()
        await healthd("repair", "slot-0", "--state", str(run_folder.state))
        await life.says("node.quarantined", node="slot-2")
        await run_folder.all_wait(life, 3)
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    assert refused["why"] == "the budget of cluster, 2 nodes, is used up"
    assert len(ranks_while_held) > 1, "nothing is stopped that cannot be started again"
    assert [recovery.status.phase for recovery in await run_folder.recoveries()] == [Phase.RECOVERED] * 3
    run_folder.check_writers()


async def test_what_an_application_does_to_a_gpu_restarts_nothing(run_folder: RunFolder) -> None:
    async with run_folder.life("--spares", "1") as life:
        await run_folder.all_wait(life, 0)
        for code in (13, 31, 43, 45):
            run_folder.kernel_log.write(
                f"NVRM: Xid (PCI:0000:{FIRST_BUS:02x}:00): {code}, pid=42, name=python, Ch 00000008"
            )
            await life.says("finding.raised", finding=f"0000:{FIRST_BUS:02x}:00.0/xid-{code}")
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    assert await run_folder.recoveries() == []
    assert run_folder.starts() == [(0, 0)]


async def test_a_checkpoint_that_is_cut_short_under_the_run_is_refused_with_its_reason(run_folder: RunFolder) -> None:
    async with run_folder.life() as life:
        await run_folder.all_wait(life, 0)
        torn = run_folder.checkpoints / "step-000004.safetensors"
        os.truncate(torn, torn.stat().st_size - 1)
        os.kill(pid_of(run_folder, 1), signal.SIGKILL)
        await run_folder.all_wait(life, 1)
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    [recovery] = await run_folder.recoveries()

    assert [(rejected.path, rejected.step) for rejected in recovery.status.rejected] == [(str(torn), 4)]
    assert "torn write" in recovery.status.rejected[0].reason
    assert run_folder.starts() == [(0, 0), (1, 3)]
    run_folder.check_writers()


async def stop_with_saved_work(run_folder: RunFolder) -> None:
    """A life that ends by Ctrl-C after healthd has seen steps: a recovery is over once a new step was seen."""
    async with run_folder.life() as life:
        await run_folder.all_wait(life, 0)
        os.kill(pid_of(run_folder, 1), signal.SIGKILL)
        await life.says("recovery.phase", phase=Phase.RECOVERED)
        life.signal(signal.SIGINT)
        await life.ended()


async def test_going_on_later_reports_which_newer_checkpoint_is_refused(run_folder: RunFolder) -> None:
    async with run_folder.life() as life:
        await run_folder.all_wait(life, 0)
        life.signal(signal.SIGINT)
        await life.ended()
    torn = run_folder.checkpoints / "step-000004.safetensors"
    os.truncate(torn, torn.stat().st_size - 1)
    run_folder.open_gate()
    async with run_folder.life() as life:
        refused = await life.says("checkpoint.rejected", path=str(torn))

        assert await life.ended() == 0, life.log
    run = await read_run(run_folder.state)

    assert "torn write" in refused["why"]
    assert run_folder.starts() == [(0, 0), (1, 3)]
    assert run is not None
    assert run.restarts == 0, "it was started again by its user"


async def test_the_last_line_of_a_run_says_how_it_ended(run_folder: RunFolder) -> None:
    async with run_folder.life("--name", "fine", command=["true"]) as life:
        done = await life.says("run.completed", name="fine")
    async with run_folder.life("--state", str(run_folder.folder / "other"), command=["sh", "-c", "exit 7"]) as life:
        failed = await life.says("run.gave_up", name="gang")

    assert done["attempt"] == 0
    assert failed["exit_code"] == 7
    assert "healthd explain" in failed["note"]


async def test_a_command_may_follow_without_the_two_dashes(run_folder: RunFolder, tmp_path: Path) -> None:
    """As `torchrun` takes it: whatever follows the command's name is the command's."""
    arguments = [
        *run_folder.arguments(),
        "sh",
        "-c",
        'echo "$@" > ' + str(tmp_path / "got"),
        "sh",
        "--name",
        "x",
        "--",
        "-y",
    ]
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "healthd.cli.main", "run", *arguments], cwd=ROOT, stderr=asyncio.subprocess.DEVNULL
    )

    assert await process.wait() == 0
    assert (tmp_path / "got").read_text() == "--name x -- -y\n"


@pytest.mark.parametrize("options", [(), ("--nproc", "1")])
@pytest.mark.parametrize("damage", ["gone", "torn"])
async def test_going_on_later_never_begins_again_because_saved_work_is_missing(
    run_folder: RunFolder, damage: str, options: tuple[str, ...]
) -> None:
    await stop_with_saved_work(run_folder)
    for saved in run_folder.checkpoints.iterdir():
        saved.unlink() if damage == "gone" else os.truncate(saved, 3)
    async with run_folder.life(*options) as life:
        assert await life.ended() == 2, life.log
    reported = life.other

    assert ("is it mounted?" if damage == "gone" else "will load; the newest") in reported
    assert "add --fresh to begin again from nothing" in reported
    assert run_folder.starts() == [(0, 0), (1, 4)]


async def test_going_on_later_may_begin_again_when_its_owner_says_so(run_folder: RunFolder) -> None:
    await stop_with_saved_work(run_folder)
    for saved in run_folder.checkpoints.iterdir():
        saved.unlink()
    run_folder.config.write_text(
        run_folder.config.read_text().replace("recovery: {", "recovery: {start_fresh: always, ")
    )
    run_folder.open_gate()
    async with run_folder.life() as life:
        assert await life.ended() == 0, life.log

    assert run_folder.starts() == [(0, 0), (1, 4), (2, 0)]


async def test_checkpoints_that_vanish_soon_after_the_first_save_hold_the_run(run_folder: RunFolder) -> None:
    """Before healthd has looked at them for their progress: that is every ten seconds, and here once an hour."""
    config = run_folder.config.read_text().replace("look_every: 50ms", "look_every: 1h")
    run_folder.config.write_text(config)
    async with run_folder.life() as life:
        await run_folder.all_wait(life, 0)
        await life.says("checkpoint.seen")
        run_folder.checkpoints.rename(run_folder.folder / "elsewhere")
        os.kill(pid_of(run_folder, 1), signal.SIGKILL)
        held = await life.says("run.held")
        life.signal(signal.SIGINT)
        await life.ended()

    assert "step-000004.safetensors: it was there, and is not any more" in held["why"]
    assert "--fresh" in held["note"]
    assert run_folder.starts() == [(0, 0)]


async def test_a_folder_of_checkpoints_that_vanishes_empty_holds_the_run(run_folder: RunFolder, tmp_path: Path) -> None:
    """Nothing was saved yet, or all of it in the second in which it vanished: nothing shows which."""
    run_folder.checkpoints.mkdir()
    async with run_folder.life(command=script(WORKERS, tmp_path)) as life:
        await run_folder.all_wait(life, 0)
        run_folder.checkpoints.rmdir()
        run_folder.break_gpu(0)
        await life.says("run.held")
        life.signal(signal.SIGINT)
        await life.ended()

    assert "the folder was there, and is not any more" in life.log
