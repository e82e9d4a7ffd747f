"""
An HTTP server of a test: it shows pages, such as metrics to scrape, and keeps what is sent to it, such as alerts.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

Page = str | Callable[[], str] | None


class Sent(NamedTuple):
    """One request that carried something, or asked for a page that there is not."""

    method: str
    path: str
    body: bytes
    at: float
    """Monotonic seconds when it arrived."""

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


class Endpoint:
    """
    Listens from its creation to `close`. *pages* may be changed at any time: a text, what makes one for each request,
    or None for the status 503. Everything else is answered 200, after *before_answer* has seen it.
    """

    def __init__(
        self, pages: dict[str, Page] | None = None, *, before_answer: Callable[[Sent], None] = lambda _: None
    ) -> None:
        self.pages: dict[str, Page] = pages or {}
        self._before_answer = before_answer
        self.sent: list[Sent] = []
        self._listener = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._listener.daemon_threads = True
        self.address = f"127.0.0.1:{self._listener.server_port}"
        self._thread = threading.Thread(target=lambda: self._listener.serve_forever(poll_interval=0.05), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Listen no more."""
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()

    def take(self, request: Sent) -> None:
        """What arrives."""
        self.sent.append(request)
        self._before_answer(request)

    def to(self, path: str) -> list[Sent]:
        """What was sent to *path*, in order."""
        return [each for each in list(self.sent) if each.path == path]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                page: Page = ""
                if self.command == "GET" and self.path in endpoint.pages:
                    page = endpoint.pages[self.path]
                else:
                    endpoint.take(Sent(self.command, self.path, body, time.monotonic()))
                content = (page() if callable(page) else page or "").encode()
                self.send_response(503 if page is None else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET  # noqa: N815 - the name that the standard library looks for

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is declared
                """Says nothing: the test asks `sent`."""

        return Handler
