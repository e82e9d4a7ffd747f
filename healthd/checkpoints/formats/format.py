"""
The interface of every checkpoint format.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from healthd.checkpoints.tree import Tree


class VerifyLevel(StrEnum):
    """How much is read to prove a checkpoint."""

    QUICK = "quick"
    """Headers, indexes and sizes: detects every torn write that changed a length."""
    FULL = "full"
    """
    Also every byte that a checksum covers (zip CRC, manifest SHA-256). Safetensors has no checksums: QUICK proves as
    much.
    """


class Format(Protocol):
    """One way to write a checkpoint. Formats have no state and read files only through the tree."""

    @property
    def name(self) -> str:
        """The name in `--format` and in reports."""
        ...

    def owns(self, filename: str) -> bool:
        """Whether a file of this name (no folders) belongs to this format."""
        ...

    def detect(self, tree: Tree) -> bool:
        """Whether the checkpoint has files of this format. If so, `verify` must pass. Raises Damaged."""
        ...

    def verify(self, tree: Tree, level: VerifyLevel) -> None:
        """Return when all of it will load, as far as *level* can prove. Otherwise raises Damaged with the reason."""
        ...
