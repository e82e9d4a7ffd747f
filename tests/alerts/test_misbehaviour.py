"""Every alert service, against everything that a server may do wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from healthd.alerts.registry import HTTP_SINKS
from healthd.alerts.sink import Answer
from healthd.core.config.alerts import NEEDS, SinkKind
from tests.alerts.conftest import server_tls
from tests.alerts.incidents import KEY, PATH_TOKEN, TOKEN, a_secret, a_sink, an_incident
from tests.alerts.receivers import (
    Behaviour,
    answers,
    drips_body,
    drips_head,
    floods,
    floods_headers,
    hangs,
    receiving,
    resets,
    speaks_another_protocol,
)

ACCEPTED, DELIVERED, UNKNOWN, REFUSED, RETRY = Answer
GOOD: dict[SinkKind, tuple[int, Any, Answer]] = {
    SinkKind.ALERTMANAGER: (200, b"", ACCEPTED),
    SinkKind.PAGERDUTY: (202, {"status": "success", "message": "Event processed"}, ACCEPTED),
    SinkKind.JSM: (202, {"result": "Request will be processed", "requestId": "1"}, ACCEPTED),
    SinkKind.SLACK: (200, {"ok": True, "channel": "C1", "ts": "171.5"}, DELIVERED),
    SinkKind.SLACK_WEBHOOK: (200, b"ok", DELIVERED),
    SinkKind.INCIDENT_IO: (202, {"status": "success", "message": "Event accepted for processing"}, ACCEPTED),
    SinkKind.TEAMS: (202, b"", ACCEPTED),
    SinkKind.FEISHU: (200, {"code": 0, "msg": "success", "data": {}}, DELIVERED),
    SinkKind.DINGTALK: (200, {"errcode": 0, "errmsg": "ok"}, DELIVERED),
    SinkKind.WECOM: (200, {"errcode": 0, "errmsg": "ok"}, DELIVERED),
    SinkKind.WEBHOOK: (204, b"", ACCEPTED),
}
"""What each service answers when all is well, and what that proves."""
SAYS_IT_IN_THE_BODY = {
    SinkKind.SLACK,
    SinkKind.SLACK_WEBHOOK,
    SinkKind.FEISHU,
    SinkKind.DINGTALK,
    SinkKind.WECOM,
}
KINDS = list(GOOD)
SECRETS = (TOKEN, PATH_TOKEN, "k3y-in-the-path", KEY)
LATER = "Thu, 01 Jan 2026 03:13:30 GMT"
"""90 seconds after the clock of the sinks."""

TABLE: dict[str, tuple[Behaviour, Answer]] = {
    "429": (answers(429, Retry_After="7"), RETRY),
    "429 until a date": (answers(429, Retry_After=LATER), RETRY),
    "500": (answers(500, b"<h1>Oops</h1>"), RETRY),
    "503": (answers(503, Retry_After="7"), RETRY),
    "401": (answers(401), RETRY),
    "404": (answers(404), RETRY),
    "400": (answers(400, b"bad"), REFUSED),
    "413": (answers(413), REFUSED),
    "redirect": (answers(302, Location="http://127.0.0.1:1/"), RETRY),
    "redirect of a POST": (answers(308, Location="http://127.0.0.1:1/"), RETRY),
    "hang": (hangs, RETRY),
    "reset": (resets, RETRY),
    "slow drip of the head": (drips_head, RETRY),
    "endless headers": (floods_headers, RETRY),
    "not HTTP": (speaks_another_protocol, RETRY),
}
"""What a server does, and what follows for every service."""


def test_the_table_has_every_kind() -> None:
    assert set(GOOD) == set(HTTP_SINKS) == set(SinkKind) - {SinkKind.APPRISE}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_good_answer_proves_what_the_service_promises(kind: SinkKind, tmp_path: Path) -> None:
    status, body, proves = GOOD[kind]
    async with receiving(answers(status, body)) as server:
        sink = a_sink(kind, server.url, tmp_path)
        outcomes = [await sink.send(an_incident(), ""), await sink.send_digest([an_incident()])]
        await sink.close()

    assert [outcome.answer for outcome in outcomes] == [proves, proves]
    assert len(server.received) >= 2


@pytest.mark.parametrize("trouble", TABLE)
@pytest.mark.parametrize("kind", KINDS)
async def test_trouble_has_one_meaning_and_shows_no_secret(kind: SinkKind, trouble: str, tmp_path: Path) -> None:
    behaviour, answer = TABLE[trouble]
    async with receiving(behaviour) as server:
        sink = a_sink(kind, server.url, tmp_path)
        outcome = await sink.send(an_incident(), "")
        await sink.close()

    assert outcome.answer is answer, outcome.detail
    assert len(server.received) == 1
    assert not any(secret in outcome.detail for secret in SECRETS)


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), (LATER, 90.0), ("soon", None)])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_time_that_a_service_asks_for_is_passed_on(
    kind: SinkKind, header: str, seconds: float | None, tmp_path: Path
) -> None:
    async with receiving(answers(429, Retry_After=header)) as server:
        sink = a_sink(kind, server.url, tmp_path)
        outcome = await sink.send(an_incident(), "")
        await sink.close()

    assert outcome.retry_after == seconds


@pytest.mark.parametrize("make", [drips_body, floods])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_status_without_the_end_of_its_body_proves_what_the_status_proves(
    kind: SinkKind, make: Any, tmp_path: Path
) -> None:
    """Services that say in the body what happened have proved nothing then."""
    status, _, proves = GOOD[kind]
    async with receiving(make(200 if status == 204 else status)) as server:
        sink = a_sink(kind, server.url, tmp_path)
        outcome = await sink.send(an_incident(), "")
        await sink.close()

    assert outcome.answer is (UNKNOWN if kind in SAYS_IT_IN_THE_BODY else proves), outcome.detail


@pytest.mark.parametrize("kind", sorted({*KINDS} - {SinkKind.ALERTMANAGER, SinkKind.WEBHOOK}))
async def test_a_page_of_a_proxy_is_not_taken_for_the_service(kind: SinkKind, tmp_path: Path) -> None:
    async with receiving(answers(200, b"<html>Sign in, or this is an error</html>")) as server:
        sink = a_sink(kind, server.url, tmp_path)
        outcome = await sink.send(an_incident(), "")
        await sink.close()

    assert outcome.answer is RETRY, outcome.detail


@pytest.mark.parametrize("kind", KINDS)
async def test_a_redirect_to_another_host_is_not_followed(kind: SinkKind, tmp_path: Path) -> None:
    async with receiving(answers(200)) as other, receiving(answers(307, Location=other.url)) as server:
        sink = a_sink(kind, server.url, tmp_path)
        outcome = await sink.send(an_incident(), "")
        await sink.close()

    assert outcome.answer is RETRY
    assert "a redirect, which healthd does not follow" in outcome.detail
    assert other.received == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_with_a_certificate_of_another_name_gets_nothing(
    kind: SinkKind, tmp_path: Path, wrong_certificate: Path
) -> None:
    status, body, _ = GOOD[kind]
    async with receiving(answers(status, body), tls=server_tls(wrong_certificate)) as server:
        sink = a_sink(kind, server.url, tmp_path, ca_file=str(wrong_certificate), insecure=False)
        outcome = await sink.send(an_incident(), "")
        await sink.close()

    assert outcome.answer is RETRY
    assert "certificate" in outcome.detail
    assert server.received == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_whose_authority_is_named_gets_the_message(
    kind: SinkKind, tmp_path: Path, right_certificate: Path
) -> None:
    status, body, proves = GOOD[kind]
    async with receiving(answers(status, body), tls=server_tls(right_certificate)) as server:
        sink = a_sink(kind, server.url, tmp_path, ca_file=str(right_certificate), insecure=False)
        outcome = await sink.send(an_incident(), "")
        await sink.close()

    assert outcome.answer is proves, outcome.detail


@pytest.mark.parametrize("kind", KINDS)
async def test_no_answer_of_a_server_brings_a_secret_into_the_detail(kind: SinkKind, tmp_path: Path) -> None:
    key = a_secret(tmp_path, "key", KEY)
    async with receiving(answers(400, f"who sends {TOKEN}, {KEY} to /{PATH_TOKEN}?".encode())) as server:
        sink = a_sink(kind, server.url, tmp_path, secret_file=key)
        outcome = await sink.send(an_incident(), "")
        await sink.close()

    shown = {secret for secret in SECRETS if secret in outcome.detail}
    assert not shown.intersection(own_secrets(kind)), outcome.detail


async def test_a_secret_is_hidden_before_the_answer_is_cut(tmp_path: Path) -> None:
    """Its first half would be left otherwise."""
    async with receiving(answers(400, b"x" * 195 + b" " + TOKEN.encode())) as server:
        sink = a_sink(SinkKind.PAGERDUTY, server.url, tmp_path)
        outcome = await sink.send(an_incident(), "")
        await sink.close()

    assert TOKEN[:3] not in outcome.detail


@pytest.mark.parametrize("kind", KINDS)
async def test_a_missing_secret_is_waited_for(kind: SinkKind, tmp_path: Path) -> None:
    async with receiving(answers(200)) as server:
        sink = a_sink(kind, server.url, tmp_path, secret_file=str(tmp_path / "absent"))
        outcome = await sink.send(an_incident(), "thread")
        await sink.close()

    assert outcome.answer is RETRY
    assert outcome.detail == f"there is no secret file {tmp_path}/absent"
    assert server.received == []


BODY_ERRORS = [
    (SinkKind.SLACK, {"ok": False, "error": "channel_not_found"}, RETRY, None),
    (SinkKind.SLACK, {"ok": False, "error": "invalid_blocks"}, REFUSED, None),
    (SinkKind.SLACK, {"ok": False, "error": "internal_error"}, RETRY, None),
    (SinkKind.FEISHU, {"code": 11232, "msg": "frequency limited"}, RETRY, 60.0),
    (SinkKind.FEISHU, {"code": 19021, "msg": "sign match fail"}, RETRY, None),
    (SinkKind.FEISHU, {"code": 9499, "msg": "Bad Request"}, REFUSED, None),
    (SinkKind.DINGTALK, {"errcode": 130101, "errmsg": "send too fast"}, RETRY, 600.0),
    (SinkKind.DINGTALK, {"errcode": 310000, "errmsg": "sign not match"}, RETRY, None),
    (SinkKind.DINGTALK, {"errcode": 460101, "errmsg": "message too long"}, REFUSED, None),
    (SinkKind.WECOM, {"errcode": 45009, "errmsg": "api freq out of limit"}, RETRY, 60.0),
    (SinkKind.WECOM, {"errcode": 93000, "errmsg": "invalid webhook url"}, RETRY, None),
    (SinkKind.WECOM, {"errcode": 40058, "errmsg": "exceed max length"}, REFUSED, None),
    (SinkKind.WECOM, {"answer": "of something else"}, RETRY, None),
]


@pytest.mark.parametrize(("kind", "body", "answer", "seconds"), BODY_ERRORS)
async def test_an_error_in_the_body_of_an_answer_of_200(
    kind: SinkKind, body: dict[str, Any], answer: Answer, seconds: float | None, tmp_path: Path
) -> None:
    async with receiving(answers(200, body)) as server:
        sink = a_sink(kind, server.url, tmp_path)
        outcome = await sink.send(an_incident(), "")
        await sink.close()

    assert (outcome.answer, outcome.retry_after) == (answer, seconds), outcome.detail


def own_secrets(kind: SinkKind) -> set[str]:
    """The secrets that a sink of *kind* has in these tests."""
    of_files = {"url_file": {PATH_TOKEN, "k3y-in-the-path"}, "token_file": {TOKEN}}
    return {KEY}.union(*(of_files.get(need, set()) for need in NEEDS[kind]))
