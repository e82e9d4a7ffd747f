"""How fast one alert service is sent to: its rate, and pauses after failures. Times are passed in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from healthd.core.backoff import Jitter

MINUTE = timedelta(minutes=1)
FIRST_RETRY = timedelta(seconds=1)
LONGEST_RETRY = timedelta(minutes=2)
LONGEST_PAUSE = timedelta(hours=1)
"""A service that asks for a longer pause is tried again after this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """
    The token bucket of one service. It holds half of the rate and is refilled with half of the rate a minute.

    So no minute ever has more messages than the rate, not even the one after a quiet hour, as would be with a bucket of
    the whole rate. And when a burst has emptied it, the next message waits for seconds, not for the rest of a minute.
    """

    rate: float
    """Messages a minute."""
    level: float
    """Messages that may be sent now."""
    at: datetime
    """When that was so."""
    failures: int = 0
    """Failures in a row, of whatever message."""
    not_before: datetime | None = None
    """The service is left alone until then."""

    @classmethod
    def after(cls, rate: float, sent: Iterable[datetime], now: datetime) -> Pace:
        """The pace of a controller that starts: messages of the last minute count, whichever controller sent them."""
        lately = sum(1 for at in set(sent) if now - at < MINUTE)
        return cls(rate=rate, level=max(0.0, _capacity(rate) - lately), at=now)

    def allowed(self, now: datetime) -> int:
        """How many messages may be sent now."""
        if self.not_before is not None and now < self.not_before:
            return 0
        return int(self._level(now) + 1e-9)

    def next_at(self, now: datetime) -> datetime:
        """When the next message may be sent; *now* when one may be now."""
        wait = max(0.0, 1 - self._level(now)) / (self.rate / 2) * MINUTE
        return max(now + wait, self.not_before or now)

    def took(self, messages: int, now: datetime) -> Pace:
        """*messages* are sent now."""
        return replace(self, level=self._level(now) - messages, at=max(now, self.at))

    def succeeded(self) -> Pace:
        """The service took a message."""
        return replace(self, failures=0, not_before=None)

    def failed(self, now: datetime, jitter: Jitter, retry_after: float | None = None) -> Pace:
        """The service did not. *retry_after* are the seconds that it asked for."""
        pause = retry_delay(self.failures, jitter, retry_after)
        return replace(self, failures=self.failures + 1, not_before=now + pause)

    def _level(self, now: datetime) -> float:
        passed = max(timedelta(0), now - self.at)
        return min(_capacity(self.rate), self.level + passed / MINUTE * self.rate / 2)


def _capacity(rate: float) -> float:
    return max(1.0, rate / 2)


def retry_delay(failures: int, jitter: Jitter, retry_after: float | None = None) -> timedelta:
    """The pause after so many failures before this one: doubled each time, shortened by up to half at random."""
    doubled = min(LONGEST_RETRY, FIRST_RETRY * (1 << min(failures, 20)))
    asked = timedelta(seconds=max(0.0, min(retry_after or 0.0, LONGEST_PAUSE.total_seconds())))
    return max(asked, doubled * (1 - jitter() / 2))
