"""
What every checkpoint format answers. A new format is one module beside this one and one row in `FORMATS`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from healthd.checkpoints.tree import Tree


class Level(StrEnum):
    """How much is read to prove a checkpoint."""

    QUICK = "quick"
    """Headers, indexes and sizes: finds every torn write that changed a length."""
    FULL = "full"
    """Also every byte that a checksum covers (zip CRC, manifest SHA-256). Safetensors has none: QUICK says as much."""


class Format(Protocol):
    """One way to write a checkpoint. Formats hold no state; files are reached through the tree alone."""

    @property
    def name(self) -> str:
        """As in `--format` and in reports."""
        ...

    def owns(self, filename: str) -> bool:
        """Whether a file of this name (no folders) belongs to this format."""
        ...

    def detect(self, tree: Tree) -> bool:
        """Whether the checkpoint has something of this format: then `verify` has to hold. Raises Damaged."""
        ...

    def verify(self, tree: Tree, level: Level) -> None:
        """Return when all of it will load as far as *level* can tell. Raises Damaged with the reason otherwise."""
        ...
