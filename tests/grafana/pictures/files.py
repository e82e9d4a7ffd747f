"""Where the pictures are, and what is chosen in each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.grafana.dashboards.files import DASHBOARDS
from tests.grafana.history.prometheus import HistoryPrometheus
from tests.grafana.pictures.page import picture

FOLDER = Path(__file__).parents[3] / "docs" / "monitoring" / "dashboards"
CHOSEN: Mapping[str, str] = {
    "domain": "label_topology_kubernetes_io_zone",
    "node": "gpu-04",
    "namespace": "team-a",
    "gang": "llama-70b",
    "runbooks": "",
}


def pictures(prometheus: HistoryPrometheus) -> dict[Path, str]:
    """File -> text, for every dashboard."""
    return {
        FOLDER / f"{dashboard.uid.removeprefix('healthd-')}.svg": picture(prometheus, dashboard, CHOSEN)
        for dashboard in DASHBOARDS
    }
