"""What holds for every test: no task outlives it, and tests of the one kernel log run one after the other."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import tempfile
from collections.abc import AsyncIterator

import pytest
from hypothesis import settings

from tests.seeds import first_fresh_seed

pytest_plugins = [
    "pytester",
    "tests.lab.fixtures",
    "tests.lab.kinds.fixtures",
    "tests.lab.real.fixtures",
    "tests.limits",
    "tests.reruns",
]

# The same examples in each run, and no clock on them: a test must not fail for luck or for a busy machine. `tests.fuzz`
# is what looks for news.
settings.register_profile("everyday", derandomize=True, deadline=None, database=None)
settings.load_profile("everyday")

_LONG_GROUPS = ("lab of kubernetes", "lab of deploy", "dead kubelet", "lab of gangs", "kmsg", "monitoring", "history")
"""Groups that take minutes, those first that must begin first: the others fill what is left of the workers' time."""
_LONGEST_NAME = 100
_LONGEST_FOLDER = 24
_TURNS = 5
"""Turns of the loop in which a task that was cancelled last may still end."""


def pytest_report_header() -> str:
    """Which inputs only this commit is tested with."""
    return f"fresh seeds of this commit: from {first_fresh_seed()} on"


def pytest_configure() -> None:
    """
    Hear what a shell, in the background or under nohup, lets the tests ignore: some send these to themselves. Sockets
    lie in folders of tests, and their paths may have 107 characters.
    """
    if len(tempfile.gettempdir()) > _LONGEST_FOLDER:
        tempfile.tempdir = os.environ["TMPDIR"] = "/tmp"
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Keep what shares something of the machine on one worker of pytest-xdist: its kernel log, or its memory. The tests of
    the lab in one folder take a control plane after the other, so there is at most one for each worker.

    A module of the lab that mostly waits has a group of its own: another worker takes it beside the others. Long groups
    come first (with `--no-loadscope-reorder`), so that none is left for the end, when it would run alone.
    """
    for item in items:
        if item.get_closest_marker("kmsg"):
            item.add_marker(pytest.mark.xdist_group("kmsg"))
        elif item.get_closest_marker("lab"):
            item.add_marker(pytest.mark.xdist_group(f"lab of {_folder(item)}"))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """The groups in order, then the other groups, then what has none."""
    marks = [mark.args[0] for mark in item.iter_markers("xdist_group")]
    if not marks:
        return len(_LONG_GROUPS) + 1
    return _LONG_GROUPS.index(marks[-1]) if marks[-1] in _LONG_GROUPS else len(_LONG_GROUPS)


def _folder(item: pytest.Item) -> str:
    """The folder of tests that it is in."""
    return item.nodeid.split("/")[1]


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A case that is a whole file or page is named by its length: no person can read it, and workers compare names."""
    return f"{argname} of {len(val)}" if isinstance(val, bytes | str) and len(val) > _LONGEST_NAME else None


@pytest.fixture(autouse=True)
def _kernel_log_is_not_shared(request: pytest.FixtureRequest) -> None:
    """pytest-xdist forgets its groups in silence with a pytest that it does not know."""
    grouping = getattr(request.config.option, "loadgroup", False)
    if grouping and request.node.get_closest_marker("kmsg") and not request.node.nodeid.endswith("@kmsg"):
        pytest.fail("pytest-xdist ignored the group of this test: see pytest in pyproject.toml", pytrace=False)


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(request: pytest.FixtureRequest) -> None:
    """Set up before the fixtures that a test names, and so torn down after them: their tasks must have ended too."""
    if isinstance(request.node, pytest.Function) and inspect.iscoroutinefunction(request.node.obj):
        request.getfixturevalue("no_leaked_tasks")


@pytest.fixture
async def no_leaked_tasks() -> AsyncIterator[None]:
    """Fails the test when it leaves an asyncio task running."""
    before = asyncio.all_tasks()
    yield
    ours = {task for task in (asyncio.current_task(),) if task}
    left = asyncio.all_tasks() - before - ours
    for _ in range(_TURNS):
        if not left:
            return
        await asyncio.sleep(0)
        left = {task for task in left if not task.done()}
    names = ", ".join(sorted(repr(task.get_coro()) for task in left))
    if left:
        pytest.fail(f"tasks still run after the test: {names}", pytrace=False)
