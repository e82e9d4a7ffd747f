"""What each service gets: the form that it documents, within its limits, and no name in a text is a mention."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from healthd.alerts.sinks.webhook import Message, signature
from healthd.core.api.incidents import Incident, Severity
from healthd.core.config.alerts import SinkKind
from tests.alerts.incidents import KEY, PATH_TOKEN, TOKEN, a_secret, a_sink, an_incident, resolved
from tests.alerts.receivers import Received, answers, receiving
from tests.alerts.test_misbehaviour import GOOD, KINDS

PAGE, NOTICE = Severity.PAGE, Severity.NOTICE
LINKS = "<https://evil.example|Runbook> [Runbook](https://evil.example) <a href='https://evil.example'>x</a> ![](x)"
CONTROLS = "\x1b]0;title\x07 \x1b[2J\r\x08 \u202egnp.exe \u2028 \x00 \x9b31m"
MENTIONS = "<!channel> <!here|x> <@U123> <#C1> @all @here @channel @所有人 <at id=all></at> <at>x</at> <@all> &lt;"


async def requests(
    kind: SinkKind, folder: Path, *incidents: Incident, threads: Sequence[str] = (), **other: Any
) -> list[Received]:
    """What the service gets for *incidents*, one after the other. The thread of each outcome goes into the next."""
    status, body, _ = GOOD[kind]
    async with receiving(answers(status, body)) as server:
        sink = a_sink(kind, server.url, folder, **other)
        thread = threads[0] if threads else ""
        for incident in incidents:
            thread = (await sink.send(incident, thread)).thread
        await sink.close()
    return server.received


async def the_request(kind: SinkKind, folder: Path, incident: Incident, **other: Any) -> Received:
    """The only one."""
    [request] = await requests(kind, folder, incident, **other)
    return request


async def test_alertmanager_gets_labels_and_an_end_in_ten_minutes(tmp_path: Path) -> None:
    request = await the_request(SinkKind.ALERTMANAGER, tmp_path, an_incident())

    assert request.path == "/api/v2/alerts"
    assert request.json == [
        {
            "labels": {
                "alertname": "HealthdIncident",
                "cause": "xid-79",
                "gang": "job/llama",
                "incident": "recovery/team-a/llama-3",
                "namespace": "team-a",
                "severity": "page",
                "team": "research",
            },
            "annotations": {
                "summary": "job/llama waits for a spare",
                "happened": "GPU 3 of n7 fell off the bus.",
                "did": "healthd stopped the gang.",
                "todo": "Add a spare node.",
                "command": "healthd explain job/llama -n team-a",
                "runbook": "recovery-held",
                "nodes": "n7, n9",
                "revision": "1",
            },
            "startsAt": "2026-01-01T03:12:00Z",
            "endsAt": "2026-01-01T03:22:00Z",
        }
    ]


async def test_alertmanager_gets_the_real_end_and_the_end_of_the_alert_with_the_other_severity(tmp_path: Path) -> None:
    request = await the_request(SinkKind.ALERTMANAGER, tmp_path, resolved(an_incident()))

    assert [(alert["labels"]["severity"], alert["endsAt"]) for alert in request.json] == [
        ("page", "2026-01-01T04:12:00Z"),
        ("notice", "2026-01-01T04:12:00Z"),
    ]


async def test_alertmanager_gets_the_end_of_an_alert_only_when_it_had_one(tmp_path: Path) -> None:
    """The end of an alert that never fired would be part of each notification about its group."""
    notice, page = an_incident(severity=NOTICE), an_incident(revision=2)
    received = await requests(SinkKind.ALERTMANAGER, tmp_path, notice, page, page)

    sent = [[(alert["labels"]["severity"], alert["endsAt"]) for alert in request.json] for request in received]
    assert sent == [
        [("notice", "2026-01-01T03:22:00Z")],
        [("page", "2026-01-01T03:22:00Z"), ("notice", "2026-01-01T03:13:00Z")],
        [("page", "2026-01-01T03:22:00Z")],
    ]


async def test_every_replica_of_an_alertmanager_gets_the_alert_and_one_is_enough(tmp_path: Path) -> None:
    async with receiving(answers(200)) as one, receiving(answers(503)) as two:
        sink = a_sink(SinkKind.ALERTMANAGER, one.url, tmp_path, urls=(one.url, two.url))
        outcome = await sink.send(an_incident(), "")
        await sink.close()

    assert outcome.answer == "accepted"
    assert outcome.detail == "1 of 2 replicas have it; answered 503"
    assert one.received[0].json == two.received[0].json


async def test_pagerduty_gets_an_event_that_opens_and_one_that_closes(tmp_path: Path) -> None:
    opened = await requests(SinkKind.PAGERDUTY, tmp_path, an_incident(), resolved(an_incident()))
    first, last = opened

    assert first.path == "/v2/enqueue"
    assert first.json == {
        "routing_key": TOKEN,
        "event_action": "trigger",
        "dedup_key": "recovery/team-a/llama-3",
        "client": "healthd",
        "payload": {
            "summary": "job/llama waits for a spare",
            "source": "job/llama",
            "severity": "critical",
            "timestamp": "2026-01-01T03:12:00Z",
            "component": "healthd",
            "group": "team-a",
            "custom_details": {
                "what_happened": "GPU 3 of n7 fell off the bus.",
                "what_healthd_did": "healthd stopped the gang.",
                "what_is_left_to_do": "Add a spare node.",
                "ask_why": "healthd explain job/llama -n team-a",
                "runbook": "recovery-held",
                "gang": "job/llama",
                "namespace": "team-a",
                "team": "research",
                "nodes": "n7, n9",
                "cause": "xid-79",
            },
        },
    }
    assert (last.json["event_action"], last.json["dedup_key"]) == ("resolve", "recovery/team-a/llama-3")


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (SinkKind.ALERTMANAGER, ("labels", "incident")),
        (SinkKind.PAGERDUTY, ("dedup_key",)),
        (SinkKind.JSM, ("alias",)),
        (SinkKind.INCIDENT_IO, ("deduplication_key",)),
        (SinkKind.WEBHOOK, ("groupKey",)),
    ],
)
async def test_two_clusters_that_alert_to_one_service_share_no_key(
    kind: SinkKind, key: tuple[str, ...], tmp_path: Path
) -> None:
    clusters = [an_incident(cluster=name) for name in ("prod-eu", "prod-us", "")]
    received = [(await requests(kind, tmp_path, incident))[0].json for incident in clusters]
    found = [body[0] if isinstance(body, list) else body for body in received]
    for part in key:
        found = [body[part] for body in found]

    own = "recovery/team-a/llama-3"
    assert found == [f"prod-eu/{own}", f"prod-us/{own}", own]
    assert "prod-eu" in json.dumps(received[0]).replace(f"prod-eu/{own}", ""), "people read it, too"


@pytest.mark.parametrize("kind", [SinkKind.PAGERDUTY, SinkKind.JSM, SinkKind.INCIDENT_IO, SinkKind.WEBHOOK])
async def test_two_clusters_share_no_digest(kind: SinkKind, tmp_path: Path) -> None:
    async with receiving(answers(202)) as receiver:
        sink = a_sink(kind, receiver.url, tmp_path)
        for name in ("prod-eu", "prod-us"):
            await sink.send_digest([an_incident(cluster=name), an_incident(key="node/n1/1", cluster=name)])
        await sink.close()

    keys = ("dedup_key", "alias", "deduplication_key", "groupKey")
    found = {body[key] for body in (each.json for each in receiver.received) for key in keys if key in body}
    assert found == {"prod-eu/healthd/digest", "prod-us/healthd/digest"}


@pytest.mark.parametrize("kind", [SinkKind.PAGERDUTY, SinkKind.INCIDENT_IO])
async def test_a_notice_that_becomes_a_page_is_a_new_alert_and_the_first_is_closed(
    kind: SinkKind, tmp_path: Path
) -> None:
    notice = an_incident(severity=NOTICE)
    page = an_incident(revision=2)
    received = await requests(kind, tmp_path, notice, page, resolved(page))

    key, state = ("dedup_key", "event_action") if kind is SinkKind.PAGERDUTY else ("deduplication_key", "status")
    opens, closes = ("trigger", "resolve") if kind is SinkKind.PAGERDUTY else ("firing", "resolved")
    assert [(request.json[key], request.json[state]) for request in received] == [
        ("recovery/team-a/llama-3#notice", opens),
        ("recovery/team-a/llama-3", opens),
        ("recovery/team-a/llama-3#notice", closes),
        ("recovery/team-a/llama-3", closes),
    ]


@pytest.mark.parametrize("kind", [SinkKind.PAGERDUTY, SinkKind.JSM, SinkKind.INCIDENT_IO])
async def test_an_end_whose_beginning_was_forgotten_closes_both_alerts(kind: SinkKind, tmp_path: Path) -> None:
    received = await requests(kind, tmp_path, resolved(an_incident()))

    assert len(received) == 2
    assert "%23notice" in received[1].path or "#notice" in received[1].body.decode()


@pytest.mark.parametrize("kind", [SinkKind.PAGERDUTY, SinkKind.JSM, SinkKind.INCIDENT_IO])
async def test_a_digest_closes_what_was_resolved_and_goes_on_where_it_was_stopped(
    kind: SinkKind, tmp_path: Path
) -> None:
    status, body, proves = GOOD[kind]
    ended = [resolved(an_incident(key=f"node/n{number}")) for number in range(2)]
    async with receiving(answers(status, body), answers(429), answers(status, body)) as server:
        sink = a_sink(kind, server.url, tmp_path)
        outcomes = [await sink.send_digest(ended), await sink.send_digest(ended)]
        await sink.close()

    assert [outcome.answer for outcome in outcomes] == ["retry", proves]
    assert len(server.received) == 5, "four alerts, of which one was tried twice"


async def test_jsm_gets_an_alert_a_note_and_a_close(tmp_path: Path) -> None:
    update = an_incident(revision=2, todo="Repair n7.")
    opened, note, close = await requests(SinkKind.JSM, tmp_path, an_incident(), update, resolved(update))
    alert = opened.json

    assert opened.path == "/"
    assert opened.headers["authorization"] == f"GenieKey {TOKEN}"
    assert alert.pop("description").splitlines()[-1] == "Runbook: recovery-held"
    assert alert == {
        "message": "job/llama waits for a spare",
        "alias": "recovery/team-a/llama-3",
        "entity": "job/llama",
        "source": "healthd",
        "priority": "P1",
        "tags": ["healthd", "team-a", "research"],
        "details": {
            "command": "healthd explain job/llama -n team-a",
            "runbook": "recovery-held",
            "namespace": "team-a",
        },
    }
    assert note.path == "/recovery%2Fteam-a%2Fllama-3/notes?identifierType=alias"
    assert "Repair n7." in note.json["note"]
    assert close.path == "/recovery%2Fteam-a%2Fllama-3/close?identifierType=alias"


async def test_incident_io_gets_an_event(tmp_path: Path) -> None:
    request = await the_request(SinkKind.INCIDENT_IO, tmp_path, an_incident())
    event = request.json

    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert {"title", "description", "status", "deduplication_key", "metadata"} == set(event)
    assert (event["status"], event["metadata"]["severity"]) == ("firing", "page")
    assert event["metadata"]["nodes"] == ["n7", "n9"]


async def test_slack_keeps_one_message_up_to_date_and_adds_to_its_thread(tmp_path: Path) -> None:
    notice, page = an_incident(severity=NOTICE), an_incident(revision=2)
    first, update, reply, *rest = await requests(SinkKind.SLACK, tmp_path, notice, page, resolved(page))

    assert first.path == "/chat.postMessage"
    assert first.headers["authorization"] == f"Bearer {TOKEN}"
    assert first.json["channel"] == "C1"
    assert first.json["text"] == "[NOTICE] job/llama waits for a spare"
    assert (update.path, update.json["ts"]) == ("/chat.update", "171.5")
    assert (reply.json["thread_ts"], reply.json["reply_broadcast"]) == ("171.5", True), "it became a page"
    assert [request.path for request in rest] == ["/chat.update", "/chat.postMessage"]
    assert rest[1].json["reply_broadcast"] is False


async def test_slack_posts_anew_when_the_first_message_was_deleted(tmp_path: Path) -> None:
    gone, good = answers(200, {"ok": False, "error": "message_not_found"}), answers(200, GOOD[SinkKind.SLACK][1])
    async with receiving(gone, good) as server:
        sink = a_sink(SinkKind.SLACK, server.url, tmp_path)
        outcome = await sink.send(an_incident(), "C1:99.1:page")
        await sink.close()

    assert (outcome.answer, outcome.thread) == ("delivered", "C1:171.5:page")


async def test_slack_gets_blocks(tmp_path: Path) -> None:
    request = await the_request(SinkKind.SLACK_WEBHOOK, tmp_path, an_incident())

    assert request.path == f"/{PATH_TOKEN}"
    assert [block["text"]["text"] for block in request.json["blocks"]] == [
        "*[PAGE] job/llama waits for a spare*",
        "Since 2026-01-01 03:12:00 UTC",
        "Gang job/llama · Namespace team-a · Team research · Nodes n7, n9",
        "*What happened*\nGPU 3 of n7 fell off the bus.",
        "*What healthd did*\nhealthd stopped the gang.",
        "*What is left to do*\nAdd a spare node.",
        "*Ask why*\nhealthd explain job/llama -n team-a",
        "*Runbook*\nrecovery-held",
    ]
    assert all(block["text"]["verbatim"] for block in request.json["blocks"])


async def test_teams_gets_an_adaptive_card_without_markdown(tmp_path: Path) -> None:
    request = await the_request(SinkKind.TEAMS, tmp_path, an_incident())
    [attachment] = request.json["attachments"]
    card = attachment["content"]

    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert {run["type"] for block in card["body"] for run in block["inlines"]} == {"TextRun"}
    assert card["body"][0]["inlines"][0]["text"] == "[PAGE] job/llama waits for a spare"


async def test_feishu_gets_a_signed_card(tmp_path: Path) -> None:
    key = a_secret(tmp_path, "key", KEY)
    message = (await the_request(SinkKind.FEISHU, tmp_path, an_incident(), secret_file=key)).json
    sign = hmac.new(f"1767237120\n{KEY}".encode(), b"", hashlib.sha256).digest()

    assert (message["timestamp"], message["sign"]) == ("1767237120", base64.b64encode(sign).decode())
    assert message["msg_type"] == "interactive"
    assert message["card"]["header"] == {
        "title": {"tag": "plain_text", "content": "[PAGE] job/llama waits for a spare"},
        "template": "red",
    }
    assert message["card"]["elements"][0]["text"]["tag"] == "plain_text"


async def test_dingtalk_gets_a_text_with_a_signed_address(tmp_path: Path) -> None:
    key = a_secret(tmp_path, "key", KEY)
    url = a_secret(tmp_path, "ding", "placeholder")
    status, body, _ = GOOD[SinkKind.DINGTALK]
    async with receiving(answers(status, body)) as server:
        Path(url).chmod(0o600)
        Path(url).write_text(f"{server.url}/robot/send?access_token={TOKEN}\n")
        sink = a_sink(SinkKind.DINGTALK, server.url, tmp_path, secret_file=key, url_file=url)
        await sink.send(an_incident(), "")
        await sink.close()
    [request] = server.received
    query = parse_qs(urlsplit(request.path).query)
    sign = hmac.new(KEY.encode(), f"1767237120000\n{KEY}".encode(), hashlib.sha256).digest()

    assert query == {
        "access_token": [TOKEN],
        "timestamp": ["1767237120000"],
        "sign": [base64.b64encode(sign).decode()],
    }
    assert request.json["msgtype"] == "text"
    assert request.json["at"] == {"atMobiles": [], "isAtAll": False}


async def test_wecom_gets_a_text(tmp_path: Path) -> None:
    message = (await the_request(SinkKind.WECOM, tmp_path, an_incident())).json

    assert set(message) == {"msgtype", "text"}
    assert set(message["text"]) == {"content"}, "there are no mentions"
    assert message["text"]["content"].startswith("[PAGE] job/llama waits for a spare\nSince 2026-01-01")


async def test_a_webhook_is_signed_and_has_the_form_of_alertmanager(tmp_path: Path) -> None:
    key = a_secret(tmp_path, "key", KEY)
    request = await the_request(SinkKind.WEBHOOK, tmp_path, an_incident(), secret_file=key)
    message = msgspec.json.decode(request.body, type=Message)
    [alert] = message.alerts

    assert request.headers["x-healthd-timestamp"] == "1767237120"
    assert request.headers["x-healthd-signature"] == f"v1={signature(KEY, '1767237120', request.body)}"
    assert signature(KEY, "1767237120", request.body) != signature(KEY, "1767237121", request.body)
    assert set(request.json) == {
        *("version", "groupKey", "truncatedAlerts", "status", "receiver", "groupLabels", "commonLabels"),
        *("commonAnnotations", "externalURL", "alerts"),
    }
    assert (message.version, message.status, message.receiver) == ("4", "firing", "s")
    assert alert.ends_at.year == 1
    assert request.json["alerts"][0]["generatorURL"] == ""


async def test_a_webhook_says_that_it_is_over(tmp_path: Path) -> None:
    message = (await the_request(SinkKind.WEBHOOK, tmp_path, resolved(an_incident()))).json

    assert (message["status"], message["alerts"][0]["status"]) == ("resolved", "resolved")
    assert message["alerts"][0]["endsAt"] == "2026-01-01T04:12:00Z"


SIZES = {
    SinkKind.PAGERDUTY: 512_000,
    SinkKind.INCIDENT_IO: 512_000,
    SinkKind.TEAMS: 28 * 1024,
    SinkKind.FEISHU: 20 * 1024,
    SinkKind.DINGTALK: 20_000,
}
"""Bytes of a message that a service takes."""


@pytest.mark.parametrize("letter", ["x", '"', "\n", "<", "集", "🔥", "\u202e"])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_longest_texts_fit_the_service(kind: SinkKind, letter: str, tmp_path: Path) -> None:
    long = letter * 4096
    nodes = tuple(f"{letter}{number}" for number in range(1000))
    worst = an_incident(
        key="k" * 255, title=letter * 200, happened=long, did=long, todo=long, nodes=nodes, team=letter * 63
    )
    request = await the_request(kind, tmp_path, worst)
    message = request.json

    assert len(request.body) <= SIZES.get(kind, 1 << 20)
    match kind:
        case SinkKind.PAGERDUTY:
            assert len(message["dedup_key"]) <= 255
            assert len(message["payload"]["summary"]) <= 1024
        case SinkKind.JSM:
            limits = {"message": 130, "alias": 512, "description": 15_000, "entity": 512}
            assert all(len(message[field]) <= most for field, most in limits.items())
            assert all(len(tag) <= 50 for tag in message["tags"])
            assert sum(len(text) for text in message["details"].values()) <= 8000
        case SinkKind.SLACK | SinkKind.SLACK_WEBHOOK:
            assert len(message["blocks"]) <= 50
            assert all(0 < len(block["text"]["text"]) <= 3000 for block in message["blocks"])
        case SinkKind.WECOM:
            assert len(message["text"]["content"].encode()) <= 2048


@pytest.mark.parametrize("kind", [SinkKind.WECOM, SinkKind.SLACK, SinkKind.DINGTALK, SinkKind.TEAMS, SinkKind.FEISHU])
async def test_what_is_left_to_do_and_the_command_are_never_cut_away(kind: SinkKind, tmp_path: Path) -> None:
    worst = an_incident(happened="x" * 4096, did="y" * 4096, nodes=tuple(f"node-{number}" for number in range(750)))
    text = (await the_request(kind, tmp_path, worst)).body.decode()

    assert "Add a spare node." in text
    assert "healthd explain job/llama -n team-a" in text
    assert " more" in text


@pytest.mark.parametrize("kind", KINDS)
async def test_a_long_digest_fits_and_counts_the_rest(kind: SinkKind, tmp_path: Path) -> None:
    status, body, proves = GOOD[kind]
    many = [an_incident(key=f"node/n{number}", title=f"n{number} " + "集" * 100) for number in range(1000)]
    async with receiving(answers(status, body)) as server:
        sink = a_sink(kind, server.url, tmp_path)
        outcome = await sink.send_digest(many)
        await sink.close()
    request = server.received[0]

    assert outcome.answer is proves
    if kind is SinkKind.ALERTMANAGER:
        assert len(request.json) == 1000
    elif kind is SinkKind.WEBHOOK:
        assert len(request.json["alerts"]) == 1000
    else:
        assert " more" in request.body.decode()
        assert len(request.body) <= SIZES.get(kind, 40_000)


CALLS = {
    SinkKind.ALERTMANAGER: ("<", "](", " @"),
    SinkKind.PAGERDUTY: ("<", "](", " @"),
    SinkKind.JSM: ("<", "](", " @"),
    SinkKind.INCIDENT_IO: ("<", "](", " @"),
    SinkKind.SLACK: ("<",),
    SinkKind.SLACK_WEBHOOK: ("<",),
    SinkKind.DINGTALK: ("@", "<", "]("),
    SinkKind.WECOM: ("@", "<", "]("),
}
"""What may not be in a text: it calls people or hides an address. Cards of Teams and Feishu hold only plain text, and a
webhook has the exact texts."""
EVERYWHERE = ("title", "gang", "team", "namespace", "cluster", "happened", "did", "todo", "command")


def with_everywhere(text: str, **other: Any) -> Incident:
    """An incident in which all that others may have written is *text*."""
    return an_incident(**dict.fromkeys(EVERYWHERE, text), nodes=(text,), labels={"cause": text}, **other)


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("text", [MENTIONS, LINKS], ids=["mentions", "links"])
async def test_a_name_that_looks_like_a_mention_or_a_link_is_none(kind: SinkKind, text: str, tmp_path: Path) -> None:
    received = await requests(kind, tmp_path, with_everywhere(text), resolved(with_everywhere(text)))

    texts = [text for request in received for text in strings(request.json)]
    assert not [text for text in texts if any(call in text for call in CALLS[kind])]


@pytest.mark.parametrize("kind", KINDS)
async def test_no_text_controls_a_terminal_or_turns_the_direction_of_writing(kind: SinkKind, tmp_path: Path) -> None:
    received = await requests(kind, tmp_path, with_everywhere(CONTROLS), resolved(with_everywhere(CONTROLS)))

    texts = [text for request in received for text in strings(request.json)]
    assert not [text for text in texts if not text.replace("\n", "").isprintable()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("letter", ["x", "@", "<", "集", "\x1b"])
async def test_names_of_5000_characters_fit_the_service(kind: SinkKind, letter: str, tmp_path: Path) -> None:
    message = (await the_request(kind, tmp_path, with_everywhere(letter * 5000))).json

    assert len(json.dumps(message, ensure_ascii=False).encode()) <= SIZES.get(kind, 1 << 20)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_runbook_is_a_link_where_its_place_is_known(kind: SinkKind, tmp_path: Path) -> None:
    request = await the_request(kind, tmp_path, an_incident(), base_url="https://wiki.example/healthd/")

    link = {
        SinkKind.SLACK: "<https://wiki.example/healthd/recovery-held>",
        SinkKind.TEAMS: '"url":"https://wiki.example/healthd/recovery-held"',
        SinkKind.PAGERDUTY: '"href":"https://wiki.example/healthd/recovery-held"',
        SinkKind.ALERTMANAGER: '"runbook_url":"https://wiki.example/healthd/recovery-held"',
    }
    assert link.get(kind, "https://wiki.example/healthd/recovery-held") in request.body.decode()


@pytest.mark.parametrize("kind", KINDS)
async def test_the_same_incident_is_the_same_message(kind: SinkKind, tmp_path: Path) -> None:
    """So a repetition is known as one."""
    one, two = await the_request(kind, tmp_path, an_incident()), await the_request(kind, tmp_path, an_incident())

    assert one.body == two.body


def strings(value: Any) -> list[str]:
    """All texts in a JSON value."""
    match value:
        case str():
            return [value]
        case dict():
            return [text for each in value.values() for text in strings(each)]
        case list():
            return [text for each in value for text in strings(each)]
        case _:
            return []
