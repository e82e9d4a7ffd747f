"""The kernel log of this machine as a witness: what it showed, and what was done about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any, Self

from healthd.agent.listen import Listener
from healthd.core.diagnosis.readings import RecordBatch
from healthd.core.recovery.gang import WitnessReport
from healthd.local.machine.witnesses import LocalWitnesses
from healthd.telemetry.metrics import Metrics
from tests.fakes import START, ManualClock, settle


class Log:
    """A kernel log that answers when the test says so."""

    source = "kmsg"
    boot_id = "boot-1"

    def __init__(self) -> None:
        self.asked = 0
        self.answers: asyncio.Queue[int] = asyncio.Queue()

    def ask(self) -> int:
        self.asked += 1
        return self.asked

    async def batches(self) -> AsyncGenerator[RecordBatch, None]:
        while True:
            yield RecordBatch(last_sequence=-1, answered=await self.answers.get())


class Hand:
    """An agent that does what follows from its findings, or cannot."""

    trouble = ""

    async def cycle(self, now: object) -> timedelta:
        return timedelta(seconds=30)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class FollowedLog:
    """One agent, and a log that is followed."""

    def __init__(self) -> None:
        self.clock, self.log, self.agent = ManualClock(), Log(), Hand()
        agents: Any = [self.agent]
        self.listener = Listener(agents, self.clock, Metrics(), lambda: None)
        self.witnesses = LocalWitnesses(self.listener, agents)

    async def __aenter__(self) -> Self:
        self._following = asyncio.create_task(self.listener.ingest_log(self.log))
        await settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)

    async def answer(self) -> None:
        """The log says that it was read to its end when it was asked last."""
        self.log.answers.put_nowait(self.log.asked)
        await settle()


async def test_it_is_reported_once_the_log_was_read_and_the_agents_have_done_what_follows() -> None:
    async with FollowedLog() as followed:
        assert followed.witnesses.ask(START)
        followed.clock.advance(timedelta(seconds=1))
        await followed.answer()
        assert followed.witnesses.witness_report("slot-0") == WitnessReport()

        await followed.witnesses.cycle(followed.clock.now())

        assert followed.witnesses.witness_report("slot-0") == WitnessReport(until=START)
        assert not followed.witnesses.ask(START)
        assert followed.witnesses.ask(START + timedelta(milliseconds=1))


async def test_it_is_not_reported_while_an_agent_cannot_do_what_follows() -> None:
    async with FollowedLog() as followed:
        followed.witnesses.ask(START)
        await followed.answer()
        followed.agent.trouble = "the store is busy"
        await followed.witnesses.cycle(START)

        assert followed.witnesses.witness_report("slot-0") == WitnessReport()


async def test_one_question_is_asked_at_a_time() -> None:
    async with FollowedLog() as followed:
        assert [followed.witnesses.ask(START), followed.witnesses.ask(START)] == [True, True]
        assert followed.log.asked == 1


async def test_before_the_log_is_open_nothing_is_known_and_where_it_cannot_be_opened_there_is_no_witness() -> None:
    followed = FollowedLog()
    before = (followed.witnesses.ask(START), followed.witnesses.witness_report("slot-0"))
    followed.listener.blind("permission denied")

    assert before == (False, WitnessReport())
    assert (followed.witnesses.ask(START), followed.witnesses.witness_report("slot-0")) == (
        False,
        WitnessReport(no_witness=True),
    )
