"""
The child that reads what users wrote: `child.py`, started by path.

Each line that it reads is an `Inquiry`, and for each it writes one line with a `Report`. What it reads may be made to
take time and memory, so it is a process that its parent can end: it has a limit of memory, and a low priority. It ends
when its parent does.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
from pathlib import Path
from queue import SimpleQueue

import msgspec

if __name__ == "__main__":
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))  # noqa: PTH100 - pathlib is loaded later

from healthd.checkpoints.cache import Cache
from healthd.checkpoints.report import Inquiry, report_on
from healthd.core.verification import fitted

MEMORY = 300 << 20
"""Bytes of data. No format needs more, whatever the files say."""
MOST_ANSWER = 64 << 10
"""Bytes of a report."""
_STACK = 1 << 20
"""Bytes for each thread, of which there are a dozen; the usual 8 MiB would count as data."""
_NICE = 5
_WORN_OUT = (100 << 20) // resource.getpagesize()
"""Pages in memory."""


def limit() -> None:
    """Bound what this process may take, for good."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.stack_size(_STACK)


def main() -> None:
    """Until the end of the input, or a look that took much."""
    limit()
    os.nice(_NICE)
    inquiries: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(inquiries,), daemon=True).start()
    cache = Cache()
    while True:
        inquiry = msgspec.json.decode(inquiries.get(), type=Inquiry)
        sys.stdout.buffer.write(fitted(report_on(inquiry, cache), MOST_ANSWER) + b"\n")
        sys.stdout.buffer.flush()
        if _pages() > _WORN_OUT:
            os._exit(0)  # what one look took is not given back, and would be missing at the next one's


def _pages() -> int:
    """In memory now. The most that there were, as `getrusage` tells it, counts those of the parent before the start."""
    return int(Path("/proc/self/statm").read_text().split()[1])


def _receive(inquiries: SimpleQueue[bytes]) -> None:
    """In a thread of its own, so that the end of the parent is seen in the middle of a look, too."""
    for line in sys.stdin.buffer:
        inquiries.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
