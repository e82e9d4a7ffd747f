"""
A real Alertmanager for tests, and its `amtool`.

    with Alertmanager(folder, route) as alertmanager:
        alertmanager.alerts()

Its web page is empty. Several that are given each other's addresses are replicas of one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Self

import yaml

from tests.lab import web
from tests.lab.build import program
from tests.lab.modules import ALERTMANAGER
from tests.lab.programs import Program, free_port


class Held(NamedTuple):
    """One alert that Alertmanager holds and that has not ended."""

    labels: dict[str, str]
    annotations: dict[str, str]
    starts: datetime
    ends: datetime
    state: str
    """`active`, `suppressed` or `unprocessed`."""
    silenced_by: list[str]
    inhibited_by: list[str]
    receivers: list[str]

    @property
    def name(self) -> str:
        """Its label `alertname`."""
        return self.labels.get("alertname", "")


class Alertmanager:
    """
    One Alertmanager with its own storage and log in *folder*.

    *config* is a configuration, or the file of one. *cluster* is the address at which other replicas reach it, and
    *peers* are theirs; `replicas` makes several.
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any] | Path,
        *,
        cluster: str = "",
        peers: Sequence[str] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.address}"
        if isinstance(config, Path):
            self.config = config
        else:
            self.config = folder / "alertmanager.yml"
            self.config.write_text(yaml.safe_dump(dict(config)))
        self._program = Program("alertmanager", self._command(folder, cluster, peers), log=folder / "alertmanager.log")

    def _command(self, folder: Path, cluster: str, peers: Sequence[str]) -> list[str]:
        return [
            str(program(ALERTMANAGER)),
            f"--config.file={self.config}",
            f"--storage.path={folder / 'storage'}",
            f"--web.listen-address={self.address}",
            f"--cluster.listen-address={cluster}",
            *(f"--cluster.peer={peer}" for peer in peers),
            "--cluster.settle-timeout=1s",
            "--cluster.peer-timeout=500ms",  # so long the second waits for what the first notifies; usually 15 s
            "--log.level=warn",
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and return when it takes alerts. Raises LabError."""
        self._program.start()
        self._program.wait_until("ready", lambda: web.is_ready(self.port), limit=30)

    def stop(self) -> None:
        """Kill it. Silences and what it has sent are kept as of its last snapshot; alerts are not."""
        self._program.stop()

    def alerts(self, *matchers: str) -> list[Held]:
        """The alerts that have not ended, such as with the matcher `severity="page"`."""
        found = web.get(self.port, "/api/v2/alerts", filter=list(matchers))
        return sorted((_held(each) for each in found), key=lambda each: sorted(each.labels.items()))

    def send(self, *alerts: Mapping[str, Any]) -> None:
        """Post alerts as they are."""
        web.ask(self.port, "POST", "/api/v2/alerts", list(alerts))

    def silence(self, now: datetime, lasts: timedelta = timedelta(hours=1), **labels: str) -> str:
        """Silence what has all of *labels* from *now* on; the ID of the silence."""
        matchers = [{"name": name, "value": value, "isRegex": False, "isEqual": True} for name, value in labels.items()]
        times = {"startsAt": now.isoformat(), "endsAt": (now + lasts).isoformat()}
        made = web.ask(
            self.port, "POST", "/api/v2/silences", {"matchers": matchers, "createdBy": "lab", "comment": "-", **times}
        )
        return str(made["silenceID"])

    def silences(self) -> list[str]:
        """The IDs of the silences that are in force."""
        found = web.get(self.port, "/api/v2/silences")
        return [each["id"] for each in found if each["status"]["state"] == "active"]

    def peers(self) -> list[str]:
        """The addresses of all replicas that it knows, with its own."""
        return [each["address"] for each in web.get(self.port, "/api/v2/status")["cluster"].get("peers", [])]

    def metric(self, name: str) -> float:
        """One of its own metrics without labels; 0 where it is not shown."""
        lines = web.exchange(self.port, "GET", "/metrics")[1].decode().splitlines()
        return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    def wait_until(self, what: str, holds: Callable[[], object], *, limit: float = 20) -> None:
        """Return when *holds* answers true. Raises LabError after *limit* seconds, with the end of the log."""
        self._program.wait_until(what, holds, limit=limit)


def replicas(folder: Path, config: Mapping[str, Any], count: int = 2) -> list[Alertmanager]:
    """Replicas of one Alertmanager. None is started."""
    ports = [f"127.0.0.1:{free_port()}" for _ in range(count)]
    return [
        Alertmanager(folder / f"replica-{n}", config, cluster=port, peers=[each for each in ports if each != port])
        for n, port in enumerate(ports)
    ]


def _held(alert: Mapping[str, Any]) -> Held:
    status = alert["status"]
    return Held(
        alert["labels"],
        alert["annotations"],
        datetime.fromisoformat(alert["startsAt"]),
        datetime.fromisoformat(alert["endsAt"]),
        status["state"],
        status["silencedBy"],
        status["inhibitedBy"],
        [each["name"] for each in alert["receivers"]],
    )


def amtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What amtool answers."""
    command = [str(program(ALERTMANAGER, "amtool")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
