"""
Resolves the names of services, each in a thread of its own.

asyncio resolves names in one small pool of threads for the whole process. A name whose DNS server does not answer keeps
a thread for many seconds, also when no one waits for it any more. A few messages to one such service would take all
threads, and the messages to every other service, and the heartbeat, would wait for them. The end of the process would
wait, too.
"""

from __future__ import annotations

import asyncio
import socket
from functools import partial

from aiohttp.abc import AbstractResolver, ResolveResult

from healthd.threads import in_thread

_Lookup = tuple[str, int, socket.AddressFamily]


class Resolver(AbstractResolver):
    """For one service. Messages that ask for the same name at the same time share one lookup."""

    def __init__(self) -> None:
        self._under_way: dict[_Lookup, asyncio.Task[list[ResolveResult]]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """All addresses of *host*. Raises OSError."""
        lookup = (host, port, family)
        task = self._under_way.get(lookup)
        if task is None:
            task = self._under_way[lookup] = asyncio.create_task(self._resolve(*lookup), name=f"resolve {host}")
            task.add_done_callback(partial(self._ended, lookup))
        return await asyncio.shield(task)  # the others still wait for it

    async def _resolve(self, host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
        ask = partial(
            socket.getaddrinfo, host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        found = await in_thread(ask, "resolve")
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in found
        ]

    def _ended(self, lookup: _Lookup, task: asyncio.Task[list[ResolveResult]]) -> None:
        del self._under_way[lookup]
        if not task.cancelled():
            task.exception()  # read, so that a failure that no one waits for is not logged as one of ours

    async def close(self) -> None:
        """Wait for no answer any more. The threads are left behind."""
        lookups = list(self._under_way.values())
        for each in lookups:
            each.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)
