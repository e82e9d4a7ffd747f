"""
A process that creates leases `<prefix>-0`, `-1`, … in a store, and says each number when it is stored.

    python -m tests.cluster.writer PATH PREFIX [COUNT]

Without COUNT it goes on until it is killed.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterable
from pathlib import Path

from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from tests.builders import a_lease
from tests.fakes import counting_uids


async def write(path: Path, prefix: str, numbers: Iterable[int]) -> None:
    """Create one lease for each of *numbers*."""
    with EmbeddedCluster.open(path, clock=SystemClock(), new_uid=counting_uids(prefix)) as cluster:
        for number in numbers:
            await cluster.create(a_lease(f"{prefix}-{number}"))
            print(number, flush=True)


if __name__ == "__main__":
    path, prefix, *count = sys.argv[1:]
    asyncio.run(write(Path(path), prefix, range(int(count[0])) if count else itertools.count()))
