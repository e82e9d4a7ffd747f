"""
DistributedDataParallel over gloo, in which one rank hangs at one step in one way. It says its steps on standard output.

A thread dumps torch's flight recorder when a file asks for it: what NCCL's pipe does, which gloo has not.
"""

# mypy: ignore-errors
from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

folder, kind, victim, at, width = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
rank = int(os.environ["RANK"])


class Rows(Dataset):
    """Reads one row, and sleeps for good where the loader hangs."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, number: int) -> torch.Tensor:
        if kind == "loader" and rank == victim and number == at * 4:
            time.sleep(10_000)
        return torch.full((width,), number / 100_000)


def hang(layer) -> None:
    """What the victim does in place of its next step."""
    match kind:
        case "spin":
            while True:
                pass
        case "collective":
            dist.barrier()
        case "deadlock":
            lock = threading.Lock()
            with lock:
                lock.acquire()
        case "file":
            (folder / "pipe").open("rb").read()


def dump_when_asked() -> None:
    """The dump of this rank, once."""
    while not (folder / "dump").exists():
        time.sleep(0.02)
    trace = torch._C._distributed_c10d._dump_fr_trace()
    (folder / f"trace_{rank}.tmp").write_bytes(trace)
    (folder / f"trace_{rank}.tmp").rename(folder / f"trace_{rank}")


def main() -> None:
    """One rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    threading.Thread(target=dump_when_asked, daemon=True).start()
    (folder / f"pid_{rank}").write_text(str(os.getpid()))
    layer = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Linear(width, 1)))
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-4)
    for step, rows in enumerate(DataLoader(Rows(), batch_size=4)):
        if step == at and rank == victim:
            hang(layer)
        optimizer.zero_grad()
        layer(rows).square().mean().backward()
        optimizer.step()
        (folder / f"step_{rank}").write_text(str(step))
        time.sleep(0.05)


main()
