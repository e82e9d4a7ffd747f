"""
Listens on the API server's address in the network of a lab, and passes each connection on to the API server.

usage: gateway.py PID ADDRESS PORT - listen on ADDRESS:443 in the network of process PID, connect to 127.0.0.1:PORT

A program of its own, because it has to live as long as the network; standard library only. TLS goes through untouched,
so clients check the API server's own certificate.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys
from functools import partial

_NEW_NET = 0x40000000
_CHUNK = 1 << 16


def main() -> None:
    """Serve until killed."""
    pid, address, port = sys.argv[1:]
    listener = listen(int(pid), address)
    print("listening", flush=True)
    asyncio.run(serve(listener, int(port)))


def listen(pid: int, address: str) -> socket.socket:
    """A socket belongs to the network in which it was made, wherever its process goes after that."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    _enter(there)
    listener = socket.create_server((address, 443), backlog=1024)
    _enter(home)
    return listener


def _enter(network: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(network, _NEW_NET):
        raise OSError(ctypes.get_errno(), "cannot enter the network of the lab")


async def serve(listener: socket.socket, port: int) -> None:
    """Accept for ever."""
    server = await asyncio.start_server(partial(_pass_on, port), sock=listener)
    await server.serve_forever()


async def _pass_on(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """When one side ends, both do: what was cut must be seen as cut."""
    try:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:  # the API server is away
        writer.transport.abort()
        return
    both = [asyncio.create_task(_copy(reader, far_writer)), asyncio.create_task(_copy(far_reader, writer))]
    _, unfinished = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    for task in unfinished:
        task.cancel()
    writer.close()
    far_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        return


if __name__ == "__main__":
    main()
