"""
Python stacks of ranks, by py-spy where it is installed. Without it there are no stacks, and nothing else is missing.

py-spy reads the memory of the process and does not pause it (`--nonblocking`), so what it reads may change under it and
it is asked again then. It needs CAP_SYS_PTRACE and the host's process numbers. A stopped process is never asked.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from healthd.core.hang.suspects.evidence import Stack, bounded
from healthd.core.hang.suspects.stacks import NO_FUNCTION, NoFunction, NoStack, StackLook, read_look
from healthd.probes.errors import CannotRead
from healthd.probes.process_stat import read_stat

PROGRAM = "py-spy"
DEADLINE_S = 3.0
ATTEMPTS = 3
LARGEST_OUTPUT = 4 << 20
"""Bytes."""
_REMEDY = "give it CAP_SYS_PTRACE and the host's process numbers, or do without stacks"


def read_stack(
    pid: int, *, program: str = PROGRAM, deadline_s: float = DEADLINE_S, now: Callable[[], float] = time.monotonic
) -> Stack:
    """The stack that `look_at` sees. Raises CannotRead."""
    return look_at(pid, program=program, deadline_s=deadline_s, now=now).stack


def look_at(
    pid: int, *, program: str = PROGRAM, deadline_s: float = DEADLINE_S, now: Callable[[], float] = time.monotonic
) -> StackLook:
    """
    What process *pid* is doing, as `read_look` says; the stack is `NO_FUNCTION` where no attempt shows one. Takes at
    most *deadline_s*, with all attempts.

    Raises CannotRead.
    """
    path = _find(program)
    if path is None:
        raise CannotRead(f"the stack of process {pid}", f"{program} is not installed", "install py-spy on the node")
    until, why = now() + deadline_s, ""
    looks = 0
    for _ in range(ATTEMPTS):
        if _is_stopped(pid):
            raise CannotRead(f"the stack of process {pid}", "it is stopped or gone", "look at its state")
        if now() >= until:
            break
        try:
            return read_look(_output(_command(path, pid), until, now), pid)
        except NoFunction:
            looks += 1
        except NoStack as error:
            why = str(error)
    if looks == ATTEMPTS:
        return StackLook(NO_FUNCTION, is_native=False)
    raise CannotRead(f"the stack of process {pid}", why or f"py-spy took longer than {deadline_s:g} s", _REMEDY)


def _find(program: str) -> str | None:
    """Beside the Python that runs healthd, whose environment need not be on the PATH, else on that."""
    return shutil.which(program, path=str(Path(sys.executable).parent)) or shutil.which(program)


def _command(path: str, pid: int) -> list[str]:
    return [path, "dump", "--json", "--nonblocking", "--full-filenames", "--pid", str(pid)]


def _is_stopped(pid: int) -> bool:
    """Also where it is gone: then there is nothing to ask."""
    stat = read_stat(pid)
    return stat is None or stat.state not in ("R", "S", "D", "I")


def _output(command: list[str], until: float, now: Callable[[], float]) -> bytes:
    """All that *command* prints. It is killed with its children at *until*, or when it prints too much."""
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={"LC_ALL": "C"},
        )
    except OSError as error:
        raise CannotRead(command[0], error.strerror or str(error), _REMEDY) from error
    assert child.stdout is not None
    try:
        output = _drained(child.stdout.fileno(), until, now)
        if child.wait(max(0.01, until - now())) != 0:
            raise NoStack(bounded(output[-200:].decode(errors="replace").strip(), 200))
        return output
    except subprocess.TimeoutExpired:
        raise NoStack("py-spy did not end") from None
    finally:
        if child.poll() is None:  # once it was waited for, the number of its group may be that of another
            os.killpg(child.pid, signal.SIGKILL)
        child.stdout.close()
        child.wait()


def _drained(number: int, until: float, now: Callable[[], float]) -> bytes:
    pieces: list[bytes] = []
    size = 0
    with selectors.DefaultSelector() as selector:
        selector.register(number, selectors.EVENT_READ)
        while (left := until - now()) > 0 and selector.select(left):
            piece = os.read(number, 1 << 16)
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
            size += len(piece)
            if size > LARGEST_OUTPUT:
                raise NoStack(f"py-spy printed more than {LARGEST_OUTPUT:,} bytes")
    raise NoStack("py-spy printed no end of its answer in time")
