"""
The script that `tests.bench.race` starts: DistributedDataParallel over gloo, as a tutorial has it.

It writes into `journal` when it began, when torch was imported, when the group stood, and each step: the machine's own
monotonic clock, its pid, its rank. Rank 0 saves every few steps; every rank loads the newest save.
"""

# mypy: ignore-errors
# ruff: noqa: E402 - the import of torch is a part of what is measured
from __future__ import annotations

import os
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])
SAVES = FOLDER / "checkpoints"
EVERY = 10
PACE = 0.02


def note(what: str) -> None:
    """One line, in one write."""
    line = f"{time.monotonic()} {os.getpid()} {os.environ['RANK']} {what}\n"
    journal = os.open(FOLDER / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, line.encode())
    os.close(journal)


note("begun")

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

note("imported")


def save(layer: torch.nn.Module, step: int) -> None:
    """Whole or not at all."""
    path = SAVES / f"step-{step:06d}.pt"
    torch.save({"model": layer.module.state_dict(), "step": step}, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").rename(path)


def load(layer: torch.nn.Module) -> int:
    """The step to go on from."""
    newest = max(SAVES.glob("*.pt"), default=None)
    if newest is None:
        return 0
    state = torch.load(newest)
    layer.module.load_state_dict(state["model"])
    return state["step"]


def main() -> None:
    """One rank, until somebody ends it."""
    dist.init_process_group("gloo")
    note("joined")
    torch.manual_seed(0)
    layer = DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    step = load(layer)
    while True:
        optimizer.zero_grad()
        layer(torch.ones(4, 16)).sum().backward()
        optimizer.step()
        step += 1
        note(f"step {step}")
        if step % EVERY == 0 and dist.get_rank() == 0:
            save(layer, step)
        time.sleep(PACE)


main()
