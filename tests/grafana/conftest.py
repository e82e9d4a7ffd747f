"""promtool, from the lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.grafana.promtool import Promtool
from tests.lab.build import program
from tests.lab.fixtures import get
from tests.lab.modules import PROMETHEUS


@pytest.fixture
def promtool(request: pytest.FixtureRequest, tmp_path: Path) -> Promtool:
    """Prometheus's own judge of rules."""
    get(PROMETHEUS, request)
    return Promtool(str(program(PROMETHEUS, "promtool")), tmp_path)
