"""Write docs/monitoring/dashboards from a played history. It needs the lab's Prometheus, and a minute."""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import structlog

from tests.grafana.history.prometheus import with_history
from tests.grafana.pictures.files import pictures
from tests.lab.build import CannotBuild


def main() -> int:
    """Write them all. 1 where this machine has no Prometheus."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as folder:
        try:
            history = with_history(Path(folder) / "history")
        except CannotBuild as why:
            print(f"the pictures of the dashboards are left as they are: {why}", file=sys.stderr)
            return 1
        with history:
            for file, text in pictures(history).items():
                file.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
