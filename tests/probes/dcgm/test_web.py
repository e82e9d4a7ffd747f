"""One page from a program that may be slow, huge or mad."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from healthd.probes.dcgm.web import fetch_page
from healthd.probes.errors import CannotRead

OK = b"HTTP/1.1 200 OK\r\n\r\n"
Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that answers its one caller with these bytes, and then hangs up, or does not."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []
    test_ends = threading.Event()

    def start(answer: bytes, *, hangs: bool = False) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            caller, _ = listener.accept()
            with caller:
                caller.recv(4096)
                caller.sendall(answer)
                if hangs:
                    test_ends.wait()

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"

    yield start
    test_ends.set()
    for thread in threads:
        thread.join(timeout=10)
    for listener in listeners:
        listener.close()


def fetch(url: str, *, deadline: float = 10, most: int = 1000) -> str:
    """With limits that no good answer meets."""
    return fetch_page(url, deadline=deadline, most=most)


def test_page_is_given_as_it_came(serve: Serve) -> None:
    assert fetch(serve(OK + b"up 1\n")) == "up 1\n"


def test_page_in_chunks_is_put_together(serve: Serve) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nup \r\n2\r\n1\n\r\n0\r\n\r\n"

    assert fetch(serve(answer)) == "up 1\n"


def test_page_of_the_longest_length_is_read_and_one_byte_more_is_not(serve: Serve) -> None:
    assert len(fetch(serve(OK + b"a" * 1000))) == 1000
    with pytest.raises(CannotRead, match="longer than 1000 bytes"):
        fetch(serve(OK + b"a" * 1001))


def test_server_that_never_ends_is_left_at_the_limit(serve: Serve) -> None:
    with pytest.raises(CannotRead, match="longer than 1000 bytes"):
        fetch(serve(OK + b"a" * 40_000, hangs=True))


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 20", OK + b"half a page"])
def test_server_that_goes_silent_is_left_at_the_deadline(serve: Serve, said: bytes) -> None:
    with pytest.raises(CannotRead, match=r"no whole answer within 0\.2 s"):
        fetch(serve(said, hangs=True), deadline=0.2)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"up 1\n", id="no HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", id="many headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70_000, id="an endless header"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nup 1\n", id="less than promised"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", id="a chunk without a length"),
        pytest.param(b"HTTP/1.1 503 Overloaded\r\n\r\n", id="an error"),
        pytest.param(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n", id="a redirect"),
    ],
)
def test_answer_that_is_no_page_is_trouble(serve: Serve, answer: bytes) -> None:
    with pytest.raises(CannotRead):
        fetch(serve(answer))


def test_a_port_without_a_listener_is_trouble() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    with pytest.raises(CannotRead, match="refused"):
        fetch(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "http://",
        "127.0.0.1:9400",
        "http://[::1/",
        "http://a:99999/",
        "http://a/ b",
        "http://a/\r\nX: y",
    ],
)
def test_what_is_no_web_address_is_not_asked(url: str) -> None:
    with pytest.raises(CannotRead, match="no web address"):
        fetch(url)
