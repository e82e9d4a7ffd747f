"""`healthd alerts test`: what it sends, what it says, and its exit code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from healthd.cli.main import main
from tests.alerts.incidents import TOKEN, a_secret
from tests.alerts.receivers import Behaviour, Receiver, answers, receiving

TWO = """\
alerts:
  sinks:
    - {{name: oncall, kind: pagerduty, urls: [{oncall}], token_file: {token}, insecure: true}}
    - {{name: chat, kind: webhook, urls: [{chat}], severities: [notice], insecure: true}}
"""


@contextmanager
def servers(*behaviours: Behaviour) -> Iterator[list[Receiver]]:
    """A server for each behaviour, in a thread: the command has an event loop of its own."""
    found: list[Receiver] = []
    loop, stack = asyncio.new_event_loop(), AsyncExitStack()

    async def start() -> None:
        found.extend([await stack.enter_async_context(receiving(behaviour)) for behaviour in behaviours])

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(start(), loop).result(10)
        yield found
    finally:
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def configured(folder: Path, oncall: str, chat: str) -> str:
    """The path of a configuration with two services."""
    path = folder / "healthd.yaml"
    path.write_text(TWO.format(oncall=oncall, chat=chat, token=a_secret(folder, "token", TOKEN)))
    return str(path)


def test_every_service_gets_an_incident_that_is_opened_and_resolved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with servers(answers(202), answers(200)) as (oncall, chat):
        code = main(["alerts", "test", "--config", configured(tmp_path, oncall.url, chat.url)])

    assert code == 0
    assert [request.json["event_action"] for request in oncall.received] == ["trigger", "resolve"]
    assert oncall.received[0].json["payload"]["severity"] == "critical", "it gets pages, so the test is one"
    assert [request.json["status"] for request in chat.received] == ["firing", "resolved"]
    assert chat.received[0].json["commonLabels"]["severity"] == "notice"
    assert capsys.readouterr().out == (
        "oncall (pagerduty)\n"
        "  opened    accepted   PagerDuty has the event; the service decides who is called\n"
        "  resolved  accepted   PagerDuty has the event; the service decides who is called\n"
        "chat (webhook)\n"
        "  opened    accepted   the server has it (it answered 200)\n"
        "  resolved  accepted   the server has it (it answered 200)\n"
    )


def test_one_that_does_not_take_it_is_the_exit_code_and_the_others_are_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with servers(answers(401, f"no {TOKEN}".encode()), answers(200)) as (oncall, chat):
        code = main(["alerts", "test", "--config", configured(tmp_path, oncall.url, chat.url)])

    printed = capsys.readouterr().out
    assert code == 1
    assert "opened    retry      answered 401 (the secret is wrong or has expired): no [secret]" in printed
    assert len(oncall.received) == 1, "what was not opened is not resolved"
    assert len(chat.received) == 2


def test_one_service_can_be_chosen(tmp_path: Path) -> None:
    with servers(answers(202), answers(200)) as (oncall, chat):
        code = main(["alerts", "test", "--sink", "chat", "--config", configured(tmp_path, oncall.url, chat.url)])

    assert (code, oncall.received, len(chat.received)) == (0, [], 2)


def test_a_secret_that_all_may_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with servers(answers(202), answers(200)) as (oncall, chat):
        config = configured(tmp_path, oncall.url, chat.url)
        (tmp_path / "token").chmod(0o644)
        main(["alerts", "test", "--config", config])

    printed = capsys.readouterr()
    assert "warning: every user of this machine can read the secret file" in printed.err
    assert "secret file" not in printed.err.partition("can read the secret file")[2]
    assert [line.split()[0] for line in printed.out.splitlines()] == [
        *("oncall", "opened", "resolved"),
        *("chat", "opened", "resolved"),
    ]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "there is no alert service to test"),
        (["--sink", "nobody"], "there is no alert service 'nobody'; there are oncall, chat"),
    ],
)
def test_a_service_that_is_not_there_is_an_error_in_words(
    arguments: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ["--config", configured(tmp_path, "http://x", "http://x")] if arguments else []

    assert main(["alerts", "test", *config, *arguments]) == 2
    assert why in capsys.readouterr().err


def test_a_missing_extra_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "apprise", None)
    path = tmp_path / "healthd.yaml"
    path.write_text("alerts: {sinks: [{name: a, kind: apprise, url_file: /x, severities: [notice]}]}")

    assert main(["alerts", "test", "--config", str(path)]) == 2
    assert "`pip install healthd[apprise]` brings it" in capsys.readouterr().err
