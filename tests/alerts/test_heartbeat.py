"""How a heartbeat service is called: as it is configured, over https, to no other host, and with its secrets hidden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from healthd.alerts.heartbeat import HeartbeatService, make_heartbeat
from healthd.alerts.http import Http
from healthd.alerts.sink import Answer, Outcome
from healthd.core.config.heartbeat import HeartbeatMethod, HeartbeatPolicy
from tests.alerts.conftest import server_tls
from tests.alerts.incidents import PATH_TOKEN, QUICK, a_secret
from tests.alerts.receivers import Behaviour, Received, answers, floods, hangs, receiving
from tests.fakes import ManualClock


async def beat(url: str, folder: Path, **fields: Any) -> Outcome:
    """One call of the service whose secret address is *url*."""
    policy = HeartbeatPolicy(url_file=a_secret(folder, "url", url), **{"insecure": True, **fields})
    http = Http(ManualClock(), ca_file=policy.ca_file, insecure_http=policy.insecure, limits=QUICK)
    service = HeartbeatService(policy, http)
    try:
        return await service.beat()
    finally:
        await service.close()


async def called(folder: Path, **fields: Any) -> Received:
    """What the service gets."""
    async with receiving(answers(200, b"OK")) as server:
        outcome = await beat(f"{server.url}/{PATH_TOKEN}", folder, **fields)
    assert outcome.answer is Answer.ACCEPTED
    return server.received[0]


@pytest.mark.parametrize("method", ["post", "get"])
async def test_the_address_is_called_with_the_method_that_the_service_takes(tmp_path: Path, method: str) -> None:
    got = await called(tmp_path, method=HeartbeatMethod(method))

    assert got.method == method.upper()
    assert got.path == f"/{PATH_TOKEN}"
    assert got.body == b""
    assert "authorization" not in got.headers


async def test_a_service_that_asks_who_calls_gets_the_header_from_its_file(tmp_path: Path) -> None:
    got = await called(tmp_path, authorization_file=a_secret(tmp_path, "key", "GenieKey 0f1e2d3c4b"))

    assert got.headers["authorization"] == "GenieKey 0f1e2d3c4b"


@pytest.mark.parametrize("behaviour", [answers(500), answers(404), answers(302, Location="https://e.example/")])
async def test_any_other_answer_is_no_beat_and_a_redirect_is_not_followed(tmp_path: Path, behaviour: Behaviour) -> None:
    async with receiving(behaviour) as server:
        outcome = await beat(f"{server.url}/{PATH_TOKEN}", tmp_path)

    assert outcome.answer is Answer.RETRY
    assert len(server.received) == 1


async def test_a_service_that_hangs_is_no_beat(tmp_path: Path) -> None:
    async with receiving(hangs) as server:
        outcome = await beat(server.url, tmp_path)

    assert outcome.answer is Answer.RETRY
    assert "did not answer within" in outcome.detail


async def test_a_service_that_answers_without_end_has_heard(tmp_path: Path) -> None:
    async with receiving(floods(200)) as server:
        outcome = await beat(server.url, tmp_path)

    assert outcome.answer is Answer.ACCEPTED


async def test_http_and_metadata_addresses_are_not_called(tmp_path: Path) -> None:
    plain = await beat("http://hc.example/x", tmp_path, insecure=False)
    metadata = await beat("http://169.254.169.254/latest", tmp_path)

    assert "must begin with https://" in plain.detail
    assert "metadata address" in metadata.detail


async def test_https_is_checked_against_the_authorities_of_the_configuration(
    tmp_path: Path, right_certificate: Path, wrong_certificate: Path
) -> None:
    async with receiving(answers(200), tls=server_tls(right_certificate)) as server:
        trusted = await beat(server.url, tmp_path, insecure=False, ca_file=str(right_certificate))
        other = await beat(server.url, tmp_path, insecure=False, ca_file=str(wrong_certificate))

    assert trusted.answer is Answer.ACCEPTED
    assert "not trusted" in other.detail


async def test_no_secret_is_in_what_is_said_about_a_failure(tmp_path: Path) -> None:
    key = a_secret(tmp_path, "key", "GenieKey 0f1e2d3c4b")
    async with receiving(answers(403, f"no {PATH_TOKEN} by GenieKey 0f1e2d3c4b".encode())) as server:
        outcome = await beat(f"{server.url}/{PATH_TOKEN}", tmp_path, authorization_file=key)

    assert "answered 403" in outcome.detail
    assert PATH_TOKEN not in outcome.detail
    assert "0f1e2d3c4b" not in outcome.detail


@pytest.mark.parametrize("text", ["", "not an address", "https://a.example/\nhttps://b.example/"])
async def test_a_file_that_holds_no_address_says_so_and_calls_nothing(tmp_path: Path, text: str) -> None:
    outcome = await beat(text, tmp_path)

    assert outcome.answer is Answer.RETRY
    assert "the secret file" in outcome.detail


async def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    async with receiving(answers(200)) as server:
        service = make_heartbeat(
            HeartbeatPolicy(url_file=a_secret(tmp_path, "url", f"{server.url}/old"), insecure=True), ManualClock()
        )
        assert service is not None
        await service.beat()
        a_secret(tmp_path, "url", f"{server.url}/new")
        await service.beat()
        await service.close()

    assert [got.path for got in server.received] == ["/old", "/new"]


def test_without_a_file_there_is_no_service() -> None:
    assert make_heartbeat(HeartbeatPolicy(), ManualClock()) is None


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"url_file": "secrets/url"}, "url_file must be an absolute path"),
        ({"authorization_file": "/secrets/key"}, "there is no url_file"),
    ],
)
def test_a_configuration_that_cannot_be_right_is_refused(fields: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        HeartbeatPolicy(**fields)  # type: ignore[arg-type]
