"""What each rank gets, by the real program: the contract that trainers know from torchrun."""

from __future__ import annotations

import json
import sys

import pytest

from tests.e2e.driver import RunFolder

pytestmark = pytest.mark.slow

SAYS = """
import json, os, sys
folder = sys.argv[1]
with open(f"{folder}/told-{os.environ['HEALTHD_ATTEMPT']}-{os.environ['RANK']}", "w") as file:
    json.dump(dict(os.environ), file)
witness = os.open(folder + "/witness", os.O_WRONLY)
os.write(witness, f"waits {os.environ['RANK']} {os.environ['HEALTHD_ATTEMPT']}\\n".encode())
os.open(folder + "/gate", os.O_RDONLY)
"""


def says(run_folder: RunFolder) -> list[str]:
    """The command of a rank that writes down its environment and waits."""
    return [sys.executable, "-I", "-S", "-c", SAYS, str(run_folder.folder)]


def reported(run_folder: RunFolder, attempt: int, rank: int) -> dict[str, str]:
    """What it wrote down."""
    environ: dict[str, str] = json.loads((run_folder.folder / f"told-{attempt}-{rank}").read_text())
    return environ


def gpus(run_folder: RunFolder, attempt: int, ranks: int) -> set[tuple[int, ...]]:
    """The GPUs that ranks saw, by their numbers on the bus."""
    seen = [reported(run_folder, attempt, rank)["CUDA_VISIBLE_DEVICES"].split(",") for rank in range(ranks)]
    return {tuple(int(uuid.split("-")[1], 16) - 1 for uuid in uuids) for uuids in seen}


async def test_each_rank_gets_the_environment_of_torchrun(run_folder: RunFolder) -> None:
    run_folder.open_gate()
    async with run_folder.life("--nproc", "3", command=says(run_folder)) as life:
        assert await life.ended() == 0, life.log
    ranks = [reported(run_folder, 0, rank) for rank in range(3)]

    for rank, environ in enumerate(ranks):
        place = {name: environ[name] for name in ("RANK", "LOCAL_RANK", "ROLE_RANK")}
        assert set(place.values()) == {str(rank)}
        world = {environ[name] for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE")}
        assert world == {"3"}
        assert (environ["GROUP_RANK"], environ["NODE_RANK"], environ["GROUP_WORLD_SIZE"]) == ("0", "0", "1")
        assert environ["TORCHELASTIC_USE_AGENT_STORE"] == "False"
    for same in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "CUDA_VISIBLE_DEVICES"):
        assert len({environ[same] for environ in ranks}) == 1
    assert gpus(run_folder, 0, 3) == {(0, 1, 2)}


async def test_after_a_fault_every_rank_sees_the_spare_in_the_place_of_the_lost_gpu(run_folder: RunFolder) -> None:
    async with run_folder.life("--nproc", "3", "--spares", "1", command=says(run_folder)) as life:
        await run_folder.all_wait(life, 0, world=3)
        run_folder.break_gpu(1)
        await run_folder.all_wait(life, 1, world=3)
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    before, after = reported(run_folder, 0, 0), reported(run_folder, 1, 0)

    assert (gpus(run_folder, 0, 3), gpus(run_folder, 1, 3)) == ({(0, 1, 2)}, {(0, 3, 2)})
    assert before["TORCHELASTIC_RUN_ID"] == after["TORCHELASTIC_RUN_ID"]
    assert (before["TORCHELASTIC_RESTART_COUNT"], after["TORCHELASTIC_RESTART_COUNT"]) == ("0", "1")


async def test_without_a_spare_the_ranks_that_are_left_see_the_gpus_that_are_left(run_folder: RunFolder) -> None:
    async with run_folder.life("--nproc", "3", "--min-nodes", "2", command=says(run_folder)) as life:
        await run_folder.all_wait(life, 0, world=3)
        run_folder.break_gpu(0)
        await run_folder.all_wait(life, 1, world=2)
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    assert gpus(run_folder, 1, 2) == {(1, 2)}
    assert [reported(run_folder, 1, rank)["LOCAL_RANK"] for rank in range(2)] == ["0", "1"]


async def test_only_gpus_that_the_user_left_are_given_to_ranks(run_folder: RunFolder) -> None:
    run_folder.open_gate()
    async with run_folder.life(command=says(run_folder), environ={"CUDA_VISIBLE_DEVICES": "5,6"}) as life:
        assert await life.ended() == 0, life.log

    assert gpus(run_folder, 0, 2) == {(5, 6)}


async def test_threads_are_one_a_rank_and_said_unless_the_user_chose(run_folder: RunFolder) -> None:
    run_folder.open_gate()
    async with run_folder.life(command=says(run_folder)) as life:
        said = await life.says("run.threads")
        assert await life.ended() == 0, life.log
    first = reported(run_folder, 0, 0)["OMP_NUM_THREADS"]
    async with run_folder.life(
        "--state", str(run_folder.folder / "chosen"), command=says(run_folder), environ={"OMP_NUM_THREADS": "6"}
    ) as life:
        assert await life.ended() == 0, life.log

    assert (first, said["OMP_NUM_THREADS"]) == ("1", "1")
    assert reported(run_folder, 0, 0)["OMP_NUM_THREADS"] == "6"
    assert "run.threads" not in life.log
