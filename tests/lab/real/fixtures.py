"""
Fixtures with real nodes. Loaded by tests/lab/fixtures.py.

A module that wants other nodes than two with one GPU each defines a fixture `real_node_count` or `real_hardware` of its
own, with scope "module". The control plane of these nodes must know when a node is silent: a module that kills kubelets
sets `Options.node_grace_seconds`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.control_plane import ControlPlane
from tests.lab.real.node import Hardware
from tests.lab.real.nodes import RealNodes
from tests.lab.real.prerequisites import NotHere, why_not

_CANNOT = "this machine cannot"
"""How tests/lab/fixtures.py recognises what a better machine would not skip."""


@pytest.fixture(scope="module")
def real_node_count() -> int:
    """How many real nodes the tests of a module have."""
    return 2


@pytest.fixture(scope="module")
def real_hardware() -> Hardware:
    """What each of them says that it has."""
    return Hardware()


@pytest.fixture(scope="module")
def real_nodes_are_possible() -> None:
    """Skips where they are not."""
    reason = why_not()
    if reason:
        pytest.skip(f"{_CANNOT}: {reason}")


@pytest.fixture(scope="module")
def real_nodes(
    real_nodes_are_possible: None, control_plane: ControlPlane, real_node_count: int, real_hardware: Hardware
) -> Iterator[RealNodes]:
    """Real nodes with the image of healthd on them, for the tests of one module."""
    try:
        nodes = RealNodes(control_plane, real_node_count, hardware=real_hardware)
        nodes.start()
    except NotHere as error:
        pytest.skip(f"{_CANNOT}: {error}")
    yield nodes
    nodes.stop()
