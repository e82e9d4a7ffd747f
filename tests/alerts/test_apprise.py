"""The long tail: what apprise is given, and what its yes and no prove."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from healthd.alerts.sink import Answer, Outcome
from healthd.alerts.sinks.apprise import Apprise, Notify, _notify
from healthd.core.api.incidents import Severity
from healthd.core.config.alerts import SinkKind
from tests.alerts.incidents import KEY, a_policy, a_secret, an_incident

NOTICE = an_incident(severity=Severity.NOTICE, title="n7 for @everyone <!here>")


class FakePackage:
    """The few names of the package that are used."""

    def __init__(self, *, knows: bool = True, sends: bool = True) -> None:
        self.sent: list[dict[str, str]] = []
        self.urls: list[str] = []
        self._knows = knows
        self._sends = sends

    def Apprise(self) -> FakePackage:  # noqa: N802 - the name in the package
        """A new list of addresses."""
        return self

    def add(self, url: str) -> bool:
        """Whether a plugin knows it."""
        self.urls.append(url)
        return self._knows

    def notify(self, **message: str) -> bool:
        """Whether every service took it."""
        self.sent.append(message)
        return self._sends


def a_sink(folder: Path, notify: Notify, patience: float = 20.0) -> Apprise:
    """A sink with two addresses."""
    policy = a_policy(SinkKind.APPRISE, "http://x", folder)
    a_secret(folder, "url", f"discord://{KEY}\nmailto://{KEY}@example")
    return Apprise(policy, notify, patience)


async def test_apprise_gets_all_addresses_and_a_text_without_mentions(tmp_path: Path) -> None:
    package = FakePackage()

    def notify(urls: Sequence[str], title: str, text: str, kind: str) -> str:
        return _notify(package, urls, title, text, kind)

    outcome = await a_sink(tmp_path, notify).send(NOTICE, "")

    assert outcome == Outcome(Answer.ACCEPTED, "apprise sent it")
    assert package.urls == [f"discord://{KEY}", f"mailto://{KEY}@example"]
    assert package.sent[0]["title"] == "[NOTICE] n7 for ＠everyone ‹!here>"
    assert (package.sent[0]["notify_type"], package.sent[0]["body_format"]) == ("info", "text")


@pytest.mark.parametrize(
    ("package", "why"),
    [
        (FakePackage(knows=False), "apprise does not know the address in line 1, 2 of the secret file"),
        (FakePackage(sends=False), "apprise says that not every service took it"),
    ],
)
async def test_a_no_is_tried_again(package: FakePackage, why: str, tmp_path: Path) -> None:
    def notify(urls: Sequence[str], title: str, text: str, kind: str) -> str:
        return _notify(package, urls, title, text, kind)

    assert await a_sink(tmp_path, notify).send_digest([NOTICE]) == Outcome(Answer.RETRY, why)


async def test_an_error_of_a_plugin_shows_no_address(tmp_path: Path) -> None:
    def notify(urls: Sequence[str], title: str, text: str, kind: str) -> str:
        raise RuntimeError(f"cannot reach {urls}")

    assert await a_sink(tmp_path, notify).send(NOTICE, "") == Outcome(Answer.RETRY, "apprise failed: RuntimeError")


async def test_a_plugin_that_hangs_holds_up_nothing(tmp_path: Path) -> None:
    free = threading.Event()

    def notify(urls: Sequence[str], title: str, text: str, kind: str) -> str:
        free.wait(20)
        return ""

    outcome = await a_sink(tmp_path, notify, patience=0.05).send(NOTICE, "")
    free.set()

    assert outcome.answer is Answer.UNKNOWN
