"""
The child that reads what users wrote: `child.py`, started by path.

Each line that it reads is an `Inquiry`, and for each it writes one line with a `Report`. What it reads may be made to
take time and memory, so it is a process that its parent can end: it has a limit of memory, which its argument says, and
a low priority. It ends when its parent does, and when it has had nothing to do for a while.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec

if __name__ == "__main__":
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))  # noqa: PTH100 - pathlib is loaded later

from healthd.checkpoints.cache import Cache
from healthd.checkpoints.report import Inquiry, report_on
from healthd.core.checkpoint.verification import fitted

MEMORY = 300 << 20
"""Bytes of data. No format needs more, whatever the files say."""
ROOMY = 0.75
"""A look that took a larger part of what there may be was perhaps spoiled by that. It is left to a larger process."""
IDLE = 120.0
"""Seconds without an inquiry."""
OUT_OF_ROOM = 3
"""Status at the end of one that leaves a look to a larger process."""
MOST_ANSWER = 64 << 10
"""Bytes of a report."""
_STACK = 1 << 20
"""Bytes for each thread, of which there are a dozen; the usual 8 MiB would count as data."""
_NICE = 5


def limit(memory: int = MEMORY) -> None:
    """Bound what this process may take, for good."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.stack_size(_STACK)


def main(memory: int = MEMORY, idle: float = IDLE) -> None:
    """Until the end of the input, a look that took much, or *idle* seconds without any."""
    limit(memory)
    os.nice(_NICE)
    inquiries: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(inquiries,), daemon=True).start()
    cache = Cache()
    with suppress(Empty):
        while True:
            inquiry = msgspec.json.decode(inquiries.get(timeout=idle), type=Inquiry)
            answer = fitted(report_on(inquiry, cache), MOST_ANSWER)
            if memory < MEMORY and _peak() > ROOMY * memory:
                os._exit(OUT_OF_ROOM)
            sys.stdout.buffer.write(answer + b"\n")
            sys.stdout.buffer.flush()
    os._exit(0)


def _peak() -> int:
    """The most bytes in memory so far. `getrusage` would count those of the parent before the start."""
    told = Path("/proc/self/status").read_text()
    return next((int(line.split()[1]) << 10 for line in told.splitlines() if line.startswith("VmHWM:")), 0)


def _receive(inquiries: SimpleQueue[bytes]) -> None:
    """In a thread of its own, so that the end of the parent is seen in the middle of a look, too."""
    for line in sys.stdin.buffer:
        inquiries.put(line)
    os._exit(0)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
