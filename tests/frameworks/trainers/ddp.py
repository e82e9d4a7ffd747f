"""Plain DistributedDataParallel."""

# mypy: ignore-errors
from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from tests.frameworks.trainers.task import BATCH, EPOCHS, data, finish, loss_of, model


def main() -> None:
    """One rank."""
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    layer = DistributedDataParallel(model())
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    begin = 0
    if resume := os.environ.get("HEALTHD_RESUME_FROM"):
        state = torch.load(resume)
        layer.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["epoch"]
    dataset = data()
    loader = DataLoader(dataset, batch_size=BATCH, sampler=DistributedSampler(dataset, shuffle=False))
    for epoch in range(begin, EPOCHS):
        for batch in loader:
            optimizer.zero_grad()
            loss_of(layer, batch).backward()
            optimizer.step()
        if dist.get_rank() == 0:
            state = {"model": layer.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
            torch.save(state, folder / f"epoch-{epoch + 1}.pt.tmp")
            (folder / f"epoch-{epoch + 1}.pt.tmp").rename(folder / f"epoch-{epoch + 1}.pt")
        dist.barrier()
    finish(folder, layer.module.state_dict(), dist.get_world_size())
    dist.destroy_process_group()


main()
