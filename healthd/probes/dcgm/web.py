"""
One small web page from another program on this machine, for callers that do not trust that program.

The fetch has a fixed total time, however slowly the data arrives, and a fixed size. Proxies and redirects are not
followed: a node's own exporter has no reason for either.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import SplitResult, urlsplit

from healthd.probes.errors import CannotRead

_CHUNK = 64 * 1024
_HEADERS = 16 * 1024
"""Bytes that may come before the page itself."""
_PORTS = {"http": 80, "https": 443}
_REMEDY = "see that the URL is right and that the program behind it runs"


def fetch_page(url: str, *, deadline: float, most: int) -> str:
    """
    The text at *url*, within *deadline* seconds (plus the DNS lookup) and *most* bytes.

    Raises CannotRead. A longer page is not read in part: the missing part could be what matters.
    """
    where = parse_url(url)
    end = time.monotonic() + deadline
    try:
        raw = b"".join(_receive(where, end, most + _HEADERS))
        response, page = _parse(raw)
    except TimeoutError:
        raise CannotRead(url, f"no whole answer within {deadline:g} s", _REMEDY) from None
    except (OSError, http.client.HTTPException) as error:
        raise CannotRead(url, str(error) or type(error).__name__, _REMEDY) from None
    if len(page) > most:
        raise CannotRead(url, f"the page is longer than {most} bytes", "let it give less")
    if response.status != http.client.OK:
        raise CannotRead(url, f"the answer is {response.status} {response.reason[:100]}", _REMEDY)
    return page.decode(errors="replace")


def _parse(raw: bytes) -> tuple[http.client.HTTPResponse, bytes]:
    """The answer and its page. Raises HTTPException, also for an answer that was cut off."""
    if b"\r\n\r\n" not in raw[:_HEADERS]:
        raise http.client.HTTPException("the answer is no HTTP")
    response = http.client.HTTPResponse(_Received(raw))  # type: ignore[arg-type]  # it uses makefile of the socket alone
    response.begin()
    return response, response.read()


class _Received:
    """Received bytes, in the form of a socket as `http.client` needs it."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, _mode: str) -> io.BytesIO:
        """The bytes as a file."""
        return io.BytesIO(self._raw)


def parse_url(url: str) -> SplitResult:
    """The parts of *url*. Raises CannotRead where it is no address of a page."""
    try:
        where = urlsplit(url)
        is_right = where.scheme in _PORTS and bool(where.hostname) and where.port != 0
    except ValueError:
        is_right = False
    if not is_right or any(character.isspace() for character in url):
        raise CannotRead(repr(url), "it is no web address", "write it as http://HOST:PORT/PATH")
    return where


def _receive(where: SplitResult, end: float, most: int) -> Iterator[bytes]:
    host, port = where.hostname or "", where.port or _PORTS[where.scheme]
    path = (where.path or "/") + (f"?{where.query}" if where.query else "")
    with closing(_connect(host, port, where.scheme, end)) as connection:
        request = f"GET {path} HTTP/1.1\r\nHost: {where.netloc.rpartition('@')[2]}\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        while most > 0:
            connection.settimeout(_left(end))
            chunk = connection.recv(min(_CHUNK, most))
            if not chunk:
                return
            most -= len(chunk)
            yield chunk


def _connect(host: str, port: int, scheme: str, end: float) -> socket.socket:
    connection = socket.create_connection((host, port), timeout=_left(end))
    if scheme == "http":
        return connection
    try:
        connection.settimeout(_left(end))
        return ssl.create_default_context().wrap_socket(connection, server_hostname=host)
    except OSError:
        connection.close()
        raise


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
