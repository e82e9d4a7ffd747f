"""
For tests with real processes: ranks that misbehave, and a witness that knows whether any of them still lives.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from healthd.cluster.port import Cluster
from healthd.core.api import Container, Pod, Slim
from healthd.local.processes.marks import readable
from healthd.local.processes.runner import ProcessRunner

T = TypeVar("T", bound=Slim)
PATIENCE = 20.0
"""Seconds after which a test that waits has failed; none is expected to need a tenth of it."""


class Witness:
    """
    A named pipe that ranks hold open for writing and never close: its end of file means that all of them are gone.

    Descriptors survive fork, exec, setsid and a cleared environment, so this proof shares nothing with healthd's own.
    """

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._unread = b""

    def close(self) -> None:
        """Let go of the pipe."""
        os.close(self._fd)

    async def hear(self) -> str:
        """The next line that a rank writes."""
        async with asyncio.timeout(PATIENCE):
            while b"\n" not in self._unread:
                await readable(self._fd)  # also between two writers, when there is nothing to read
                self._read()
        line, self._unread = self._unread.split(b"\n", 1)
        return line.decode()

    async def silence(self) -> None:
        """Return when every process that held the pipe has ended."""
        async with asyncio.timeout(PATIENCE):
            while not self.is_alone():
                await readable(self._fd)

    @property
    def unheard(self) -> str:
        """What ranks wrote beyond the lines that were heard."""
        return self._unread.decode()

    def is_alone(self) -> bool:
        """No process holds the pipe now."""
        return self._read()

    def _read(self) -> bool:
        """Whether what there was to read ended with the end of the file."""
        try:
            while data := os.read(self._fd, 4096):
                self._unread += data
        except BlockingIOError:
            return False
        return True


@contextmanager
def witness_at(path: Path) -> Iterator[Witness]:
    """A witness, closed at the end."""
    witness = Witness(path)
    try:
        yield witness
    finally:
        witness.close()


STUBBORN = """
import os, signal, sys

def linger(witness):
    while True:
        signal.pause()

def linger_unmarked(witness):
    os.set_inheritable(witness, True)
    os.execve("/bin/sleep", ["sleep", "1000"], {})

witness, last = os.open(sys.argv[1], os.O_WRONLY), sys.argv[2]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    os.write(witness, f"grandchild {os.getpid()}\\n".encode())
    {"marked": linger, "unmarked": linger_unmarked}[last](witness)
os.wait()
os.write(witness, f"rank {os.getpid()}\\n".encode())
if last == "marked" and sys.argv[3:] == ["leave"]:
    sys.exit(int(os.environ.get("EXIT_CODE", "0")))
linger(witness)
"""
"""A rank that ignores SIGTERM, with a grandchild in a session of its own that does so, too."""


def python(script: str, *arguments: str | Path) -> list[str]:
    """The command that runs *script*."""
    return [sys.executable, "-I", "-S", "-c", script, *map(str, arguments)]


def stubborn(witness: Witness, last: str = "marked", *options: str) -> list[str]:
    """The command of a stubborn rank; with *last* `unmarked`, its grandchild has thrown its environment away."""
    return python(STUBBORN, witness.path, last, *options)


def shell(script: str, *arguments: str | Path) -> list[str]:
    """The command that runs *script* in sh; its `$1` is the first of *arguments*."""
    return ["sh", "-c", script, "sh", *map(str, arguments)]


def running(command: list[str]) -> Container:
    """A container of *command*."""
    return Container(name="main", image="local", command=command)


async def heard_pids(witness: Witness) -> dict[str, int]:
    """What a stubborn rank says: the pids of `rank` and `grandchild`."""
    words = [(await witness.hear()).split() for _ in range(2)]
    return {who: int(pid) for who, pid in words}


def parent_of(pid: int) -> int:
    """The parent of a process; of a rank: its shim."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop process *pid* by SIGSTOP. At the end it goes on, if it has not ended."""
    handle = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(handle, signal.SIGSTOP)
        yield
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGCONT)
        os.close(handle)


async def until(cluster: Cluster, kind: type[T], name: str, is_so: Callable[[T], bool], namespace: str = "") -> T:
    """The object as soon as *is_so*: no polling, a watch."""
    async with asyncio.timeout(PATIENCE):
        listed = await cluster.list(kind)
        for obj in listed.items:
            metadata: Any = getattr(obj, "metadata")  # noqa: B009 - every kind has it, the base does not say so
            if metadata.name == name and metadata.namespace == namespace and is_so(obj):
                return obj
        events: Any = cluster.watch(kind, since=listed.resource_version)
        async with aclosing(events):
            async for event in events:
                if event.obj is not None and event.obj.metadata.name == name and is_so(event.obj):
                    found: T = event.obj
                    return found
    raise AssertionError("a watch has no end")


async def until_gone(cluster: Cluster, name: str) -> None:
    """Return when pod *name* is no more."""
    async with asyncio.timeout(PATIENCE):
        listed = await cluster.list(Pod)
        if all(pod.metadata.name != name for pod in listed.items):
            return
        events: Any = cluster.watch(Pod, since=listed.resource_version)
        async with aclosing(events):
            async for event in events:
                if event.type == "DELETED" and event.obj.metadata.name == name:
                    return


@asynccontextmanager
async def in_background(runner: ProcessRunner) -> AsyncIterator[None]:
    """Run *runner* meanwhile, and leave no process behind."""
    task = asyncio.create_task(runner.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runner.shutdown(timedelta(0))
