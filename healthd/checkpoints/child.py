"""
The child process that reads files written by users: `child.py`, started by path.

Each input line is an `Inquiry`. For each, it writes one line with a `Report`. A file may be made to take much time and
memory, so this is a process that its parent can kill: it has a memory limit, given as an argument, and a low priority.
It exits when its parent exits, and when it has been idle for a while.
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
"""Bytes of data. No format needs more, whatever the files claim."""
ROOMY = 0.75
"""
When a check takes a larger part of the limit, its failure may be due to the limit. It is left to a larger process.
"""
IDLE = 120.0
"""Seconds without an inquiry."""
OUT_OF_ROOM = 3
"""Exit status when it leaves a check to a larger process."""
MOST_ANSWER = 64 << 10
"""Bytes of a report."""
_STACK = 1 << 20
"""Bytes for each of about twelve threads. The usual 8 MiB would count as data."""
_NICE = 5


def limit(memory: int = MEMORY) -> None:
    """Limit the resources of this process, permanently."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.stack_size(_STACK)


def main(memory: int = MEMORY, idle: float = IDLE) -> None:
    """Run until the end of the input, a check that took much memory, or *idle* seconds without an inquiry."""
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
    """The peak memory in bytes. `getrusage` would include the parent's memory before the start."""
    status = Path("/proc/self/status").read_text()
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:")), 0)


def _receive(inquiries: SimpleQueue[bytes]) -> None:
    """Read inquiries in a separate thread, so that the end of the parent is seen during a check, too."""
    for line in sys.stdin.buffer:
        inquiries.put(line)
    os._exit(0)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
