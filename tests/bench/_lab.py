"""A control plane with simulated nodes and healthd's own kinds, for benchmarks."""

from __future__ import annotations

import subprocess
import sys
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
        control_plane.await_definitions()
        control_plane.kubectl("create", "namespace", NAMESPACE)
        nodes = SimulatedNodes(control_plane)
        nodes.start()
        yield control_plane, nodes


@contextmanager
def controller_process(control_plane: ControlPlane, config: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """`healthd controller` as it is shipped, with the configuration *config*; its log is `controller.log`."""
    file = control_plane.directory / "healthd.yaml"
    file.write_text(config)
    healthd = [sys.executable, "-m", "healthd.cli.main", "controller", f"--kubeconfig={control_plane.kubeconfig}"]
    with (control_plane.directory / "controller.log").open("w") as log:
        process = subprocess.Popen([*healthd, f"--config={file}"], stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)
