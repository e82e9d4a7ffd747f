"""
The few calls that the lab itself makes to an API server: JSON over HTTP, one connection per thread, nothing kept.

Not a client for healthd: what is tested must not be tested with itself.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Json = dict[str, Any]

_CLOSED = (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError)
"""What a request says on a connection that the server has closed, `http.client.RemoteDisconnected` among them."""


class ApiError(Exception):
    """The API server refused; `status` is its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """Calls one API server as somebody."""

    def __init__(self, *, host: str, port: int, authority: str, token: str) -> None:
        self._address = (host, port)
        self._tls = ssl.create_default_context(cafile=authority)
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._local = threading.local()
        self._connections: list[http.client.HTTPSConnection] = []

    def get(self, path: str) -> Json:
        """One object, or a list."""
        return self.call("GET", path)

    def create(self, path: str, body: Json) -> Json:
        """Create an object below *path*."""
        return self.call("POST", path, body)

    def patch(self, path: str, body: Json) -> Json:
        """Merge *body* into an object."""
        return self.call("PATCH", path, body, kind="application/merge-patch+json")

    def delete(self, path: str) -> Json:
        """Delete an object, or a collection."""
        return self.call("DELETE", path)

    def call(self, method: str, path: str, body: Json | None = None, *, kind: str = "application/json") -> Json:
        """Raises ApiError when the answer is no success, OSError and http.client.HTTPException when there is none."""
        status, raw = self.raw(method, path, json.dumps(body) if body is not None else None, {"Content-Type": kind})
        answer: Json = json.loads(raw) if raw[:1] == b"{" else {"text": raw.decode(errors="replace")}
        if status >= http.client.BAD_REQUEST:
            raise ApiError(status, answer.get("message") or answer.get("text", ""))
        return answer

    def raw(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """The status and the bytes of an answer, whatever they are."""
        try:
            return self._ask(method, path, body, {**self._headers, **(headers or {})})
        except _CLOSED:  # the server closes connections that were not used for a while
            return self._ask(method, path, body, {**self._headers, **(headers or {})})

    def _ask(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        with self._connection() as connection:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read()

    def close(self) -> None:
        """End all connections; the next call makes a new one."""
        for connection in self._connections:
            connection.close()

    @contextmanager
    def _connection(self) -> Iterator[http.client.HTTPSConnection]:
        """The connection of this thread, closed after any trouble; it opens itself again."""
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(*self._address, context=self._tls, timeout=30)
            self._local.connection = connection
            self._connections.append(connection)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise

    def is_ready(self) -> bool:
        """True when the server says that it is ready to serve."""
        try:
            return self.raw("GET", "/readyz")[0] == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
