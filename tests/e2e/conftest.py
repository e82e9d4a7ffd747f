"""The stage of one run, for every test of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.driver import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A folder with everything that a run needs."""
    stage = Stage(tmp_path)
    yield stage
    stage.close()
