"""`--notify`: commands and URLs are called, and whatever they do, the run goes on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from healthd.local.processes.marks import find_processes
from healthd.local.reports.notify import MOST_OUTPUT, Facts, Notifier, variables, why_no_target
from tests.alerts.receivers import Behaviour, answers, receiving, resets, speaks_another_protocol

FACTS: Facts = {"event": "restart", "message": "rank 1 was killed", "run": "llama", "step": 20, "hint": None}

ELSEWHERE = "the server answered 302, which leads to another address: use that"


async def reported(tmp_path: Path, *targets: str, limit: float = 30.0) -> list[str]:
    """Tell *targets*; the warnings."""
    notifier = Notifier(targets, tmp_path / "notify.log", dict(os.environ), limit=limit, patience=60)
    with capture_logs() as logs:
        async with notifier.sending():
            notifier.notify(FACTS)
    return [line["why"] for line in logs]


async def test_a_command_gets_the_facts_in_its_environment_and_on_its_input(tmp_path: Path) -> None:
    command = f"echo $HEALTHD_EVENT $HEALTHD_STEP ${{HEALTHD_HINT-unset}} > {tmp_path}/env; cat > {tmp_path}/input"

    assert await reported(tmp_path, command) == []
    assert (tmp_path / "env").read_text() == "restart 20 unset\n"
    assert json.loads((tmp_path / "input").read_text()) == FACTS


async def test_one_that_fails_is_a_warning_and_the_others_are_reported(tmp_path: Path) -> None:
    [why] = await reported(tmp_path, "echo no such host >&2; exit 3", f"touch {tmp_path}/told")

    assert why.startswith("it ended with exit code 3")
    assert (tmp_path / "notify.log").read_text() == "no such host\n"
    assert (tmp_path / "told").exists()


async def test_one_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "alive")
    witness = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)

    [why] = await reported(tmp_path, f"exec 3> {tmp_path}/alive; sleep 600 & sleep 600", limit=0.2)

    assert why == "it took longer than 0.2 s, and was ended"
    os.set_blocking(witness, True)
    assert os.read(witness, 1) == b""  # once no process holds it any more
    os.close(witness)


@pytest.mark.slow
async def test_so_is_what_it_started_in_a_session_of_its_own(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "alive")
    witness = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)

    await reported(tmp_path, f"exec 3> {tmp_path}/alive; setsid sleep 600 & sleep 600", limit=0.5)

    assert os.read(witness, 1) == b"", "no process holds it any more"
    os.close(witness)


async def test_what_one_that_ended_in_time_left_in_a_session_of_its_own_stays(tmp_path: Path) -> None:
    """It may be meant: a server that was not up."""
    script = f"setsid sh -c 'echo $$ > {tmp_path}/pid; touch {tmp_path}/up; exec sleep 600' & "
    await reported(tmp_path, script + f"until test -e {tmp_path}/up; do sleep 0.01; done")
    pid = int((tmp_path / "pid").read_text())

    assert Path(f"/proc/{pid}/cmdline").read_bytes(), "it has ended, and is a zombie"
    os.kill(pid, signal.SIGKILL)


async def test_one_that_prints_without_end_is_ended_and_its_log_is_bounded(tmp_path: Path) -> None:
    [why] = await reported(tmp_path, "yes")

    assert why.startswith("it printed more than 1 MiB, and was ended")
    assert (tmp_path / "notify.log").stat().st_size == MOST_OUTPUT


async def test_what_was_not_reported_when_the_run_ended_is_said(tmp_path: Path) -> None:
    notifier = Notifier(["sleep 600"], tmp_path / "notify.log", dict(os.environ), patience=0.1)
    with capture_logs() as logs:
        async with notifier.sending():
            notifier.notify(FACTS)
            notifier.notify(FACTS)

    assert [line["why"] for line in logs] == [
        "it did not end within 0.1 s after the end of the run; 1 more that happened was not sent"
    ]
    assert [line["note"] for line in logs] == [""]  # the run does not go on


async def test_what_may_be_a_password_is_not_shown(tmp_path: Path) -> None:
    notifier = Notifier(["http://ann:secret@127.0.0.1:1/token?key=abc"], tmp_path / "notify.log", {}, patience=60)
    with capture_logs() as logs:
        async with notifier.sending():
            notifier.notify(FACTS)

    assert [line["target"] for line in logs] == ["http://127.0.0.1:1/…"]
    assert not {"secret", "token", "abc"} & set(str(logs).replace("/", " ").replace(":", " ").split())


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        (answers(302, Location="/token?key=abc", Connection="close"), ELSEWHERE),
        (speaks_another_protocol, "the answer is not HTTP"),
        (resets, "the connection broke"),
    ],
)
async def test_nor_is_it_in_the_reason_of_a_failure(tmp_path: Path, behaviour: Behaviour, why: str) -> None:
    async with receiving(behaviour) as server:
        host = server.url.removeprefix("http://")

        assert await reported(tmp_path, f"http://ann:secret@{host}/token?key=abc") == [why]


async def test_a_query_right_after_the_host_is_not_shown_either(tmp_path: Path) -> None:
    notifier = Notifier(["http://127.0.0.1:1?key=abc"], tmp_path / "notify.log", {}, patience=60)
    with capture_logs() as logs:
        async with notifier.sending():
            notifier.notify(FACTS)

    assert [line["target"] for line in logs] == ["http://127.0.0.1:1/…"]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("", "it names no command and no URL"),
        ("ftp://example.com/x", "a URL begins with http:// or https://"),
        ("http:///x", "the URL names no host"),
        ("https://ann:secret@/x", "the URL names no host"),
        ("http://example.com:99999/x", "this is no valid URL: look at its host and its port (0 to 65535)"),
        ("http://[::1/x", "this is no valid URL: look at its host and its port (0 to 65535)"),
        ("http://[::1]:8080/x", ""),
        ("https://example.com/hook", ""),
        ("curl -d @- http://example.com", ""),
    ],
)
def test_a_target_that_can_never_be_reached_is_refused(target: str, why: str) -> None:
    assert why_no_target(target) == why


async def test_sending_delays_nothing(tmp_path: Path) -> None:
    notifier = Notifier(["sleep 600"], tmp_path / "notify.log", dict(os.environ), patience=0.0)
    with capture_logs() as logs:
        async with asyncio.timeout(10), notifier.sending():
            for _ in range(1000):
                notifier.notify(FACTS)

    [line] = logs
    assert line["why"].startswith("it did not end within 0 s after the end of the run")


@pytest.mark.parametrize("turns", range(8))
async def test_one_that_is_just_being_started_when_the_run_ends_is_ended_with_all_that_it_starts(
    tmp_path: Path, turns: int
) -> None:
    environ = {**os.environ, "OF_THIS_TEST": str(tmp_path)}
    notifier = Notifier(["sleep 600; true"], tmp_path / "notify.log", environ, patience=0.0)
    async with notifier.sending():
        notifier.notify(FACTS)
        for _ in range(turns):
            await asyncio.sleep(0)

    assert find_processes(str(tmp_path), "OF_THIS_TEST") == []


@pytest.mark.parametrize(
    ("status", "warnings"),
    [
        (200, []),
        (302, [ELSEWHERE]),
        (500, ["the server answered 500 Said"]),
    ],
)
async def test_a_url_gets_the_same_facts(tmp_path: Path, status: int, warnings: list[str]) -> None:
    posted: asyncio.Queue[object] = asyncio.Queue()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].split()[0])
        posted.put_nowait((head.split()[:2], json.loads(await reader.readexactly(length))))
        writer.write(
            f"HTTP/1.1 {status} Said\r\nLocation: /sign-in\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:  # noqa: TID251 - another's
        port = server.sockets[0].getsockname()[1]

        assert await reported(tmp_path, f"http://127.0.0.1:{port}/hook") == warnings
    assert posted.get_nowait() == (["post", "/hook"], FACTS)


async def test_a_url_where_no_one_answers_is_a_warning(tmp_path: Path) -> None:
    assert len(await reported(tmp_path, "http://127.0.0.1:9/hook")) == 1


def test_what_is_not_known_is_not_set() -> None:
    assert variables(FACTS).keys() == {"HEALTHD_EVENT", "HEALTHD_MESSAGE", "HEALTHD_RUN", "HEALTHD_STEP"}
