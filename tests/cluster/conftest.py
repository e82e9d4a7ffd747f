"""
An embedded cluster whose clock the test turns.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from healthd.cluster.embedded import EmbeddedCluster
from tests.fakes import ManualClock, counting_uids


@pytest.fixture
def clock() -> ManualClock:
    """Stands still until the test turns it."""
    return ManualClock()


@pytest.fixture
def cluster(clock: ManualClock) -> Iterator[EmbeddedCluster]:
    """A cluster in memory with a short history."""
    with EmbeddedCluster.open(None, clock=clock, new_uid=counting_uids(), history=200) as embedded:
        yield embedded
