"""
A process to be killed: creates leases 0, 1, 2, … in the store that its command line names, and says each when stored.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path

from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from tests.builders import a_lease
from tests.fakes import counting_uids


async def write_forever(path: Path) -> None:
    """Ends by being killed."""
    with EmbeddedCluster.open(path, clock=SystemClock(), new_uid=counting_uids()) as cluster:
        for number in itertools.count():
            await cluster.create(a_lease(f"lease-{number}"))
            print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(write_forever(Path(sys.argv[1])))
