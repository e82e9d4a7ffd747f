"""
axe-core, the accessibility checker, from npm into the lab's cache: a test program, never part of healthd.

The archive is pinned by its hash. Without npm, or without a registry, the check is skipped, and says so.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest

from tests.lab.build import cache

VERSION = "4.14.1"
INTEGRITY = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
"""SHA-512 of the archive, as the registry gives it."""
WITHIN = 60
"""Seconds to load it: half a megabyte."""


def axe_core() -> str:
    """The source of the checker. Skips the test where it cannot be loaded."""
    kept = cache() / f"axe-core-{VERSION}.tgz"
    if not kept.exists():
        _load(kept)
    digest = base64.b64encode(hashlib.sha512(kept.read_bytes()).digest()).decode()
    assert digest == INTEGRITY, f"{kept} is not the archive that is pinned"
    with tarfile.open(kept) as archive:
        source = archive.extractfile("package/axe.min.js")
        assert source is not None
        return source.read().decode()


def _load(kept: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on this machine to load axe-core with: apt install npm")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        command = [npm, "pack", f"axe-core@{VERSION}", "--ignore-scripts", "--pack-destination", folder]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN, cwd=folder, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm did not load axe-core within {WITHIN} s")
        archives = list(Path(folder).glob("*.tgz"))
        if done.returncode or not archives:
            pytest.skip(f"npm cannot load axe-core: {done.stderr.strip()[-300:]}")
        archives[0].replace(kept)
