"""A control plane with simulated nodes and healthd's own kinds, for benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.control_plane import ControlPlane, Options
from tests.lab.simulated import SimulatedNodes

DEPLOY = Path(__file__).parents[2] / "deploy"
NAMESPACE = "healthd-system"


@contextmanager
def a_lab(options: Options | None = None) -> Iterator[tuple[ControlPlane, SimulatedNodes]]:
    """Runs until the block ends; no node is there yet."""
    with ControlPlane(options) as control_plane:
        control_plane.apply(DEPLOY / "crds.yaml")
        control_plane.kubectl("wait", "--for=condition=Established", "crd", "--all")
        control_plane.kubectl("create", "namespace", NAMESPACE)
        nodes = SimulatedNodes(control_plane)
        nodes.start()
        yield control_plane, nodes
