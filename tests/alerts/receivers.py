"""HTTP servers as alert services are on a bad day."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

DRIP = 0.01
"""Seconds between two bytes of a server that drips."""


class Received(NamedTuple):
    """One request."""

    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    method: str = "POST"

    @property
    def json(self) -> Any:
        """The body."""
        return msgspec.json.decode(self.body)


Behaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""What a server does after it has read a request."""


class Receiver:
    """One server: the last of its behaviours lasts."""

    def __init__(self, behaviours: tuple[Behaviour, ...]) -> None:
        self.url = ""
        self.received: list[Received] = []
        self._behaviours = list(behaviours)
        self._tasks: set[asyncio.Task[None]] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, which carries one request."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                self.received.append(await _read(reader))
                behaviour = self._behaviours.pop(0) if len(self._behaviours) > 1 else self._behaviours[0]
                await behaviour(writer)
                writer.close()
                await writer.wait_closed()
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def close(self) -> None:
        """End what still hangs or drips."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.split(": ", 1) for line in head[1:] if line)
    headers = {name.lower(): value for name, value in pairs}
    method, path, _ = head[0].split()
    return Received(path, headers, await reader.readexactly(int(headers.get("content-length", "0"))), method)


@contextlib.asynccontextmanager
async def receiving(*behaviours: Behaviour, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """A server on this machine."""
    receiver = Receiver(behaviours)
    server = await asyncio.start_server(receiver.handle, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    receiver.url = f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}"
    try:
        yield receiver
    finally:
        server.close()
        await receiver.close()
        await server.wait_closed()


def answers(status: int, body: bytes | dict[str, Any] = b"", **headers: str) -> Behaviour:
    """A whole answer. *headers* with `_` for `-`."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = "\r\n".join([f"HTTP/1.1 {status} Some Reason", f"Content-Length: {len(content)}", *lines])

    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(f"{head}\r\n\r\n".encode() + content)
        await writer.drain()

    return behave


async def hangs(writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def resets(writer: asyncio.StreamWriter) -> None:
    """Read the request, and break the connection."""
    writer.transport.abort()


async def drips_head(writer: asyncio.StreamWriter) -> None:
    """A status line, one byte at a time, that does not end."""
    writer.write(b"HTTP/1.1 200 O")
    while not writer.is_closing():
        writer.write(b"k")
        await writer.drain()
        await asyncio.sleep(DRIP)


def drips_body(status: int) -> Behaviour:
    """A good status at once, and then a body, one byte at a time, that does not end."""

    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status} Some Reason\r\nContent-Length: 1000000\r\n\r\n".encode())
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(DRIP)

    return behave


def floods(status: int) -> Behaviour:
    """A good status, and a body that is as long as somebody reads it."""

    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status} Some Reason\r\n\r\n".encode())
        while not writer.is_closing():
            writer.write(b" " * 65536)
            await writer.drain()

    return behave


async def floods_headers(writer: asyncio.StreamWriter) -> None:
    """A good status, and headers without end."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while not writer.is_closing():
        writer.write(b"X-More: 1\r\n" * 1000)
        await writer.drain()


async def speaks_another_protocol(writer: asyncio.StreamWriter) -> None:
    """An answer that is not HTTP."""
    writer.write(b"220 mail.example ESMTP\r\n")
    await writer.drain()
