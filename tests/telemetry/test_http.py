"""The HTTP server, asked over real connections by good callers and bad ones."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from healthd.telemetry.address import AddressError
from healthd.telemetry.http import LIMITS, PageHandler, Server, serve
from tests.bench.http_attack import PATIENCE, suffer
from tests.deploy.manifests import containers

ELSEWHERE = "127.0.0.2"
"""Another address of this machine than the one from which connections come by themselves."""
LARGE = b"x" * (32 << 20)
"""More than the buffers of two sockets hold."""
WORST = ["silence", "headers without end", "chunks without end", "reads a byte a second", "garbage"]
"""Of the benchmark's attacks those that took most memory or time, each in a way of its own."""
GET = b"GET /page HTTP/1.1\r\nHost: x\r\n"


def failing(request: web.BaseRequest) -> web.Response:
    raise KeyError("no such thing")


PAGES: dict[str, PageHandler] = {
    "/page": lambda _request: web.Response(text="good\n"),
    "/large": lambda _request: web.Response(body=LARGE),
    "/failing": failing,
}


async def stream(request: web.BaseRequest, lift_deadline: Callable[[], None]) -> web.StreamResponse:
    """Sends a line when the deadline of the connection would have passed."""
    if "lasting" in request.query:
        lift_deadline()
    if "failing" in request.query:
        raise KeyError("no such thing")
    await asyncio.sleep(0.2)
    return web.Response(text="late\n")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with await serve("127.0.0.1:0", PAGES) as started:
        yield started


@pytest.fixture
async def hasty() -> AsyncIterator[Server]:
    """A server that grants one connection no more than an instant."""
    async with await serve("127.0.0.1:0", PAGES, LIMITS._replace(seconds=0.05)) as started:
        yield started


@pytest.fixture
async def narrow() -> AsyncIterator[Server]:
    """A server with room for three connections, which may last for ever."""
    async with await serve("127.0.0.1:0", PAGES, LIMITS._replace(connections=3, seconds=3600)) as started:
        yield started


class Caller:
    """One connection, by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def of(cls, server: Server, sent: bytes = b"", *, source: str = "127.0.0.1") -> Caller:
        """A connection that begins with *sent*."""
        reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port, local_addr=(source, 0))
        writer.write(sent)
        return cls(reader, writer)

    async def all(self) -> bytes:
        """Everything until the server closes, which it must."""
        try:
            async with asyncio.timeout(10):
                return await self._reader.read()
        except ConnectionResetError:
            return b"reset"
        finally:
            self._writer.close()

    async def asks(self) -> bytes:
        """The status line of the page that it asks for now."""
        self._writer.write(GET + b"\r\n")
        return (await self.all()).partition(b"\r\n")[0]


async def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """Status and text of the answer."""
    async with aiohttp.ClientSession() as session, session.request(method, url, headers=headers) as answer:
        return answer.status, await answer.text()


async def test_a_page_is_answered_and_the_connection_closed(server: Server) -> None:
    caller = await Caller.of(server, GET + b"\r\n")
    answer = await caller.all()

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Connection: close\r\n" in answer
    assert answer.endswith(b"\r\n\r\ngood\n")


async def test_it_takes_no_orders(server: Server) -> None:
    assert [(await ask(f"{server.url}/page", method))[0] for method in ("POST", "PUT", "DELETE")] == [405, 405, 405]
    assert await ask(f"{server.url}/page", "HEAD") == (200, "")
    assert await ask(f"{server.url}/elsewhere") == (404, "healthd: /page /large /failing\n")


async def test_a_page_that_fails_says_no_more_than_that_and_the_next_is_answered(server: Server) -> None:
    assert await ask(f"{server.url}/failing") == (500, "")
    assert (await ask(f"{server.url}/page"))[0] == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /pa",
        GET,
        b"POST /page HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx",
        b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["silent", "half a line", "half a header", "half a body", "does not read"],
)
async def test_who_does_not_come_to_an_end_is_cut_off(hasty: Server, sent: bytes) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket() as caller:
        caller.setblocking(False)
        await loop.sock_connect(caller, ("127.0.0.1", hasty.address.port))
        await loop.sock_sendall(caller, sent)
        async with asyncio.timeout(10), await serve("127.0.0.1:0", PAGES, LIMITS._replace(seconds=0.2)) as other:
            await (await Caller.of(other)).all()  # four times as long as the caller has
            got = await read_to_the_end(caller)

    assert len(got) < len(LARGE)


async def read_to_the_end(caller: socket.socket) -> bytes:
    """What is still in the buffers; fails with a time-out where the connection stands."""
    got = b""
    try:
        while some := await asyncio.get_running_loop().sock_recv(caller, 1 << 20):
            got += some
    except ConnectionResetError:
        pass
    return got


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"x" * LIMITS.line_bytes + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        GET + b"X-Long: x" + b"x" * LIMITS.line_bytes + b"\r\n\r\n",
        GET + b"X-One: x\r\n" * LIMITS.headers + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"GET /\xff HTTP/1.1\r\nHost: \x00\r\n\r\n",
    ],
    ids=["a long line", "a long header", "many headers", "TLS", "no text"],
)
async def test_what_is_too_much_or_no_request_is_refused_and_not_logged(
    server: Server, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await (await Caller.of(server, sent)).all()

    assert answer.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
    assert caplog.records == []


async def test_of_many_requests_in_one_connection_the_first_is_answered(server: Server) -> None:
    answer = await (await Caller.of(server, (GET + b"\r\n") * 100)).all()

    assert answer.count(b"HTTP/1.1 200 OK") <= 1


async def test_when_all_connections_are_taken_the_address_that_holds_most_loses_its_oldest(narrow: Server) -> None:
    good = await Caller.of(narrow, source=ELSEWHERE)
    oldest, *others = [await Caller.of(narrow) for _ in range(3)]

    assert await oldest.all() in (b"", b"reset")
    assert [await caller.asks() for caller in (good, *others)] == [b"HTTP/1.1 200 OK"] * 3


async def test_one_that_ended_makes_room(narrow: Server) -> None:
    stays = await Caller.of(narrow)
    for _ in range(10):
        assert await (await Caller.of(narrow)).asks() == b"HTTP/1.1 200 OK"

    assert await stays.asks() == b"HTTP/1.1 200 OK"


async def test_port_0_takes_a_free_port_and_says_which(server: Server) -> None:
    assert server.address.port > 0
    assert server.url == f"http://127.0.0.1:{server.address.port}"


@pytest.mark.parametrize("address", [":0", "localhost:0"])
async def test_every_way_to_write_an_address_listens(address: str) -> None:
    async with await serve(address, PAGES) as server:
        assert (await ask(f"{server.url}/page"))[0] == 200


async def test_closing_frees_the_port_though_a_client_keeps_its_connection() -> None:
    first = await serve("127.0.0.1:0", PAGES)
    caller = await Caller.of(first)
    async with asyncio.timeout(10):
        await first.close()
        await first.close()
    await caller.all()

    async with await serve(str(first.address), PAGES) as second:
        assert second.address == first.address


async def test_a_port_in_use_is_named(server: Server) -> None:
    with pytest.raises(AddressError, match=rf"cannot listen on 127\.0\.0\.1:{server.address.port}: the port is in use"):
        await serve(str(server.address), PAGES)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("9400", "is not an address"),
        ("192.0.2.1:0", "this machine has no such address"),
        ("no.invalid:1", "no such host"),
    ],
)
async def test_an_address_that_cannot_be_is_refused(address: str, reason: str) -> None:
    with pytest.raises(AddressError, match=reason):
        await serve(address, PAGES)


async def test_ipv6_addresses_work_where_the_machine_has_them() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")

    async with await serve("[::1]:0", PAGES) as server:
        assert (await ask(f"{server.url}/page"))[0] == 200


@pytest.mark.slow
@pytest.mark.parametrize("name", WORST)
def test_an_attack_neither_ends_the_agent_nor_its_probes(name: str) -> None:
    agent = containers()["agent"]
    limit = int(agent["resources"]["limits"]["memory"].removesuffix("Mi"))
    suffered = suffer(name, connections=500, seconds=1.5)

    assert agent["livenessProbe"]["timeoutSeconds"] == PATIENCE
    assert suffered.probes_unanswered == 0
    assert suffered.scrapes_unanswered == 0
    assert suffered.megabytes < limit - 64  # what the rest of an agent needs, by its manifest


@pytest.mark.parametrize(
    "made",
    [
        "from aiohttp import web\nweb.AppRunner\n",
        "import aiohttp.web as web\nweb.run_app\n",
        "from aiohttp.web import TCPSite\n",
        "from http.server import ThreadingHTTPServer\n",
        "import asyncio\nasyncio.start_server\n",
        "from wsgiref.simple_server import make_server\n",
        "import prometheus_client\nprometheus_client.start_http_server\n",
    ],
)
def test_a_server_that_is_made_elsewhere_is_refused_by_the_linter(made: str) -> None:
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--select",
        "TID251",
        "--stdin-filename",
        "healthd/elsewhere.py",
        "-",
    ]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, input=made, cwd=root, capture_output=True, text=True, check=False, timeout=60)

    assert "healthd.telemetry.http makes every server" in done.stdout


async def test_a_stream_may_last_once_its_client_is_admitted() -> None:
    limits = LIMITS._replace(seconds=0.05)
    async with await serve("127.0.0.1:0", PAGES, limits, {"/stream": stream}) as server:
        cut_off = await (await Caller.of(server, b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")).all()
        lasting = await (await Caller.of(server, b"GET /stream?lasting HTTP/1.1\r\nHost: x\r\n\r\n")).all()

    assert b"late" not in cut_off
    assert b"late" in lasting


async def test_a_stream_that_fails_is_an_error_and_a_stream_changes_nothing() -> None:
    async with await serve("127.0.0.1:0", PAGES, streams={"/stream": stream}) as server:
        failed = await (await Caller.of(server, b"GET /stream?failing HTTP/1.1\r\nHost: x\r\n\r\n")).all()
        posted = await (await Caller.of(server, b"POST /stream HTTP/1.1\r\nHost: x\r\n\r\n")).all()

    assert failed.startswith(b"HTTP/1.1 500")
    assert posted.startswith(b"HTTP/1.1 405")
