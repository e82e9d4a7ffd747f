"""promtool, from the lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.grafana.promtool import Promtool
from tests.lab.build import PROMTOOL, program
from tests.lab.fixtures import get


@pytest.fixture
def promtool(request: pytest.FixtureRequest, tmp_path: Path) -> Promtool:
    """Prometheus's own judge of rules."""
    get(PROMTOOL, request)
    return Promtool(str(program(PROMTOOL)), tmp_path)
