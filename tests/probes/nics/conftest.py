"""What the tests of all ports share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sysfs import Sysfs


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    """A machine without devices."""
    return Sysfs(tmp_path / "sys")
