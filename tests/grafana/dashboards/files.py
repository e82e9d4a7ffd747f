"""Where each dashboard is kept, and its text."""

from __future__ import annotations

import json
from pathlib import Path

from tests.grafana.dashboards import fleet, job, node, on_call, recoveries
from tests.grafana.dashboards.model import Dashboard
from tests.grafana.dashboards.schema import json_of

FOLDER = Path(__file__).parents[3] / "grafana" / "dashboards"
DASHBOARDS = (fleet.DASHBOARD, recoveries.DASHBOARD, node.DASHBOARD, job.DASHBOARD, on_call.DASHBOARD)
"""In the order in which people look at them."""


def files() -> dict[Path, Dashboard]:
    """File -> dashboard."""
    return {FOLDER / f"{one.uid.removeprefix('healthd-')}.json": one for one in DASHBOARDS}


def as_json(dashboard: Dashboard) -> str:
    """The text of a file, in the order of the script: a diff shows what changed."""
    return json.dumps(json_of(dashboard), indent=2, ensure_ascii=False) + "\n"
