"""
Prometheus with the shipped rules, Alertmanager with the example's routes, and a receiver for what they send.

Rules, routes and scrape intervals are those that are documented. Nothing is made faster.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import yaml

from healthd.cluster.crds import definitions
from tests import quick_yaml
from tests.deploy.accounts import bind_controller
from tests.grafana.promtool import FILES
from tests.grafana.routes import example
from tests.lab.alertmanager import Alertmanager
from tests.lab.control_plane import ControlPlane
from tests.lab.endpoint import Endpoint, Sent
from tests.lab.programs import Program, free_port
from tests.lab.prometheus import Prometheus, static

CONTROLLERS_EVERY, AGENTS_EVERY = "15s", "30s"
"""Scrape intervals of docs/monitoring/README.md and of deploy/components/monitoring."""


class Monitoring:
    """From the metrics at *controller* to what arrives: `pages` and `beats`. There is one agent, which is well."""

    def __init__(self, folder: Path, controller: str, *, flags: tuple[str, ...] = ()) -> None:
        self._running = ExitStack()
        self.receiver = Endpoint()
        self._agent = Endpoint({"/metrics": ""})
        self.alertmanager = Alertmanager(folder / "am", example(lambda name: f"http://{self.receiver.address}/{name}"))
        self.prometheus = Prometheus(
            folder / "prometheus",
            scrape=[
                static("healthd-controller", controller, every=CONTROLLERS_EVERY),
                static("healthd-agent", self._agent.address, every=AGENTS_EVERY),
            ],
            rules=FILES,
            alertmanagers=[self.alertmanager.address],
            every="15s",
            flags=flags,
        )

    def __enter__(self) -> Self:
        for each in (self.receiver, self._agent, self.alertmanager, self.prometheus):
            self._running.enter_context(each)
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def beats(self) -> list[Sent]:
        """What the heartbeat service got."""
        return self.receiver.to("/heartbeat")

    def pages(self, alert: str) -> list[Sent]:
        """What the pager got about *alert*."""
        return [sent for sent in self.receiver.to("/on-call") if alert in _firing(sent.json)]

    def paged(self) -> set[str]:
        """Every alert that the pager got."""
        return {name for sent in self.receiver.to("/on-call") for name in _firing(sent.json)}


def _firing(body: dict[str, Any]) -> list[str]:
    return [alert["labels"]["alertname"] for alert in body["alerts"] if alert["status"] == "firing"]


class Controller:
    """`healthd controller` as a process, with the rights that are shipped, and its metrics at *address*."""

    def __init__(self, control_plane: ControlPlane, folder: Path, *, config: dict[str, Any] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        control_plane.apply(quick_yaml.dump_all(definitions()))
        control_plane.await_definitions()
        token = bind_controller(control_plane)
        kubeconfig = control_plane.write_kubeconfig(folder / "kubeconfig", token)
        (folder / "healthd.yaml").write_text(yaml.safe_dump(config or {}))
        self.address = f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "healthd.cli.main", "controller", f"--kubeconfig={kubeconfig}"]
        command += [f"--config={folder / 'healthd.yaml'}", f"--metrics={self.address}"]
        self._program = Program("healthd controller", command, log=folder / "controller.log")

    def __enter__(self) -> Self:
        self._program.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._program.stop()

    def kill(self) -> None:
        """SIGKILL; returns when it has ended."""
        self._program.stop()
