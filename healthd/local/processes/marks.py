"""
The second line of the fence: finds the processes of a pod by the mark in their environment, when no shim reports them.

Every process of a pod is started with `HEALTHD_POD_UID=<uid>` and passes it on to its children. This covers all
descendants that this user may inspect, at any depth and in any session. It does not cover a process that was started
with a cleared or rewritten environment (`env -i`, a setuid program), or that hides by `PR_SET_DUMPABLE`. The shim
covers those. They are out of reach only after the shim itself was killed.

A shim is marked `HEALTHD_SHIM_OF=<uid>` instead. A shim that outlives healthd is killing the rank: healthd waits for
it and never kills it, because the shim reaches processes without the mark.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from healthd.local.processes.shim import MARK, SHIM_MARK


def find_processes(uid: str, mark: str = MARK) -> list[int]:
    """The pids of all live processes that carry the mark of pod *uid*. A zombie has no environment and is not live."""
    return [pid for pid in _pids() if _is_marked(pid, f"{mark}={uid}")]


async def kill_marked(uid: str) -> int:
    """
    Kill every process with the mark of pod *uid*. Return when no process and no shim is left: how many were killed.

    Two empty scans in a row are needed: one scan could miss a child whose parent died between the two reads.
    Waits as long as the kernel needs. A process stuck in a driver cannot be proven gone.
    """
    killed: set[int] = set()
    empty_scans = 0
    while empty_scans < 2:
        pids = await asyncio.to_thread(find_processes, uid)
        shims = await asyncio.to_thread(find_processes, uid, SHIM_MARK)
        await asyncio.gather(
            *(_end(pid, f"{MARK}={uid}", kill=True) for pid in pids),
            *(_end(pid, f"{SHIM_MARK}={uid}", kill=False) for pid in shims),
        )
        empty_scans = 0 if pids or shims else empty_scans + 1
        killed.update(pids)
    return len(killed)


async def _end(pid: int, mark: str, *, kill: bool) -> None:
    """Return when process *pid* has ended, if it is still the one with this mark."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not _is_marked(pid, mark):  # the pid was reused before its pidfd was open
            return
        if kill:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        await readable(handle)
    finally:
        os.close(handle)


async def readable(fd: int) -> None:
    """Return when *fd* is readable; for a pidfd: when its process has ended."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()]


def _is_marked(pid: int, mark: str) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended, or belongs to another user
        return False
    return mark.encode() in environ.split(b"\0")
