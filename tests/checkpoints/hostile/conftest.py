"""One judge for the tests of a module: to start it takes longer than most answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.checkpoints.judge import Judge


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """A process that verifies, with little memory and little time."""
    with Judge() as process:
        yield process
