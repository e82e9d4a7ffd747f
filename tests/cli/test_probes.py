"""Where the sources of readings look, by the configuration."""

from __future__ import annotations

from pathlib import Path

from healthd.cli.machine.probes import probes_of
from healthd.core.config import ProbesPolicy
from healthd.probes.host_root import HostRoot
from tests.fakes import START

PID = 4_000_000_000
"""No process has it."""


def daemons(root: Path) -> list[tuple[str, object]]:
    """What is read of NVIDIA's daemons on the host at *root*."""
    (services,) = [probe for probe in probes_of(ProbesPolicy(), HostRoot(root)) if probe.source == "services"]
    return [(reading.name, reading.value) for reading in services.sample(START).readings]


def a_daemon_that_died(root: Path) -> None:
    folder = root / "run" / "nvidia-persistenced"
    folder.mkdir(parents=True)
    (folder / "nvidia-persistenced.pid").write_text(f"{PID}\n")


def test_a_daemon_is_called_dead_only_where_the_processes_of_the_host_can_be_seen(tmp_path: Path) -> None:
    a_daemon_that_died(tmp_path)
    unseen = daemons(tmp_path)
    (tmp_path / "proc").mkdir()

    assert unseen == []
    assert daemons(tmp_path) == [("services.persistenced", "dead")]


def test_without_the_run_of_the_host_its_daemons_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()

    assert daemons(tmp_path) == []
