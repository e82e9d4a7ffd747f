"""
The `mine.py` of `examples/trainers`, slower and observed: rank 0 leaves its weights and what it resumed from.

`tests.frameworks.snippets` puts the example itself beside it, as `mine_example.py`.
"""

# mypy: ignore-errors
from __future__ import annotations

import atexit
import os
import time
from pathlib import Path

import mine_example
import torch

PACE = 0.03
"""Seconds that a sample takes: so that something can happen within an epoch."""


class Data(mine_example.Data):
    """Every rank sees the same."""

    def __getitem__(self, index):
        time.sleep(PACE)
        return super().__getitem__(index)


def model():
    """The same in every process. Rank 0 leaves its weights, and from where it resumed."""
    made = mine_example.model()
    if os.environ["RANK"] == "0":
        with Path("resumed").open("a") as file:
            file.write(os.environ.get("HEALTHD_RESUME_FROM", "-") + "\n")
        atexit.register(
            lambda: torch.save({name: value.clone() for name, value in made.state_dict().items()}, "weights.pt")
        )
    return made


def dataset() -> Data:
    """All of the data; ranks share it among them."""
    return Data()
