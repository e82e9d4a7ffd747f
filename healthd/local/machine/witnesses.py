"""
The evidence of broken GPUs on this machine, for the controller: the kernel log, through the agents of all slots.

To read a record is not enough. A record counts as reported when the agents have acted on it: by then a bad slot is out
of service.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from healthd.agent.agent import Agent
from healthd.agent.listen import Listener
from healthd.core.recovery.gang import WitnessReport


class LocalWitnesses:
    """Runs the cycles of *agents*, and knows until when the records that *listener* read have been acted on."""

    def __init__(self, listener: Listener, agents: Sequence[Agent]) -> None:
        self._listener = listener
        self._agents = agents
        self._until: datetime | None = None

    async def cycle(self, now: datetime) -> timedelta:
        """Run the cycle of every agent. Returns the time until the next cycle if nothing happens."""
        witness_report = self._listener.read_until
        again = min([await agent.cycle(now) for agent in self._agents])
        if not any(agent.trouble for agent in self._agents):
            self._until = witness_report
        return again

    def ask(self, since: datetime) -> bool:
        """Request that the kernel log is read to its end, unless that was done at *since* or later."""
        if self._listener.is_blind or (self._until is not None and self._until >= since):
            return False
        return self._listener.ask()

    def witness_report(self, node: str) -> WitnessReport:  # noqa: ARG002 - one log for all slots
        """The same answer for every slot."""
        return WitnessReport(until=self._until, no_witness=self._listener.is_blind)
