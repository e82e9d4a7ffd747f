"""DeepSpeed's engine, started as its launcher starts it (without `--local_rank`)."""

# mypy: ignore-errors
from __future__ import annotations

import os
import sys
from pathlib import Path

import deepspeed
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from tests.frameworks.trainers.task import BATCH, BATCHES, EPOCHS, RANKS, data, finish, loss_of, model


def main() -> None:
    """One rank."""
    folder = Path(sys.argv[1])
    deepspeed.init_distributed("gloo")
    plain, dataset = model(), data()
    engine, *_ = deepspeed.initialize(
        model=plain,
        model_parameters=plain.parameters(),
        config={
            "train_batch_size": BATCH * RANKS,
            "train_micro_batch_size_per_gpu": BATCH,
            "optimizer": {"type": "Adam", "params": {"lr": 0.05, "torch_adam": True}},
        },
    )
    begin = 0
    if resume := os.environ.get("HEALTHD_RESUME_FROM"):
        engine.load_checkpoint(str(Path(resume).parent), tag=Path(resume).name)
        begin = engine.global_steps // BATCHES
    loader = DataLoader(dataset, batch_size=BATCH, sampler=DistributedSampler(dataset, shuffle=False))
    for _epoch in range(begin, EPOCHS):
        for batch in loader:
            engine.backward(loss_of(engine, batch))
            engine.step()
        engine.save_checkpoint(str(folder), tag=f"global_step{engine.global_steps}")
    finish(folder, engine.module.state_dict(), dist.get_world_size())


main()
