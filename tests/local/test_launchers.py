"""A launcher within `healthd run` is seen before it starts gangs of its own."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from healthd.local.launchers import Launcher, find_launcher, starts_ranks, what_to_know, why_not_launch


def seen(command: str, here: Path) -> str:
    """The launcher in it; empty when none is seen."""
    found = find_launcher(shlex.split(command), here)
    return found.name if found else ""


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("torchrun --nproc-per-node 8 train.py", "torchrun"),
        ("/opt/venv/bin/torchrun train.py", "torchrun"),
        ("python -m torch.distributed.run train.py", "python -m torch.distributed.run"),
        ("python3.11 -u -m torch.distributed.launch train.py", "python -m torch.distributed.launch"),
        ("python /opt/venv/bin/torchrun train.py", "torchrun"),
        ("accelerate launch --config_file a.yaml train.py", "accelerate launch"),
        ("python -m accelerate.commands.launch train.py", "python -m accelerate.commands.launch"),
        ("deepspeed --num_gpus 8 train.py --deepspeed ds.json", "deepspeed"),
        ("mpirun -np 8 python train.py", "mpirun"),
        ("mpiexec.hydra -n 8 python train.py", "mpiexec.hydra"),
        ("srun --ntasks 8 python train.py", "srun"),
        ("horovodrun -np 8 python train.py", "horovodrun"),
        ("composer -n 8 train.py", "composer"),
        ("env OMP_NUM_THREADS=4 nice -n 5 torchrun train.py", "torchrun"),
        ("uv run torchrun train.py", "torchrun"),
        ("numactl --cpunodebind=0 --membind 0 mpirun python train.py", "mpirun"),
        ("sh -c 'torchrun train.py'", "torchrun"),
        ("bash -lc 'cd src && NCCL_DEBUG=INFO exec torchrun train.py | tee log'", "torchrun"),
        ("bash -c 'if true; then accelerate launch train.py; fi'", "accelerate launch"),
        ("timeout 5h bash -c 'python -m torch.distributed.run train.py'", "python -m torch.distributed.run"),
    ],
)
def test_a_launcher_is_seen(command: str, name: str, tmp_path: Path) -> None:
    assert seen(command, tmp_path) == name


@pytest.mark.parametrize(
    "command",
    [
        "python train.py",
        "python train.py --launcher torchrun",
        "python -m train torchrun",
        "python -m deepspeed_config",
        "python -c 'import torchrun'",
        "accelerate config",
        "deepspeed.sh",
        "sh -c 'echo torchrun; python train.py --srun'",
        "sh -c 'python train.py # torchrun'",
        "env LAUNCHER=torchrun python train.py",
        "uv run train.py --with torchrun",
        "./missing.sh",
        "sh",
        "nice",
        "python",
        "python -m",
        "sh -c",
        'sh -c "echo \'open"',
    ],
)
def test_what_is_no_launcher_is_let_through(command: str, tmp_path: Path) -> None:
    assert seen(command, tmp_path) == ""


@pytest.mark.parametrize("command", ["sh train.sh", "bash -e train.sh", "./train.sh", "nohup ./train.sh"])
def test_a_launcher_in_a_shell_s_script_is_seen(command: str, tmp_path: Path) -> None:
    lines = (
        "#!/usr/bin/env bash",
        "# not torchrun",
        "echo 'open",
        "text'",
        "A=1 torchrun \\",
        "  --standalone train.py",
    )
    (tmp_path / "train.sh").write_text("\n".join(lines))

    assert seen(command, tmp_path) == "torchrun"


def test_a_script_of_another_language_is_not_read_as_a_shell_s(tmp_path: Path) -> None:
    (tmp_path / "train").write_text("#!/usr/bin/env python\ntorchrun = 1\n")

    assert seen("./train", tmp_path) == ""


def test_a_script_that_runs_itself_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("#!/bin/sh\nsh train.sh\n")

    assert seen("sh train.sh", tmp_path) == ""


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("torchrun --nproc-per-node 8 train.py --lr 0.1", "python train.py --lr 0.1"),
        ("torchrun -m train.main --lr 1", "python -m train.main --lr 1"),
        ("mpirun -np 8 python3 -u -m train", "python3 -u -m train"),
        ("accelerate launch 'my train.py'", "python 'my train.py'"),
        ("srun ./train", ""),
        ("python -m torch.distributed.run --nnodes 1 train.py", "python train.py"),
        ("bash -c 'torchrun train.py \"$@\"'", ""),
    ],
)
def test_the_way_to_do_it_right_names_the_script(command: str, script: str, tmp_path: Path) -> None:
    found = find_launcher(shlex.split(command), tmp_path)

    assert found is not None
    assert found.script == script


@pytest.mark.parametrize(
    ("command", "starts"),
    [
        ("python3 /opt/venv/bin/torchrun train.py", True),
        ("python -m torch.distributed.run train.py", True),
        ("bash train.sh", True),
        ("nice -n 5 mpirun ./train", True),
        ("python train.py --nproc 2", False),
        ("./train", False),
        ("", False),
    ],
)
def test_a_process_that_only_starts_ranks_is_known_by_its_command(command: str, starts: bool) -> None:
    assert starts_ranks(shlex.split(command)) is starts


def test_several_ranks_that_launch_are_refused_with_the_right_way() -> None:
    why = why_not_launch(Launcher("torchrun", True, "python train.py"), 8, Path("out"))

    assert "each of the 8 ranks would start a gang of its own, and all would save in out" in why
    assert "`healthd run --nproc 8 --checkpoint out -- python train.py`" in why
    assert "--allow-launcher" in why


def test_the_right_way_keeps_the_options_that_were_given() -> None:
    why = why_not_launch(Launcher("torchrun", True, "python t.py"), 8, Path("o"), ["--spares", "1", "--web", "a b"])

    assert "`healthd run --nproc 8 --checkpoint o --spares 1 --web 'a b' -- python t.py`" in why


def test_one_rank_may_be_a_launcher_that_gives_its_ranks_their_numbers() -> None:
    assert why_not_launch(Launcher("torchrun", True, "python train.py"), 1, Path("out")) == ""
    assert "the GPUs of one slot" in what_to_know(Launcher("torchrun", True, ""))


def test_one_rank_may_be_no_launcher_whose_ranks_inherit_its_number() -> None:
    why = why_not_launch(Launcher("mpirun", False, "python train.py"), 1, Path("out"))

    assert "would all inherit RANK=0 and WORLD_SIZE=1" in why
    assert "`healthd run --nproc N --checkpoint out -- python train.py`" in why
