"""What stands for a user's own model and data beside the scripts of `docs/trainers.md`."""

# mypy: ignore-errors
from __future__ import annotations

import atexit
import os
import time

import torch

BATCHES, BATCH, RANKS = 4, 4, 2
PACE = 0.03
"""Seconds that a sample takes: so that something can happen within an epoch."""
RANK = os.environ["RANK"]


class Model(torch.nn.Module):
    """One linear layer, which answers with its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, inputs, labels):
        """One step."""
        return {"loss": ((self.layer(inputs) - labels) ** 2).mean()}


class Data(torch.utils.data.Dataset):
    """Every rank sees the same."""

    def __init__(self) -> None:
        self._inputs = torch.randn(RANKS * BATCHES * BATCH, 8, generator=torch.Generator().manual_seed(2))

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, index):
        time.sleep(PACE)
        return {"inputs": self._inputs[index], "labels": self._inputs[index].sum(dim=0, keepdim=True)}


def model() -> Model:
    """The same in every process. Rank 0 leaves its weights, and from where it resumed."""
    torch.manual_seed(1)
    made = Model()
    if RANK == "0":
        with open("resumed", "a") as file:
            file.write(os.environ.get("HEALTHD_RESUME_FROM", "-") + "\n")
        atexit.register(
            lambda: torch.save({name: value.clone() for name, value in made.state_dict().items()}, "weights.pt")
        )
    return made


def dataset() -> Data:
    """All of the data; ranks share it among them."""
    return Data()
