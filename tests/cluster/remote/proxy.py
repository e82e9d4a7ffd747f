"""A TCP proxy between a client and an API server, that breaks connections in the ways that networks do."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close a reset."""


class Proxy:
    """Forwards bytes to *target*, a port of this machine, until it is changed."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._links: dict[asyncio.Task[None], _Link] = {}
        self._holds = False
        self.port = 0

    async def accept(self) -> None:
        """Take connections; always on the same port."""
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Reset all connections and take no more."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.reset()

    async def reset(self) -> None:
        """Reset all connections, as a firewall or a machine that was started again does."""
        for link in self._links.values():
            link.reset()
        await asyncio.gather(*self._links, return_exceptions=True)

    def freeze(self) -> None:
        """Forward nothing more on the connections that there are, and close none: the other end just went away."""
        for link in self._links.values():
            link.flows.clear()

    def hold(self) -> None:
        """Forward nothing at all, on new connections neither: the network in between is gone."""
        self._holds = True
        self.freeze()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        self._links[task] = link = _Link((writer, to_server))
        if self._holds:
            link.flows.clear()
        try:
            await asyncio.wait(
                (link.pump(reader, to_server), link.pump(from_server, writer)), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            del self._links[task]
            await link.close()


class _Link:
    """One connection through the proxy."""

    def __init__(self, ends: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
        self.flows = asyncio.Event()
        self.flows.set()
        self._ends = ends
        self._pumps: list[asyncio.Task[None]] = []

    def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> asyncio.Task[None]:
        """Forward one direction."""
        pump = asyncio.create_task(self._pump(reader, writer))
        self._pumps.append(pump)
        return pump

    def reset(self) -> None:
        """Break it."""
        for end in self._ends:
            raw: socket.socket = end.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            end.transport.abort()
        for pump in self._pumps:
            pump.cancel()

    async def close(self) -> None:
        """End it."""
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for end in self._ends:
            end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self.flows.wait()
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def proxying(target: int) -> AsyncIterator[Proxy]:
    """A proxy to a port of this machine."""
    proxy = Proxy(target)
    await proxy.accept()
    try:
        yield proxy
    finally:
        await proxy.refuse()
