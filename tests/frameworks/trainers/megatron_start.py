"""Ranks that find each other as Megatron-LM's do: by the same variables and with the same arguments. Not Megatron."""

# mypy: ignore-errors
from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from tests.frameworks.trainers.task import BATCH, EPOCHS, RANKS, data, finish, loss_of, model


def main() -> None:
    """One rank."""
    folder = Path(sys.argv[1])
    rank, world = int(os.getenv("RANK", "0")), int(os.getenv("WORLD_SIZE", "1"))
    assert int(os.environ["LOCAL_RANK"]) == rank % RANKS  # its GPU, by either of the two ways of its versions
    dist.init_process_group("gloo", init_method="env://", world_size=world, rank=rank, timeout=timedelta(minutes=10))
    everybody = dist.new_group(list(range(world)))
    layer = model()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    begin = 0
    if resume := os.environ.get("HEALTHD_RESUME_FROM"):
        state = torch.load(resume)
        layer.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["epoch"]
    own = list(data())[rank::world]
    for epoch in range(begin, EPOCHS):
        for at in range(0, len(own), BATCH):
            optimizer.zero_grad()
            inputs, wanted = zip(*own[at : at + BATCH], strict=True)
            loss_of(layer, (torch.stack(inputs), torch.stack(wanted))).backward()
            for weights in layer.parameters():
                dist.all_reduce(weights.grad, group=everybody)
                weights.grad /= world
            optimizer.step()
        if rank == 0:
            state = {"model": layer.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
            torch.save(state, folder / f"epoch-{epoch + 1}.pt.tmp")
            (folder / f"epoch-{epoch + 1}.pt.tmp").rename(folder / f"epoch-{epoch + 1}.pt")
        dist.barrier()
    finish(folder, layer.state_dict(), dist.get_world_size())
    dist.destroy_process_group()


main()
