"""
A heartbeat service, such as healthchecks.io, Dead Man's Snitch or Jira Service Management, called at a secret address.

An answer of 2xx is a beat that counts. Everything else, a redirect too, is one that did not arrive.
"""

from __future__ import annotations

from healthd.alerts.answers import bad_status, no_answer
from healthd.alerts.credentials import NOTHING, Credentials, address, one_line
from healthd.alerts.http import Http, NoAnswer, proxy_of_environment
from healthd.alerts.secrets import SecretError, SecretFile
from healthd.alerts.sink import Answer, Outcome
from healthd.clock import Clock
from healthd.core.config.heartbeat import HeartbeatPolicy


class HeartbeatService:
    """The service that *policy* names. Its files are read anew for each call."""

    def __init__(self, policy: HeartbeatPolicy, http: Http) -> None:
        self._method = policy.method.value
        self._url = SecretFile(policy.url_file)
        self._authorization = SecretFile(policy.authorization_file) if policy.authorization_file else None
        self._http = http

    async def beat(self) -> Outcome:
        """Call it once. ACCEPTED when it heard; no secret is in the detail. Raises nothing."""
        try:
            secrets = Credentials(address(self._url), one_line(self._authorization) if self._authorization else NOTHING)
        except SecretError as error:
            return Outcome(Answer.RETRY, str(error))
        outcome = await self._call(secrets)
        return outcome._replace(detail=secrets.hide(outcome.detail))

    async def _call(self, secrets: Credentials) -> Outcome:
        token = secrets.token.reveal()
        try:
            response = await self._http.send(
                self._method, secrets.url.reveal(), headers={"Authorization": token} if token else {}
            )
        except NoAnswer as error:
            return no_answer(error, is_repeatable=True)
        return bad_status(response) or Outcome(Answer.ACCEPTED, f"answered {response.status}")

    async def close(self) -> None:
        """Close the client."""
        await self._http.close()


def make_heartbeat(policy: HeartbeatPolicy, clock: Clock) -> HeartbeatService | None:
    """The service of *policy*. None where none is configured."""
    if not policy.url_file:
        return None
    http = Http(clock, ca_file=policy.ca_file, insecure_http=policy.insecure, proxy_for=proxy_of_environment)
    return HeartbeatService(policy, http)
