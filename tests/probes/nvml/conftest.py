"""A stand-in for the driver's library, built once, and a node that has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.probes.nvml.simulated_node import SimulatedNode
from tests.standin.nvml import StandIn, build


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libnvidia-ml.so.1 that does what it is set to do."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def standin(library: Path, tmp_path: Path) -> StandIn:
    return StandIn(library, tmp_path / "script")


@pytest.fixture
def world(standin: StandIn, tmp_path: Path) -> Iterator[SimulatedNode]:
    world = SimulatedNode(standin, tmp_path)
    yield world
    world.probe.close()
