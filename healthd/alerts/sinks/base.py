"""What all sinks over HTTP have in common: a request is made, sent, and its answer becomes an outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec
from msgspec.structs import replace

from healthd.alerts.answers import bad_status, no_answer
from healthd.alerts.credentials import CredentialFiles, Credentials
from healthd.alerts.http import Http, NoAnswer, Response
from healthd.alerts.secrets import SecretError
from healthd.alerts.sink import Answer, Outcome
from healthd.clock import Clock
from healthd.core.api.incidents import Incident
from healthd.core.config.alerts import SinkPolicy

GOOD = (Answer.ACCEPTED, Answer.DELIVERED, Answer.UNKNOWN)
"""The service took the message."""


class Request(NamedTuple):
    """One POST."""

    url: str
    payload: Any
    """Anything that JSON can say, or bytes that are sent as they are."""
    headers: Mapping[str, str] = {}

    @property
    def body(self) -> bytes:
        """The payload as it is sent."""
        return self.payload if isinstance(self.payload, bytes) else msgspec.json.encode(self.payload)


class HttpSink:
    """A service over HTTP. A subclass says how a request looks and what an answer proves."""

    rate: float
    resend_every: float | None = None
    public_url: ClassVar[str] = ""
    """The address of the service for everybody, where it has one."""
    is_repeatable: ClassVar[bool] = False
    """The service knows a message that it already has. A repetition changes nothing."""

    def __init__(self, config: SinkPolicy, http: Http, clock: Clock, base_url: str = "") -> None:
        self.name = config.name
        self._config = config
        self._http = http
        self._clock = clock
        self._base_url = base_url
        self.credentials = CredentialFiles(config, self.public_url)

    async def send(self, incident: Incident, thread: str = "") -> Outcome:
        """Send the current revision of *incident*. Raises nothing."""
        try:
            return await self._send(with_link(incident, self._base_url), thread, self.credentials.read())
        except SecretError as error:
            return Outcome(Answer.RETRY, str(error), thread=thread)

    async def send_digest(self, incidents: Sequence[Incident]) -> Outcome:
        """Send *incidents* as one message. Raises nothing."""
        try:
            credentials = self.credentials.read()
        except SecretError as error:
            return Outcome(Answer.RETRY, str(error))
        return await self._exchange(self._digest(incidents, credentials), credentials)

    def warnings(self) -> list[str]:
        """What is wrong with the secret files, although they can be used."""
        return self.credentials.warnings()

    async def close(self) -> None:
        """Close the client."""
        await self._http.close()

    async def _send(self, incident: Incident, thread: str, credentials: Credentials) -> Outcome:
        outcome = await self._exchange(self._request(incident, credentials), credentials)
        return outcome._replace(thread=outcome.thread or thread)

    async def _exchange(self, request: Request, credentials: Credentials) -> Outcome:
        """Send *request*. No secret is in the detail. Raises nothing."""
        try:
            response = await self._http.post(request.url, request.body, request.headers)
        except NoAnswer as error:
            outcome = no_answer(error, is_repeatable=self.is_repeatable)
        else:
            text = response.body.decode(errors="replace")
            shown = response._replace(body=credentials.hide(text).encode())
            outcome = bad_status(shown) or self._read(shown)
        return outcome._replace(detail=credentials.hide(outcome.detail))

    def _request(self, incident: Incident, credentials: Credentials) -> Request:
        """The message about one incident."""
        raise NotImplementedError

    def _digest(self, incidents: Sequence[Incident], credentials: Credentials) -> Request:
        """The message about many incidents."""
        raise NotImplementedError

    def _read(self, response: Response) -> Outcome:
        """What an answer with a status of 2xx proves."""
        raise NotImplementedError


def with_link(incident: Incident, base_url: str) -> Incident:
    """*incident* with the address of its runbook in place of the name."""
    if not base_url or not incident.runbook:
        return incident
    return replace(incident, runbook=f"{base_url.rstrip('/')}/{incident.runbook}")
