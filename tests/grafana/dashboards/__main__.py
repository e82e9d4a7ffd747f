"""Write grafana/dashboards. `make docs` does it."""

from __future__ import annotations

from tests.grafana.dashboards.files import as_json, files

if __name__ == "__main__":
    for file, dashboard in files().items():
        file.write_text(as_json(dashboard))
