"""What was proven once about the very same files need not be read again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from healthd.checkpoints.formats import Level
from healthd.checkpoints.tree import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a verification of one state of the files said."""

    level: Level
    format: str
    """The format that was found; empty when it was refused."""
    reason: str = ""
    members: int = 0
    """How many ranks saved it, where nothing in it says how many there must be."""


@dataclass(slots=True)
class Cache:
    """
    Proofs of this process by checkpoint path, in memory.

    A proof holds while path, size, modification time and inode of every file are the same.
    """

    _proofs: dict[tuple[str, str], tuple[bytes, Proof]] = field(default_factory=dict)

    def lookup(self, tree: Tree, declared: str, level: Level) -> Proof | None:
        """The proof of these very files, if one of at least this level is known."""
        known = self._proofs.get((str(tree.path), declared))
        if known is None or known[0] != _identity(tree):
            return None
        proof = known[1]
        if proof.reason and level is proof.level:
            return None  # the trouble may have passed without a trace in the files, such as a missing permission
        return proof if level in (Level.QUICK, proof.level) else None

    def store(self, tree: Tree, declared: str, proof: Proof) -> None:
        """Keep the proof; it replaces what was known of this path."""
        self._proofs[str(tree.path), declared] = (_identity(tree), proof)


def _identity(tree: Tree) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tree.entries):
        digest.update(repr((name, tree.entries[name])).encode())
    return digest.digest()
