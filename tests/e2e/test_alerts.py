"""Alerts of `healthd run`: a restart and a run that is given up reach a service, whatever dies in between."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from healthd.core.api.model import Phase
from tests.alerts.receivers import Receiver, answers, hangs, receiving
from tests.e2e.driver import PATIENCE, RunFolder

SPARE = ("--spares", "1")
ALERTS = """\
alerts:
  cluster: box
  notice_after: 0s
  update_after: 0s
  sinks:
    - {{name: hook, kind: webhook, urls: ["{url}"], insecure: true}}
"""
FAILS = ["sh", "-c", "exit 7"]

pytestmark = pytest.mark.slow


def alerting(run_folder: RunFolder, receiver: Receiver) -> None:
    """The next life alerts *receiver*."""
    run_folder.configure(more=ALERTS.format(url=receiver.url))


async def got(receiver: Receiver, state: str = "", title: str = "") -> dict[str, Any]:
    """The first message of this *state* with these words in its *title*, once it has come."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for each in alerts(receiver):
                if state in ("", each["status"]) and title in each["annotations"]["summary"]:
                    return each
            await asyncio.sleep(0.05)


def alerts(receiver: Receiver) -> Sequence[dict[str, Any]]:
    return [each for one in receiver.received for each in one.json["alerts"]]


def in_order(receiver: Receiver) -> bool:
    """No service gets an older state after a newer one."""
    revisions: dict[str, list[int]] = {}
    for each in alerts(receiver):
        revisions.setdefault(each["labels"]["incident"], []).append(int(each["annotations"]["revision"]))
    return all(found == sorted(found) for found in revisions.values())


async def test_a_restart_is_one_incident_in_the_words_of_one_server(run_folder: RunFolder) -> None:
    async with receiving(answers(200)) as receiver:
        alerting(run_folder, receiver)
        async with run_folder.life(*SPARE) as life:
            await run_folder.all_wait(life, 0)
            run_folder.break_gpu(0)
            await life.says("recovery.phase", phase=Phase.RECOVERED)
            over = await got(receiver, "resolved")
            run_folder.open_gate()
            assert await life.ended() == 0, life.log

    assert over["annotations"]["summary"].startswith("run gang makes progress again")
    assert over["annotations"]["command"] == f"healthd explain gang --state {run_folder.state}"
    assert over["labels"]["incident"].startswith("box/gang/recovery/default/gang-")
    assert {each["labels"]["incident"] for each in alerts(receiver)} == {over["labels"]["incident"]}
    assert in_order(receiver)
    said = json.dumps(alerts(receiver))
    assert "kubectl" not in said
    assert " pod" not in said


async def test_a_run_that_is_given_up_is_a_page_before_healthd_ends(run_folder: RunFolder) -> None:
    async with receiving(answers(200)) as receiver:
        alerting(run_folder, receiver)
        async with run_folder.life(command=FAILS) as life:
            assert await life.ended() == 7, life.log
        page = alerts(receiver)[-1]
        listed = await run_folder.asks("alerts", "list", "--state", str(run_folder.state), "-o", "json")

    assert (page["status"], page["labels"]["severity"]) == ("firing", "page")
    assert page["annotations"]["summary"].startswith("run gang was given up")
    assert "same command" in page["annotations"]["todo"]
    (record,) = (json.loads(line) for line in listed.splitlines())
    assert record["status"]["deliveries"]["hook"]["answer"] == "accepted"


async def test_what_no_service_took_before_the_end_is_sent_by_the_next_start(run_folder: RunFolder) -> None:
    async with receiving(answers(503)) as receiver:
        alerting(run_folder, receiver)
        async with run_folder.life(command=FAILS) as life:
            unsent = await life.says("alerts.unsent", level="warning")
            assert await life.ended() == 7, life.log
        lost = alerts(receiver)[-1]
    async with receiving(answers(200)) as receiver:
        alerting(run_folder, receiver)
        async with run_folder.life(command=FAILS) as life:
            await life.ended()
        sent = [each for each in alerts(receiver) if each["labels"]["incident"] == lost["labels"]["incident"]]

    assert unsent["messages"] == 1
    assert int(sent[0]["annotations"]["revision"]) >= int(lost["annotations"]["revision"])


async def test_a_service_that_hangs_holds_up_no_restart(run_folder: RunFolder) -> None:
    async with receiving(hangs) as receiver:
        alerting(run_folder, receiver)
        async with run_folder.life(*SPARE) as life:
            await run_folder.all_wait(life, 0)
            run_folder.break_gpu(0)
            await life.says("recovery.phase", phase=Phase.RECOVERED)
            run_folder.open_gate()
            await life.says("run.completed")
            assert await life.ended() == 0, life.log

    assert run_folder.attempts() == [0, 1]
    run_folder.check_writers()


@pytest.mark.parametrize(
    "plan", ["before:Incident:create", "after:Incident:create", "before:Incident:other", "after:Incident:other"]
)
async def test_kill_9_at_a_write_of_an_incident_loses_none_and_opens_none_twice(
    run_folder: RunFolder, plan: str
) -> None:
    async with receiving(answers(200)) as receiver:
        alerting(run_folder, receiver)
        program = ("tests.e2e.killed_at_write", plan)
        async with run_folder.life(*SPARE, program=program) as life:
            await run_folder.all_wait(life, 0)
            run_folder.break_gpu(0)
            assert await life.ended() == -signal.SIGKILL, life.log
        async with run_folder.life(*SPARE) as life:
            await got(receiver, "resolved")
            run_folder.open_gate()
            assert await life.ended() == 0, life.log
    recoveries = [f"box/gang/recovery/default/{one.metadata.name}" for one in await run_folder.recoveries()]

    ended = {each["labels"]["incident"] for each in alerts(receiver) if each["status"] == "resolved"}
    assert ended == set(recoveries)
    assert in_order(receiver)
    run_folder.check_writers()
