"""
The interface to an alert service: send an incident, say what the answer proves.

A sink sends one message for each call. Order, repeats, rate and memory are decided by its caller
(`healthd.core.alerts.delivery`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from healthd.core.api.incidents import Incident


class Answer(StrEnum):
    """What the answer of a service proves."""

    ACCEPTED = "accepted"
    """The service has it and promises to deliver it."""
    DELIVERED = "delivered"
    """The people can see it."""
    UNKNOWN = "unknown"
    """The service took the message, and its answer proves nothing more. It is not sent again."""
    REFUSED = "refused"
    """The service will never take this message: it is not tried again."""
    RETRY = "retry"
    """Not now, or no answer at all: it is tried again."""


class Outcome(NamedTuple):
    """The answer to one message. *detail* is for people, and holds no secret."""

    answer: Answer
    detail: str
    retry_after: float | None = None
    """Seconds that the service asked for."""
    thread: str = ""
    """A service's own id of the message, given back at the next update."""


class SinkError(Exception):
    """A sink cannot be made. The message says what to do."""


class Sink(Protocol):
    """One alert service. Its methods may raise: that counts as RETRY."""

    name: str
    """As in `alerts.sinks`."""
    rate: float
    """Messages a minute that the service takes."""
    resend_every: float | None
    """Seconds, for services that forget an open incident (Alertmanager); None: once is enough."""

    async def send(self, incident: Incident, thread: str) -> Outcome:
        """Send *incident* as it is now: opened, updated or resolved. *thread* is of the first message, or empty."""
        ...

    async def send_digest(self, incidents: Sequence[Incident]) -> Outcome:
        """Send several incidents in one message, for which there is no rate left."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
