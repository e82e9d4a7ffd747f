"""
How soon a dead controller is paged, and how long a dead Prometheus beats on: `python -m tests.bench.dead_mans_switch`.

Rules, routes and intervals are those that are shipped and documented. Several times a Prometheus with an Alertmanager
scrapes one `healthd controller` over a lab's control plane. The controllers are killed one after the other, so that
each dies at another moment between two scrapes and two evaluations, which Prometheus keeps at the same moments.
`page_s`: from SIGKILL of the controller until a receiver has HealthdControllerAbsent. `last_beat_s`: from SIGKILL of
Prometheus until the last beat of the heartbeat; `short` with resend-delay=15s. Wall time. With an argument only one of
them: `pages` or `beats`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.bench._figures import machine, spread
from tests.grafana.stack import Controller, Monitoring
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

SAMPLES, APART = 5, 3.7
ENDED = 330.0
"""Seconds after which no alert of a dead Prometheus stands any more, and one beat more would have come."""
SHORT = ("--rules.alert.resend-delay=15s",)


def pages(folder: Path) -> dict[str, Any]:
    """Kill the controller."""
    with ControlPlane() as control_plane, ExitStack() as stack:
        controllers = [Controller(control_plane, folder / f"controller-{n}") for n in range(SAMPLES)]
        watching = _watching(stack, folder, [stack.enter_context(each).address for each in controllers], ())
        for each in watching:
            each.prometheus.wait_for("healthd_leading", limit=60)
        time.sleep(20)  # each has scraped a controller that is well more than once
        killed = []
        for controller in controllers:
            controller.kill()
            killed.append(time.monotonic())
            time.sleep(APART)
        wait_until("pages", lambda: all(each.pages("HealthdControllerAbsent") for each in watching), limit=180)
        took = [each.pages("HealthdControllerAbsent")[0].at - at for each, at in zip(watching, killed, strict=True)]
    return {"page_s": spread(took, digits=1), "pages": [round(each, 1) for each in took]}


def beats(folder: Path) -> dict[str, Any]:
    """Kill Prometheus."""
    with ExitStack() as stack:
        usual = _watching(stack, folder / "usual", ["127.0.0.1:1"] * 3, ())
        short = _watching(stack, folder / "short", ["127.0.0.1:1"] * 3, SHORT)
        wait_until("beats", lambda: all(len(each.beats) >= 4 for each in (*usual, *short)), limit=300)
        gaps = [after.at - before.at for each in (*usual, *short) for before, after in pairwise(each.beats)]
        for each in (*usual, *short):
            each.prometheus.stop()
        died = time.monotonic()
        time.sleep(ENDED)
        last = [[round(each.beats[-1].at - died, 1) for each in group] for group in (usual, short)]
    return {"between_beats_s": spread(gaps, digits=1), "last_beat_s": last[0], "last_beat_s_short": last[1]}


def _watching(stack: ExitStack, folder: Path, controllers: list[str], flags: tuple[str, ...]) -> list[Monitoring]:
    made = [Monitoring(folder / str(n), controller, flags=flags) for n, controller in enumerate(controllers)]
    return [stack.enter_context(each) for each in made]


MEASURES: dict[str, Callable[[Path], dict[str, Any]]] = {"pages": pages, "beats": beats}


def main() -> None:
    """Print one JSON object."""
    figures: dict[str, Any] = {}
    for name in sys.argv[1:] or MEASURES:
        with tempfile.TemporaryDirectory() as folder:
            figures |= MEASURES[name](Path(folder))
    print(json.dumps({**figures, "machine": machine()}, indent=2))


if __name__ == "__main__":
    main()
