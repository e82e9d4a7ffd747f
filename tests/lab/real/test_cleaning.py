"""
Nothing of a real node outlives its lab: no process, mount, cgroup, link, route or directory, even after a crash.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import build
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until
from tests.lab.real.nodes import RealNodes, sweep
from tests.lab.real.pods import Pods, container, spec

pytestmark = [pytest.mark.lab, pytest.mark.slow]

_CRASH = """
import os, sys
from pathlib import Path
from tests.lab.control_plane import ControlPlane
from tests.lab.real.nodes import RealNodes
from tests.lab.real.pods import Pods, container, spec

control_plane = ControlPlane()
control_plane.start()
nodes = RealNodes(control_plane, 1, at=Path(sys.argv[1]))
nodes.start()
pods = Pods(control_plane, "default")
pods.start("it", spec(container("sleep", "1000")))
pods.await_phase("it", "Running")
print(nodes.directory.name, nodes.network.link, flush=True)
os.kill(os.getpid(), 9)
"""


NOTHING: dict[str, list[str]] = {"processes": [], "mounts": [], "cgroups": [], "links": [], "routes": [], "files": []}


@pytest.fixture
def apart(real_nodes_are_possible: None) -> Iterator[Path]:
    """A place for nodes, away from those that stay for people, on the file system where they can be."""
    with tempfile.TemporaryDirectory(dir=build.cache()) as place:
        yield Path(place)
        sweep(Path(place))


def a_lab_that_crashes(at: Path) -> tuple[str, str]:
    """Run one node with a pod, and die; answers the name of the lab and of its link."""
    done = subprocess.run([sys.executable, "-c", _CRASH, at], stdout=subprocess.PIPE, text=True, check=False)
    name, link = done.stdout.split()
    return name, link


def traces(at: Path, lab: str, link: str) -> dict[str, list[str]]:
    """What this machine has of a lab."""
    return {
        "processes": [str(path) for path in Path("/proc").glob("[0-9]*/cgroup") if lab in _read(path)],
        "mounts": [line for line in _read(Path("/proc/self/mounts")).splitlines() if lab in line],
        "cgroups": [str(path) for path in Path("/sys/fs/cgroup").rglob(f"healthd-lab-{lab}-*")],
        "links": [line for line in _ip("link") if line.startswith(f"{link}@")],
        "routes": [line for line in _ip("route") if f" {link} " in line],
        "files": [str(path) for path in at.iterdir()],
    }


def left(found: dict[str, list[str]]) -> set[str]:
    """Of what there is something."""
    return {what for what, traced in found.items() if traced}


def _ip(what: str) -> list[str]:
    return subprocess.run(["ip", "-brief", what], capture_output=True, text=True, check=True).stdout.splitlines()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process ended
        return ""


def test_nothing_is_left_of_nodes_that_were_stopped(control_plane: ControlPlane, namespace: str, apart: Path) -> None:
    with RealNodes(control_plane, 1, at=apart) as nodes:
        pods = Pods(control_plane, namespace)
        pods.start("it", spec(container("sleep", "1000")))
        pods.await_phase("it", "Running")
        there = traces(apart, nodes.directory.name, nodes.network.link)

    assert left(there) == NOTHING.keys() - {"mounts"}
    assert traces(apart, nodes.directory.name, nodes.network.link) == NOTHING


def test_a_crash_ends_everything_at_once_and_the_next_lab_removes_the_rest(apart: Path) -> None:
    lab, link = a_lab_that_crashes(apart)

    # The kernel ends the processes at once, and takes a moment for what they had.
    wait_until("nothing is in use", lambda: left(traces(apart, lab, link)) == {"cgroups", "files"}, limit=20)

    sweep(apart)
    assert traces(apart, lab, link) == NOTHING


def test_the_crash_of_one_lab_leaves_another_alone(control_plane: ControlPlane, apart: Path) -> None:
    with RealNodes(control_plane, 1, at=apart) as nodes:
        processes = nodes[0].machine.cgroup.processes()
        _, link = a_lab_that_crashes(apart)
        sweep(apart)

        assert link != nodes.network.link
        assert processes <= nodes[0].machine.cgroup.processes()
