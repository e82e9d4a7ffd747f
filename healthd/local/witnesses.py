"""
What tells of broken GPUs on this machine, as the controller asks it: the kernel log, by way of the agents of all slots.

A record that was read is half of it. That it was told means that the agents have done what follows, too: a slot that
is bad is out of service by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from healthd.agent.agent import Agent
from healthd.agent.listen import Listener
from healthd.core.recovery.gang import WitnessReport


class LocalWitnesses:
    """Turns the wheels of *agents*, and knows until when what *listener* heard has been acted on."""

    def __init__(self, listener: Listener, agents: Sequence[Agent]) -> None:
        self._listener = listener
        self._agents = agents
        self._until: datetime | None = None

    async def cycle(self, now: datetime) -> timedelta:
        """Let every agent do what follows from its findings. Returns when to do it again if nothing happens."""
        heard = self._listener.heard_until
        again = min([await agent.cycle(now) for agent in self._agents])
        if not any(agent.trouble for agent in self._agents):
            self._until = heard
        return again

    def ask(self, since: datetime) -> bool:
        """Have the kernel log read to its end, unless that was done at *since* or later."""
        if self._listener.is_blind or (self._until is not None and self._until >= since):
            return False
        return self._listener.ask()

    def heard(self, node: str) -> WitnessReport:  # noqa: ARG002 - one log for all slots
        """The same for every slot."""
        return WitnessReport(until=self._until, no_witness=self._listener.is_blind)
