"""The client of all alert services: where it connects to, how long it waits, what its errors say."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from healthd.alerts.addresses import forbidden
from healthd.alerts.http import Http, Limits, NoAnswer, Response, proxy_of_environment
from healthd.retry_after import parse_retry_after
from tests.alerts.conftest import server_tls
from tests.alerts.incidents import QUICK, TOKEN
from tests.alerts.receivers import Behaviour, answers, drips_body, drips_head, floods, hangs, receiving, resets
from tests.fakes import ManualClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def post(url: str, *, ca_file: str = "", insecure: bool = True, limits: Limits = QUICK) -> Response:
    """Send one message."""
    http = Http(ManualClock(), ca_file=ca_file, insecure_http=insecure, limits=limits)
    try:
        return await http.post(url, b"{}", {})
    finally:
        await http.close()


async def why_not(url: str, *, ca_file: str = "", insecure: bool = True) -> NoAnswer:
    """Why there is no answer."""
    with pytest.raises(NoAnswer) as caught:
        await post(url, ca_file=ca_file, insecure=insecure)
    return caught.value


FORBIDDEN = [
    *("169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fd20:ce::254"),
    *("100.100.100.200", "168.63.129.16", "192.0.0.192", "0.0.0.0", "::", "224.0.0.1", "ff02::1"),
    *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"),
]


@pytest.mark.parametrize("address", FORBIDDEN)
def test_link_local_and_metadata_addresses_are_forbidden_in_every_form(address: str) -> None:
    assert forbidden(address)


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "10.0.0.7", "192.168.1.1", "203.0.113.9", "fd12::1", "100.64.0.1"]
)
def test_other_addresses_are_not(address: str) -> None:
    assert not forbidden(address)


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[fe80::1]", "[::ffff:a9fe:a9fe]", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376"]
)
async def test_nothing_is_sent_to_a_forbidden_address_however_it_is_written(host: str) -> None:
    error = await why_not(f"http://{host}/latest/meta-data")

    refused = ("healthd does not connect to the link-local or metadata address", "this is no valid address")
    assert any(why in str(error) for why in refused)
    assert not error.was_sent


async def test_a_name_is_judged_by_the_address_that_it_resolves_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is resolved once, and the address that is judged is the one that is connected to."""
    monkeypatch.setattr("healthd.alerts.addresses._METADATA", _local_networks())

    error = await why_not("http://localhost:1/")

    assert "does not connect to the link-local or metadata address" in str(error)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://service.example/hook", "must begin with https://"),
        ("file:///etc/passwd", "must begin with https://"),
        ("https://", "must name a host"),
        (f"https://user:{TOKEN}@service.example/", "no user or password"),
        ("https://[::1/", "is not a URL"),
        ("https://service.example:99999/", "is not a URL"),
    ],
)
async def test_an_address_that_cannot_be_right_is_refused_without_being_shown(url: str, why: str) -> None:
    error = await why_not(url, insecure=False)

    assert why in str(error)
    assert not error.was_sent
    assert TOKEN not in str(error)


async def test_a_name_that_does_not_exist_is_an_answer_in_words() -> None:
    error = await why_not(f"http://no-such-name.invalid/{TOKEN}")

    assert str(error) == "no-such-name.invalid: the name cannot be resolved"
    assert not error.was_sent


class SilentNames:
    """The DNS server of names that end in `.invalid` does not answer. Names that were *asked* for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.answered = threading.Event()
        self._getaddrinfo = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host: str, *args: Any, **options: Any) -> Any:
        if host.endswith(".invalid"):
            self.asked.append(host)
            self.answered.wait()
        return self._getaddrinfo(host, *args, **options)


@pytest.fixture
def silent_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentNames]:
    names = SilentNames(monkeypatch)
    yield names
    names.answered.set()


async def test_a_name_whose_dns_server_does_not_answer_delays_no_other_service(silent_names: SilentNames) -> None:
    """As in the pool of threads in which asyncio resolves all names: it has at most 32."""
    dead = [Http(ManualClock(), insecure_http=True, limits=Limits(connect=0.1, answer=20)) for _ in range(40)]
    posts = [http.post(f"http://service-{number}.invalid/", b"", {}) for number, http in enumerate(dead)]
    async with receiving(answers(202)) as server:
        errors = await asyncio.gather(*posts, return_exceptions=True)
        response = await post(server.url.replace("127.0.0.1", "localhost"), limits=Limits(connect=5, answer=5))
    for http in dead:
        await http.close()

    assert response.status == 202
    assert {str(error).partition(" ")[2] for error in errors} == {"did not answer within 0.1 s"}


async def test_messages_to_one_service_ask_for_its_addresses_once_at_a_time(silent_names: SilentNames) -> None:
    http = Http(ManualClock(), insecure_http=True, limits=Limits(connect=0.05, answer=20))
    for _ in range(2):
        posts = [http.post("http://service.invalid/", b"", {}) for _ in range(8)]
        assert all(isinstance(error, NoAnswer) for error in await asyncio.gather(*posts, return_exceptions=True))
    await http.close()

    assert silent_names.asked == ["service.invalid"]


async def test_a_port_without_a_server_is_named_without_the_path() -> None:
    async with receiving(hangs) as server:
        url = server.url
    error = await why_not(f"{url}/{TOKEN}")

    assert str(error).startswith("127.0.0.1: cannot connect")
    assert not error.was_sent


@pytest.mark.parametrize("behaviour", [hangs, resets, drips_head])
async def test_a_request_that_left_and_was_not_answered_may_have_arrived(behaviour: Behaviour) -> None:
    async with receiving(behaviour) as server:
        error = await why_not(f"{server.url}/{TOKEN}")

    assert error.was_sent
    assert TOKEN not in str(error)


async def test_an_answer_that_drips_ends_at_the_deadline_with_its_status() -> None:
    async with receiving(drips_body(200)) as server:
        response = await post(server.url)

    assert (response.status, response.cut) == (200, "127.0.0.1 did not answer within 0.1 s")


async def test_of_an_endless_answer_no_more_is_read_than_allowed() -> None:
    async with receiving(floods(200)) as server:
        response = await post(server.url, limits=Limits(connect=20, answer=20, body=1000))

    assert len(response.body) == 1000
    assert response.cut == "the answer is larger than 0 KiB"


async def test_a_compressed_answer_is_not_unpacked() -> None:
    """A few bytes could become gigabytes."""
    async with receiving(answers(200, b"not gzip", Content_Encoding="gzip")) as server:
        response = await post(server.url)

    assert response.body == b"not gzip"
    assert server.received[0].headers["accept-encoding"] == "identity"


async def test_no_cookie_is_kept() -> None:
    async with receiving(answers(200, Set_Cookie="a=b")) as server:
        http = Http(ManualClock(), insecure_http=True, limits=QUICK)
        url = server.url.replace("127.0.0.1", "localhost")  # of a number no client keeps cookies
        await http.post(url, b"{}", {})
        await http.post(url, b"{}", {})
        await http.close()

    assert "cookie" not in server.received[1].headers


async def test_a_server_that_takes_the_connection_and_says_nothing_of_tls_got_nothing() -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    with silent, pytest.raises(NoAnswer) as caught:
        await post(f"https://127.0.0.1:{silent.getsockname()[1]}/", limits=Limits(connect=0.1, answer=20))

    assert str(caught.value) == "127.0.0.1 did not answer within 0.1 s"
    assert not caught.value.was_sent


async def test_an_unknown_authority_is_not_trusted(right_certificate: Path) -> None:
    async with receiving(answers(200), tls=server_tls(right_certificate)) as server:
        error = await why_not(f"{server.url}/{TOKEN}")

    assert str(error) == "localhost: the certificate of the server is not trusted: self-signed certificate"
    assert server.received == []


async def test_a_new_file_of_authorities_is_used_without_a_restart(
    right_certificate: Path, wrong_certificate: Path, tmp_path: Path
) -> None:
    trusted = tmp_path / "ca.crt"
    trusted.write_bytes(wrong_certificate.read_bytes())
    async with receiving(answers(200), tls=server_tls(right_certificate)) as server:
        http = Http(ManualClock(), ca_file=str(trusted), limits=QUICK)
        with pytest.raises(NoAnswer):
            await http.post(server.url, b"{}", {})
        (tmp_path / "new").write_bytes(right_certificate.read_bytes())
        (tmp_path / "new").rename(trusted)
        response = await http.post(server.url, b"{}", {})
        await http.close()

    assert response.status == 200


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_a_file_of_authorities_that_cannot_be_used_is_named(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_text(content)

    assert f"cannot use the ca_file {path}" in str(await why_not("https://localhost:1/", ca_file=str(path)))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        ("999999", 3600),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0),
        ("Fri, 01 Jan 2027 00:00:00 GMT", 3600),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("٣", None),
        ("soon", None),
        ("9" * 5000, None),
    ],
)
def test_the_time_to_wait_is_seconds_or_a_date_and_has_an_end(text: str, seconds: float | None) -> None:
    assert parse_retry_after(text, NOW) == seconds


async def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving(answers(202)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        http = Http(ManualClock(), insecure_http=True, limits=QUICK, proxy_for=proxy_of_environment)
        response = await http.post("http://service.invalid/hook", b"{}", {})
        with pytest.raises(NoAnswer, match="metadata address"):
            await http.post("http://169.254.169.254/hook", b"{}", {})
        await http.close()

    assert response.status == 202
    assert [request.path for request in proxy.received] == ["http://service.invalid/hook"]


def test_no_proxy_is_used_for_what_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "monitoring.svc,10.0.0.7")

    assert proxy_of_environment("https://service.example/x") == "http://proxy.example:3128"
    assert proxy_of_environment("https://alertmanager.monitoring.svc/x") == ""
    assert proxy_of_environment("https://10.0.0.7/x") == ""
    assert proxy_of_environment("http://service.example/x") == ""


async def test_a_proxy_that_is_not_there_is_named_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving(hangs) as gone:
        url = gone.url
    http = Http(ManualClock(), insecure_http=True, limits=QUICK, proxy_for=lambda _: url)
    with pytest.raises(NoAnswer, match=r"service\.invalid: cannot connect to the proxy") as caught:
        await http.post("http://service.invalid/hook", b"{}", {})
    await http.close()

    assert not caught.value.was_sent


@pytest.mark.slow
async def test_nothing_is_left_open() -> None:
    async with receiving(hangs) as server:
        await why_not(server.url)

    gc.collect()  # an open connection would be a ResourceWarning, which is an error


def _local_networks() -> list[object]:
    import ipaddress

    return [ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128")]
