"""Remembers proofs, so that unchanged files are not read again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from healthd.checkpoints.formats import VerifyLevel
from healthd.checkpoints.tree import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The result of verifying one state of the files."""

    level: VerifyLevel
    format: str
    """The detected format. Empty when the checkpoint was refused."""
    reason: str = ""
    members: int = 0
    """How many ranks saved it, when its files do not say how many there must be."""


@dataclass(slots=True)
class Cache:
    """
    Proofs by checkpoint path, in the memory of this process.

    A proof is valid while path, size, modification time and inode of every file are the same.
    """

    _proofs: dict[tuple[str, str], tuple[bytes, Proof]] = field(default_factory=dict)

    def lookup(self, tree: Tree, declared: str, level: VerifyLevel) -> Proof | None:
        """The proof for exactly these files, if there is one of at least this level."""
        known = self._proofs.get((str(tree.path), declared))
        if known is None or known[0] != _identity(tree):
            return None
        proof = known[1]
        if proof.reason and level is proof.level:
            return None  # the error may be gone without a change in the files, such as a missing permission
        return proof if level in (VerifyLevel.QUICK, proof.level) else None

    def store(self, tree: Tree, declared: str, proof: Proof) -> None:
        """Keep the proof. It replaces the earlier proof for this path."""
        self._proofs[str(tree.path), declared] = (_identity(tree), proof)


def _identity(tree: Tree) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tree.entries):
        digest.update(repr((name, tree.entries[name])).encode())
    return digest.digest()
