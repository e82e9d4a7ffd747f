"""An alert service for tests: it remembers what it got, and answers as it is asked to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from healthd.alerts.sink import Answer, Outcome
from healthd.core.api.incidents import Incident

TOOK = Outcome(Answer.ACCEPTED, "202")
NOT_NOW = Outcome(Answer.RETRY, "503")


class FakeSink:
    """Accepts everything, unless *answer* says otherwise. While *gate* is closed it does not answer at all."""

    def __init__(self, name: str = "oncall", *, rate: float = 600, resend_every: float | None = None) -> None:
        self.name = name
        self.rate = rate
        self.resend_every = resend_every
        self.sent: list[Incident] = []
        self.digests: list[list[Incident]] = []
        self.threads: list[str] = []
        self.answer: Callable[[Incident], Outcome] = lambda _: TOOK
        self.gate = asyncio.Event()
        self.gate.set()
        self.closed = False

    async def send(self, incident: Incident, thread: str) -> Outcome:
        """Take one incident, then answer."""
        self.sent.append(incident)
        self.threads.append(thread)
        await self.gate.wait()
        return self.answer(incident)

    async def send_digest(self, incidents: Sequence[Incident]) -> Outcome:
        """Take several."""
        self.digests.append(list(incidents))
        await self.gate.wait()
        return self.answer(incidents[0])

    async def close(self) -> None:
        """Remember that."""
        self.closed = True

    @property
    def keys(self) -> list[str]:
        """The keys of what was sent alone, in order."""
        return [each.key for each in self.sent]
