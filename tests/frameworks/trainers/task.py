"""What all of them train, and how slowly."""

# mypy: ignore-errors
from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch

EPOCHS, BATCHES, BATCH = 6, 4, 2
RANKS = 2
PACE = 0.15
"""Seconds that a step takes: so that something can happen within it."""


def model() -> torch.nn.Linear:
    """The same in every process."""
    torch.manual_seed(1)
    return torch.nn.Linear(8, 1)


def data() -> torch.utils.data.TensorDataset:
    """All of the data; ranks share it among them."""
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(RANKS * BATCHES * BATCH, 8, generator=generator)
    return torch.utils.data.TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))


def loss_of(layer: Any, batch: Any) -> Any:
    """Of one batch; takes its time."""
    time.sleep(PACE)
    inputs, wanted = batch
    return ((layer(inputs) - wanted) ** 2).mean()


def finish(folder: Path, weights: dict[str, Any], world: int) -> None:
    """Rank 0 leaves the weights, every rank the size of the world that its framework saw."""
    rank = os.environ["RANK"]
    (folder.parent / f"world-{rank}").write_text(str(world))
    if rank == "0":
        torch.save({name: value.clone() for name, value in weights.items()}, folder.parent / "weights.pt")
