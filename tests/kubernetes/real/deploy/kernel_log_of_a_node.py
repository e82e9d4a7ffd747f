"""
The opener of a node that shares its machine, and so the one kernel log, with other nodes.

It is the shipped opener: the same socket, the same rights, one descriptor for each caller. Only what the descriptor
leads to differs: a copy of the log that begins where the node was switched on, in which every record that does not
speak of the node's own device is blank. Numbers and times of all records stay, so nothing seems to be lost, and each
caller begins with the oldest, as at the device.

DEVICES names the devices as the driver prints them: `real-1=PCI:beef:01:00,real-2=PCI:beef:02:00`.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, "/opt/healthd")

BOOT_ID = "/proc/sys/kernel/random/boot_id"
LONGEST = 8192
BLANK = b"of another machine\n"


def blank_unless(own: bytes, record: bytes) -> bytes:
    """*record* as it is when it names the device *own*; else its number and time alone."""
    return record if own in record else record.partition(b";")[0] + b";" + BLANK


def answer(client: socket.socket, device: str) -> None:
    """Hand one end of a pair of sockets over, and feed the other one: a packet is a record."""
    log = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    waiting = deque(backlog(log, own_device()))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fill(ours, waiting)
    with theirs:
        socket.send_fds(client, [b"k"], [theirs.fileno()])
    os.set_blocking(log, True)
    threading.Thread(target=feed, args=(log, ours, waiting, own_device()), daemon=True).start()


def backlog(log: int, own: bytes) -> Iterator[bytes]:
    """What was written since this node was switched on."""
    since = switched_on()
    with suppress(BlockingIOError):
        while True:
            record = read(log)
            if int(record.split(b",", 3)[2]) >= since:
                yield blank_unless(own, record)


def switched_on() -> int:
    """When that was, in microseconds of the kernel's clock: each node has a boot id of its own, made then."""
    age = time.clock_gettime(time.CLOCK_REALTIME) - Path(BOOT_ID).stat().st_mtime
    return int((time.clock_gettime(time.CLOCK_MONOTONIC) - age) * 1_000_000)


def fill(to: socket.socket, waiting: deque[bytes]) -> None:
    """As much as there is room for, at once: who finds nothing more takes the next record for one written just now."""
    with suppress(BlockingIOError):
        while waiting:
            to.send(waiting[0], socket.MSG_DONTWAIT)
            waiting.popleft()


def feed(log: int, to: socket.socket, waiting: deque[bytes], own: bytes) -> None:
    """Until the reader is gone, which shows at the next record."""
    with to, suppress(BrokenPipeError):
        for record in waiting:
            to.sendall(record)
        while True:
            to.sendall(blank_unless(own, read(log)))
    os.close(log)


def read(log: int) -> bytes:
    """The next record. The kernel says EPIPE when it has overwritten what came next."""
    while True:
        with suppress(BrokenPipeError):
            return os.read(log, LONGEST)


def own_device() -> bytes:
    """As the driver prints it."""
    devices = dict(pair.split("=") for pair in os.environ["DEVICES"].split(","))
    return devices[os.environ["NODE_NAME"]].encode()


def main() -> int:
    """As the shipped opener, with another answer."""
    shipped: Any = importlib.import_module("opener")
    shipped.answer = answer
    return int(shipped.main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
