"""The lives of a gang's ranks, as the ranks themselves wrote them down (`rank.py`). Pure, but for `read_lives`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path


@dataclass(frozen=True)
class Life:
    """One process of a rank, from its first to its last pulse, in seconds of a clock that all nodes share."""

    name: str
    rank: str
    attempt: int
    node: str
    first: float
    last: float

    def __str__(self) -> str:
        return f"rank {self.rank} of attempt {self.attempt} on {self.node} ({self.first:.3f} to {self.last:.3f})"


def read_lives(directory: Path) -> list[Life]:
    """All of a gang whose ranks write below *directory*, in the order in which they began."""
    files = sorted(directory.iterdir()) if directory.exists() else []
    lives = [life for file in files for life in parse_lives(file.name, file.read_text().splitlines())]
    return sorted(lives, key=lambda life: life.first)


def parse_lives(rank: str, pulses: Iterable[str]) -> list[Life]:
    """The lives of one rank. Lines of several may be mixed: that is what is looked for."""
    lives: dict[str, Life] = {}
    for pulse in pulses:
        name, attempt, node, moment = pulse.split()
        at = float(moment)
        known = lives.setdefault(name, Life(name, rank, int(attempt), node, at, at))
        lives[name] = replace(known, last=at)
    return list(lives.values())


def overlaps(lives: Iterable[Life]) -> list[str]:
    """Where a rank lived twice at the same time, or two attempts did; empty is what is wanted."""
    ordered = sorted(lives, key=lambda life: life.first)
    return [
        f"{later} began before {earlier} had ended"
        for earlier, later in combinations(ordered, 2)
        if later.first <= earlier.last and (later.rank == earlier.rank or later.attempt != earlier.attempt)
    ]
