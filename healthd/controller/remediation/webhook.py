"""Calls the signed webhook of a hand, for what has no API in the cluster. The signature is that of alert webhooks."""

from __future__ import annotations

from typing import Any

import msgspec

from healthd.alerts.answers import bad_status
from healthd.alerts.credentials import one_line
from healthd.alerts.http import Http, NoAnswer
from healthd.alerts.secrets import SecretError, SecretFile
from healthd.alerts.sinks.webhook import signature
from healthd.clock import Clock
from healthd.controller.remediation.requests import CannotAsk
from healthd.core.remediation.hands.description import HandDescription


class Webhooks:
    """A `Post`. The key is read anew for each call. A call may come twice: its `attempt` says that it is the same."""

    def __init__(self, clock: Clock, http: Http) -> None:
        self._clock = clock
        self._http = http

    async def __call__(self, hand: HandDescription, body: dict[str, Any]) -> None:
        """Return when the server has taken *body*. Raises CannotAsk."""
        content = msgspec.json.encode(body)
        timestamp = str(int(self._clock.now().timestamp()))
        try:
            key = one_line(SecretFile(hand.secret)).reveal()
            signed = {
                "X-Healthd-Timestamp": timestamp,
                "X-Healthd-Signature": f"v1={signature(key, timestamp, content)}",
            }
            response = await self._http.post(hand.object, content, signed)
        except (SecretError, NoAnswer) as error:
            raise CannotAsk(f"{hand.name} cannot be called: {error}") from None
        if refusal := bad_status(response):
            raise CannotAsk(f"{hand.name} refused the call: {refusal.detail}")

    async def close(self) -> None:
        """Close the client."""
        await self._http.close()
