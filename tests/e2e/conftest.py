"""The stage of one run, for every test of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.driver import RunFolder


@pytest.fixture
def run_folder(tmp_path: Path) -> Iterator[RunFolder]:
    """A folder with everything that a run needs."""
    run_folder = RunFolder(tmp_path)
    yield run_folder
    run_folder.close()
