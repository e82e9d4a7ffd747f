"""The breaker: too many recoveries in too short a time."""

from __future__ import annotations

from datetime import timedelta

from healthd.core.breaker import refuses
from healthd.core.objects import Recovery
from healthd.core.policy import RecoveryPolicy
from tests.builders import a_recovery
from tests.fakes import START

POLICY = RecoveryPolicy(breaker_restarts=2, breaker_window=timedelta(minutes=10))
NOW = START + timedelta(hours=1)


def begun(*minutes_ago: float) -> list[Recovery]:
    """Recoveries that began so long ago."""
    return [a_recovery(f"r{m}", creation_timestamp=NOW - timedelta(minutes=m)) for m in minutes_ago]


def test_fewer_than_the_limit_are_let_through() -> None:
    assert refuses(begun(1), POLICY, NOW) is None


def test_at_the_limit_the_next_one_is_refused_with_a_reason() -> None:
    refusal = refuses(begun(1, 3), POLICY, NOW)

    assert refusal is not None
    assert refusal.reason == "2 recoveries began within 0:10:00: the breaker is open"


def test_it_says_when_the_oldest_that_counts_has_passed() -> None:
    refusal = refuses(begun(1, 3, 9), POLICY, NOW)

    assert refusal is not None
    assert refusal.recheck == timedelta(minutes=7)


def test_what_is_older_than_the_window_does_not_count() -> None:
    assert refuses(begun(1, 10), POLICY, NOW) is None
