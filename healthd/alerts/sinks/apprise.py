"""
The long tail of services by apprise (`pip install healthd[apprise]`): for notices, not for pages.

apprise says only yes or no for all its addresses together. A yes proves that the services took the message: ACCEPTED.
After a no, some of them may have it: the message is sent again, and may stand there twice. apprise makes its own
connections: the limits of healthd's HTTP client, such as forbidden addresses, do not hold for it.

Limits: apprise cuts each text for each service. Texts are plain, without `@` and `<`, which call people in some
services. `url_file` holds one apprise URL a line (https://github.com/caronc/apprise/wiki).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from healthd.alerts.secrets import SecretError, SecretFile
from healthd.alerts.sink import Answer, Outcome, SinkError
from healthd.alerts.text import body, digest, digest_headline, headline, unlinked
from healthd.core.api.incidents import Incident, Severity
from healthd.core.config.alerts import SinkPolicy
from healthd.threads import in_thread

MISSING = "the Python package apprise is not installed here: `pip install healthd[apprise]` brings it"
TEXT = 8000
PATIENCE = 12.0
"""Seconds for all addresses together."""

Notify = Callable[[Sequence[str], str, str, str], str]
"""Sends title and text of a kind (`info`, `warning`, `success`) to addresses. Blocks. Why it failed, or nothing."""


class Apprise:
    """All addresses of one file."""

    rate = 10.0
    resend_every: float | None = None

    def __init__(self, config: SinkPolicy, notify: Notify, patience: float = PATIENCE) -> None:
        self.name = config.name
        self._secret_file = SecretFile(config.url_file)
        self._notify = notify
        self._patience = patience

    async def send(self, incident: Incident, thread: str = "") -> Outcome:
        """Send a notice. What began as one is sent also when it has become a page."""
        del thread  # there are no updates
        return await self._send(headline(incident), body(incident, TEXT), _kind(incident))

    async def send_digest(self, incidents: Sequence[Incident]) -> Outcome:
        """Send many notices as one."""
        return await self._send(digest_headline(incidents), digest(incidents, TEXT), "info")

    async def close(self) -> None:
        """There is nothing to close."""

    async def _send(self, title: str, text: str, kind: str) -> Outcome:
        try:
            secret = self._secret_file.read()
        except SecretError as error:
            return Outcome(Answer.RETRY, str(error))
        urls = [line.reveal() for line in secret.lines]
        work = partial(self._notify, urls, without_mentions(title), without_mentions(text), kind)
        try:
            async with asyncio.timeout(self._patience):
                why = await in_thread(work, "apprise")
        except TimeoutError:
            return Outcome(Answer.UNKNOWN, f"apprise did not end within {self._patience:g} s: this proves nothing")
        except Exception as error:  # whatever a plugin raises
            return Outcome(Answer.RETRY, f"apprise failed: {type(error).__name__}")
        return Outcome(Answer.RETRY, why) if why else Outcome(Answer.ACCEPTED, "apprise sent it")

    def warnings(self) -> list[str]:
        """What is wrong with the secret file, although it can be used."""
        return [warning] if (warning := self._secret_file.warning()) else []


def _kind(incident: Incident) -> str:
    if incident.resolved is not None:
        return "success"
    return "warning" if incident.severity is Severity.PAGE else "info"


def without_mentions(text: str) -> str:
    """*text* without links behind words, in which no `@` and no `<!…>` is a mention."""
    return unlinked(text).replace("@", "＠")


def load() -> Notify:
    """What sends with the package. Raises SinkError when it is not there."""
    try:
        package = import_module("apprise")
    except ModuleNotFoundError:
        raise SinkError(MISSING) from None
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # it logs addresses
    return partial(_notify, package)


def _notify(package: Any, urls: Sequence[str], title: str, text: str, kind: str) -> str:
    targets = package.Apprise()
    wrong = [number for number, url in enumerate(urls, 1) if not targets.add(url)]
    if wrong:
        return f"apprise does not know the address in line {', '.join(map(str, wrong))} of the secret file"
    sent = targets.notify(body=text, title=title, notify_type=kind, body_format="text")
    return "" if sent else "apprise says that not every service took it"
