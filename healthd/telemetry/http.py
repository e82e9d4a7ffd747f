"""
The HTTP contract: `/metrics`, `/healthz` and `/readyz`. Read-only; it takes no orders.

`/healthz` says only that this process' event loop still turns: a supervisor restarts on it, and a restart heals nothing
outside. `/readyz` answers 503 with the reasons while a reader is dead or stale: that is for people and for alerts.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from healthd.telemetry.address import Address, AddressError, parse_address
from healthd.telemetry.metrics import Metrics

ReadyCheck = Callable[[], str | None]
"""Answers None when all is well, else the reason, quickly and without I/O."""

_CLOSE_SECONDS = 1.0
"""How long an answer that is being sent may take when the server closes."""


class Server:
    """A server that listens; `address` has the real port. Close it, or use it as `async with`."""

    def __init__(self, runner: web.AppRunner, address: Address) -> None:
        self._runner = runner
        self.address = address

    @property
    def url(self) -> str:
        """How a program on this machine reaches it."""
        return f"http://{self.address if self.address.host else Address('127.0.0.1', self.address.port)}"

    async def close(self) -> None:
        """Stop listening and close every connection. May be called twice."""
        await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def serve(address: str, metrics: Metrics, ready_checks: Mapping[str, ReadyCheck]) -> Server:
    """Listen on *address*, such as `127.0.0.1:9400`. Raises AddressError when that cannot be."""
    wanted = parse_address(address)
    listening = await _listen(wanted)
    runner = web.AppRunner(_application(metrics, ready_checks), access_log=None, shutdown_timeout=_CLOSE_SECONDS)
    try:
        await runner.setup()
        await web.SockSite(runner, listening).start()
    except BaseException:
        await runner.cleanup()
        listening.close()
        raise
    return Server(runner, wanted._replace(port=listening.getsockname()[1]))


async def _listen(address: Address) -> socket.socket:
    """One bound socket, so that port 0 is one port also where a name has an IPv4 and an IPv6 address."""
    try:
        if address.host is None:
            return _listen_everywhere(address.port)
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, where = found[0]
        return socket.create_server(where, family=family)
    except OSError as error:
        raise AddressError(f"cannot listen on {address}: {_reason(error)}") from error


def _listen_everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:  # that one: IPv6 is compiled in and switched off
                raise
    return socket.create_server(("", port))


def _reason(error: OSError) -> str:
    match error:
        case socket.gaierror():
            return "no such host"
        case OSError(errno=errno.EADDRINUSE):
            return "the port is in use; choose another, or 0 for a free one"
        case OSError(errno=errno.EADDRNOTAVAIL):
            return "this machine has no such address"
        case OSError(errno=errno.EACCES):
            return "not allowed; ports below 1024 are for root"
        case _:
            return os.strerror(error.errno) if error.errno else str(error)


def _application(metrics: Metrics, ready_checks: Mapping[str, ReadyCheck]) -> web.Application:
    async def show_metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(metrics.registry), headers={"Content-Type": content_type})

    async def show_health(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def show_readiness(_request: web.Request) -> web.Response:
        reasons = {name: reason for name, check in ready_checks.items() if (reason := _ask(check)) is not None}
        return web.json_response({"ready": not reasons, "reasons": reasons}, status=503 if reasons else 200)

    async def show_paths(_request: web.Request) -> web.Response:
        return web.Response(text="healthd: /metrics /healthz /readyz\n")

    application = web.Application()
    application.add_routes(
        [
            web.get("/", show_paths),
            web.get("/metrics", show_metrics),
            web.get("/healthz", show_health),
            web.get("/readyz", show_readiness),
        ]
    )
    return application


def _ask(check: ReadyCheck) -> str | None:
    """What a check says; one that fails itself knows nothing, and not knowing is not being ready."""
    try:
        return check()
    except Exception as error:
        return f"the check itself failed: {type(error).__name__}: {error}"
