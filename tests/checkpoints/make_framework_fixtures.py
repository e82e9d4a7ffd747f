"""
Write checkpoints of training frameworks under `real/` with the real libraries: `python make_framework_fixtures.py DIR`.

Run by hand in an environment with torch (CPU) and the frameworks; the tests read what is committed and need none of it.
A framework that is not installed is left out. Each row of `WRITERS` is one framework, in a process of its own.
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from pathlib import Path

import torch
from torch import multiprocessing as processes


def deepspeed_rank(rank: int, world: int, root: str, stage: int) -> None:
    """One rank of a run that saves its steps 2 and 3."""
    os.environ |= {
        "DS_ACCELERATOR": "cpu",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(29600 + stage),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
    }
    import deepspeed

    deepspeed.init_distributed("gloo")
    torch.manual_seed(7)
    model = torch.nn.Linear(4, 2)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": True},
    }
    optimizer = torch.optim.AdamW(model.parameters())
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for step in range(1, 4):
        engine.backward(engine(torch.randn(1, 4).bfloat16()).float().sum())
        engine.step()
        if step >= 2:
            engine.save_checkpoint(root)


def write_deepspeed(root: Path) -> None:
    """ZeRO 2 with two steps, so that shards can be swapped, and ZeRO 3."""
    for stage in (2, 3):
        folder = root / f"deepspeed-zero{stage}"
        processes.spawn(deepspeed_rank, args=(2, str(folder), stage), nprocs=2)
        for script in folder.glob("*.py"):
            script.unlink()
    shutil.rmtree(root / "deepspeed-zero3" / "global_step2")


def megatron_rank(rank: int, world: int, root: str) -> None:
    """One rank of a run that saves iterations 10 and 20."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29700", "RANK": str(rank), "WORLD_SIZE": str(world)}
    torch.cuda.synchronize = lambda *_: None  # the library takes a GPU for granted; its files are the same without
    torch.distributed.init_process_group("gloo")
    from megatron.core.dist_checkpointing import ShardedObject, ShardedTensor
    from megatron.core.dist_checkpointing.serialization import save

    torch.manual_seed(7)
    for iteration in (10, 20):
        folder = f"{root}/iter_{iteration:07}"
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - both ranks at once
        state = {
            "model": {"w": ShardedTensor.from_rank_offsets("w", torch.randn(4, 4) + rank, (0, rank, world))},
            "rng_state": ShardedObject("rng_state", [rank] * 4, (world,), (rank,)),
            "iteration": iteration,
            "args": argparse.Namespace(tensor_model_parallel_size=world, iteration=iteration),
        }
        save(state, folder, ("torch_dist", 1))
        torch.distributed.barrier()


def write_megatron(root: Path) -> None:
    """`torch_dist` by megatron-core; the legacy layout is written by the trainer, which is no package."""
    processes.spawn(megatron_rank, args=(2, str(root / "megatron-dist")), nprocs=2)


WRITERS = {"deepspeed": write_deepspeed, "megatron": write_megatron}


def main(root: Path) -> None:
    """Write those of the installed frameworks."""
    root.mkdir(parents=True, exist_ok=True)
    for package, write in WRITERS.items():
        if importlib.util.find_spec(package):
            write(root)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
