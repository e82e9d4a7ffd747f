"""
A real S3 server for tests: versitygw on a folder, and in front of it a proxy that can fail in the ways that S3 does.

The server checks signatures, conditions and ranges itself. The proxy passes on what it is asked, host name and all, so
that signatures stay right; a test may give it a say about each request.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.lab.build import program
from tests.lab.modules import VERSITYGW
from tests.lab.programs import Program, free_port

ACCESS_KEY, SECRET_KEY = "healthd-lab", "only-for-the-lab"
BUCKET = "training"


class Answer(NamedTuple):
    """What the proxy says itself instead of asking the server."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/xml"),)


SLOW_DOWN = Answer(
    503,
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
)
Rule = Callable[[str, str], Answer | None]
"""Method and path of a request to what is answered; None: what the server says."""


def environment_of(url: str) -> dict[str, str]:
    """What a pod's environment would say of the server at *url*."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }


class S3:
    """versitygw with one empty bucket. Its objects are the files of *folder*, with their tags beside them."""

    def __init__(self, folder: Path) -> None:
        (folder / "objects" / BUCKET).mkdir(parents=True)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.environment: Mapping[str, str] = environment_of(self.url)
        command = [str(program(VERSITYGW)), "--quiet", "--port", f"127.0.0.1:{port}", "posix", f"{folder}/objects"]
        keys = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        self._program = Program("versitygw", command, log=folder / "versitygw.log", environment=keys)

    def start(self) -> None:
        """Start it and wait until it answers. Raises LabError."""
        self._program.start()
        self._program.wait_until("answering", self._answers, limit=20)

    def stop(self) -> None:
        """End it."""
        self._program.stop()

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=1)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status < 500
        except OSError:
            return False
        finally:
            connection.close()


class Faulty:
    """A proxy before *server* that asks its *rule* first, and counts what it was asked."""

    def __init__(self, server: str) -> None:
        self._server = urlsplit(server).netloc
        self.rule: Rule = lambda method, path: None
        self.asked: list[str] = []
        self._listener = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._listener.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._listener.server_port}"
        self.environment: Mapping[str, str] = environment_of(self.url)

    @contextmanager
    def running(self) -> Iterator[Faulty]:
        """Listen until the block ends."""
        thread = threading.Thread(target=lambda: self._listener.serve_forever(poll_interval=0.05), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._listener.shutdown()
            self._listener.server_close()
            thread.join()

    def answer(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, list[tuple[str, str]], bytes]:
        """Status, headers and body for one request."""
        self.asked.append(f"{method} {path}")
        instead = self.rule(method, path)
        if instead is not None:
            return instead.status, list(instead.headers), instead.body
        connection = http.client.HTTPConnection(self._server, timeout=30)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, headers, body = proxy.answer(self.command, self.path, dict(self.headers.items()))
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                        self.send_header(name, value)
                length = next((v for n, v in headers if n.lower() == "content-length"), None)
                is_head = self.command == "HEAD"
                self.send_header("Content-Length", length if is_head and length else str(len(body)))
                self.end_headers()
                if not is_head:
                    self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815 - the name that the standard library looks for

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is declared
                """Says nothing: the test asks `asked`."""

        return Handler
