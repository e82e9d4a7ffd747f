"""A launcher whose children have no numbers: real processes, which have used a little and then wait."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

_PROGRAM = """
import os, socket, sys, time

def work(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass

def child(number, connect):
    work(0.02 if number == 3 else 0.3)
    kept = connect(number)
    os.write(done, b".")
    os.read(stop, 1)
    os._exit(0)

def rank(number):
    if number == 0:
        return [server.accept() for _ in range(2)]
    if number == 3:
        return []
    return [socket.create_connection(server.getsockname())]

stop, keep = os.pipe()
told, done = os.pipe()
server = socket.create_server(("127.0.0.1", 0))
connect = rank
if sys.argv[1] == "trainer":  # both ends, which its loaders inherit
    ends = socket.create_connection(server.getsockname()), server.accept()
    connect = lambda number: []
pids = []
for number in range(4):
    pid = os.fork()
    if pid == 0:
        os.close(keep)
        child(number, connect)
    pids.append(pid)
for _ in pids:
    os.read(told, 1)
print(*pids, flush=True)
sys.stdin.read()
"""


class Family(NamedTuple):
    """A launcher and its children in the order of their start."""

    parent: int
    children: list[int]


@contextmanager
def a_family(kind: str) -> Iterator[Family]:
    """
    *kind* `ranks`: the first three are connected, the fourth is a helper, which has hardly worked. `trainer`: they are
    loaders of a process that is connected with itself.
    """
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield Family(process.pid, [int(word) for word in process.stdout.readline().split()])
    finally:
        process.communicate()
