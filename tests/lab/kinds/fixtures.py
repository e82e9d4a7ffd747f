"""
Fixtures for tests of gang kinds: the controllers of one kind at a time, stopped when no test needs them any more.

`@pytest.mark.parametrize("kind", of_kinds(), indirect=True)` makes a test of each kind. Kinds whose controllers
`make lab` does not build are tried with `--all-kinds` only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.lab.control_plane import ControlPlane
from tests.lab.fixtures import CANNOT, get
from tests.lab.kinds.controllers import CONTROLLERS
from tests.lab.kinds.gangs import KINDS
from tests.lab.kinds.private import CannotMount
from tests.lab.programs import Program

ALL_KINDS = "all_kinds"
"""The mark of tests that need a controller which `make lab` does not build."""
WRITE = "--write-results"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--all-kinds`, `--write-results`."""
    parser.addoption("--all-kinds", action="store_true", help="also test kinds whose controllers `make lab` leaves out")
    parser.addoption(WRITE, action="store_true", help="write into docs/gangs.md how the kinds fared in their scenarios")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what was not asked for."""
    if config.getoption("--all-kinds"):
        return
    left_out = [item for item in items if item.get_closest_marker(ALL_KINDS)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def of_kinds(names: Iterable[str] = KINDS) -> list[Any]:
    """Parameters for `controllers_of`: names of kinds, each with its mark."""
    return [pytest.param(name, marks=() if is_usual(name) else (getattr(pytest.mark, ALL_KINDS),)) for name in names]


def is_usual(kind: str) -> bool:
    """Whether `make lab` builds all of its controllers."""
    return all(CONTROLLERS[name].is_usual for name in KINDS[kind].controllers)


class Controllers:
    """Those that run beside one control plane; each is started when it is needed first."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        self._running: dict[str, AbstractContextManager[Program]] = {}
        self.programs: dict[str, Program] = {}

    def only(self, names: tuple[str, ...]) -> None:
        """Exactly these run, in this order. Raises LabError, CannotBuild, CannotMount."""
        # Those that start later than one that is new start again: they look for its kinds when they start.
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(names, self._running, strict=False))
        kept = [name for name, _ in same]
        for name in [name for name in reversed(self._running) if name not in kept]:
            self.programs.pop(name)
            self._running.pop(name).__exit__(None, None, None)
        for name in names:
            if name not in self._running:
                starting = CONTROLLERS[name].start(self._control_plane)
                self.programs[name] = starting.__enter__()
                self._running[name] = starting


@pytest.fixture(scope="module")
def controllers(control_plane: ControlPlane) -> Iterator[Controllers]:
    """None yet."""
    running = Controllers(control_plane)
    yield running
    running.only(())


@pytest.fixture(scope="module")
def kind(request: pytest.FixtureRequest, controllers: Controllers) -> str:
    """The name of a kind, with its controllers running."""
    name: str = request.param
    needed = KINDS[name].controllers
    for module in (module for each in needed for module in CONTROLLERS[each].modules):
        get(module, request)
    try:
        controllers.only(needed)
    except CannotMount as why:
        pytest.skip(f"{CANNOT}: {why}")
    return name
