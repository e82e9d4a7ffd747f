"""
The network of a lab goes when it is taken down, whatever still clings to it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.programs import wait_until
from tests.lab.real.network import Network

pytestmark = pytest.mark.lab


@pytest.fixture
def network(real_nodes_are_possible: None, tmp_path: Path) -> Iterator[Network]:
    """Up, without nodes; its API server is nowhere."""
    network = Network(tmp_path, service="10.96.0.1", port=1)
    network.start()
    yield network
    network.stop()


def test_its_link_goes_though_something_is_still_inside(network: Network) -> None:
    switch = Path(f"/proc/{network.programs[0].pid}/ns/net").readlink()
    inside = subprocess.Popen(["nsenter", f"--target={network.programs[0].pid}", "--net", "sleep", "60"])
    try:
        wait_until("inside", lambda: Path(f"/proc/{inside.pid}/ns/net").readlink() == switch, limit=10)
        link = Path("/sys/class/net") / network.link
        assert link.exists()

        network.stop()

        assert not link.exists()
    finally:
        inside.kill()
        inside.wait()
