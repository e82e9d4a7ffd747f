"""
Seeds of tests that take one. The fresh ones, that the code was never tuned to, follow from the commit that is tested.

The same commit is tested with the same seeds, wherever and however often. What they find gets a name, as a scenario.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("healthd", "tests")
FIRST, ROOM = 1_000_000_000, 1_000_000_000
"""Far from all seeds that were ever looked at."""
PIECE = 125


@cache
def first_fresh_seed(root: Path = ROOT) -> int:
    """The first seed of the tree at *root*: of its commit, or of its sources where it has none (a tarball)."""
    version = _commit(root) or _digest(root)
    return FIRST + int(version[:12], 16) % ROOM


def pieces(first: int, count: int) -> list[range]:
    """*count* seeds from *first* on, in pieces that workers take."""
    return [range(seed, seed + PIECE) for seed in range(first, first + count, PIECE)]


def name_of(seeds: range) -> str:
    """What a test of these seeds is called."""
    return f"seeds {seeds.start} to {seeds.stop - 1}"


def _commit(root: Path) -> str:
    """The commit that is checked out in *root*; empty where *root* is no work tree of its own."""
    if not (root / ".git").exists():
        return ""
    try:
        said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return said.stdout.strip()


def _digest(root: Path) -> str:
    return hashlib.sha256(b"".join(_sources(root))).hexdigest()


def _sources(root: Path) -> Iterator[bytes]:
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*.py")):
            yield path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0"
