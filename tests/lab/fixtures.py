"""
Fixtures of the lab, for every test: a control plane per test module, a namespace per test.

A module that wants another control plane than the usual one defines a fixture `control_plane_options` of its own, with
scope "module". What a machine cannot do is skipped with the reason, and counted at the end of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.build import CannotBuild, program
from tests.lab.control_plane import ControlPlane, Options
from tests.lab.jobset import start_jobset
from tests.lab.modules import CONTROL_PLANE, JOBSET, KWOK, Module
from tests.lab.simulated import SimulatedNodes

pytest_plugins = ["tests.lab.real.fixtures"]

CANNOT = "this machine cannot"
"""How the reason of a skip begins that a better machine would not have; `pytest_terminal_summary` counts these."""


def get(module: Module, request: pytest.FixtureRequest) -> None:
    """Have a program built where it is not yet, in sight of who waits; skip the test where it cannot be built."""
    capture: Any = request.config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():
            program(module)
    except CannotBuild as why:
        pytest.skip(f"{CANNOT}: {why}")


@pytest.fixture(scope="module")
def control_plane_options() -> Options:
    """The usual control plane: nothing is throttled, no node goes unready by itself."""
    return Options()


@pytest.fixture(scope="session")
def built_control_plane(request: pytest.FixtureRequest) -> None:
    """The programs of a control plane are there; for tests that start one themselves."""
    get(CONTROL_PLANE, request)


@pytest.fixture(scope="module")
def control_plane(built_control_plane: None, control_plane_options: Options) -> Iterator[ControlPlane]:
    """A real control plane without nodes, for the tests of one module."""
    with ControlPlane(control_plane_options) as running:
        yield running


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace of one test's own; it goes afterwards with all that is in it, in its own time."""
    name = control_plane.new_namespace()
    yield name
    control_plane.api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="module")
def simulated_nodes(request: pytest.FixtureRequest, control_plane: ControlPlane) -> SimulatedNodes:
    """Nothing but the means to add nodes: `simulated_nodes.add(140)`. What is added stays for the module."""
    get(KWOK, request)
    nodes = SimulatedNodes(control_plane)
    nodes.start()
    return nodes


@pytest.fixture(scope="module")
def jobset_controller(request: pytest.FixtureRequest, control_plane: ControlPlane) -> None:
    """The kind JobSet, with its real controller."""
    get(JOBSET, request)
    start_jobset(control_plane)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was left out because of the machine, so that a green run is not taken for a whole one."""
    skipped = terminalreporter.stats.get("skipped", [])
    cannot = sum(CANNOT in str(report.longrepr) for report in skipped)
    if cannot:
        terminalreporter.section("left out", yellow=True)
        terminalreporter.line(f"{cannot} tests were skipped because {CANNOT} run them; the reasons stand above")
