"""
Definitions of other projects' kinds, for tests: single files, pinned by their SHA-256, kept in the lab's cache.

A file comes from its Go module, or from its repository, which Go loads as a module. Where the module proxy of a machine
does not have it, it may be put into the cache by hand; else the tests that need it are skipped, and name the file.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.lab.build import CannotBuild, cache, locked, sources_of


@dataclass(frozen=True, kw_only=True)
class Definition:
    """One file with one CustomResourceDefinition."""

    module: str
    """A Go module, or a repository."""
    version: str
    """Of the module; of a repository a commit."""
    file: str
    sha256: str

    @property
    def kept(self) -> Path:
        """Where it lies in the cache."""
        return cache() / "definitions" / f"{self.sha256[:12]}-{Path(self.file).name}"


def definition(wanted: Definition, sources: Callable[[str, str], Path] = sources_of) -> Path:
    """The file, loaded from *sources* of a module and a version when it is not in the cache. Raises CannotBuild."""
    with locked(cache() / "definitions.lock"):
        if not wanted.kept.exists():
            _load(wanted, sources)
    if _digest(wanted.kept) != wanted.sha256:
        raise CannotBuild(f"{wanted.kept} is not the file that is pinned")
    return wanted.kept


def _load(wanted: Definition, sources: Callable[[str, str], Path]) -> None:
    try:
        found = sources(wanted.module, wanted.version) / wanted.file
    except CannotBuild as why:
        put = f"put {wanted.file} of {wanted.module} at {wanted.version} into {wanted.kept}"
        raise CannotBuild(f"{why}; {put}") from None
    if _digest(found) != wanted.sha256:
        raise CannotBuild(f"{found} is not the file that is pinned")
    wanted.kept.parent.mkdir(exist_ok=True)
    unfinished = wanted.kept.with_suffix(".new")
    shutil.copyfile(found, unfinished)
    unfinished.replace(wanted.kept)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
