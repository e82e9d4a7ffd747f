"""An engine with a clock that is turned by hand, and readings of one source."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from healthd.core.api.model import Blame
from healthd.core.diagnosis.readings import Reading, Sample
from healthd.core.diagnosis.signals.engine import Bad, Engine
from healthd.core.diagnosis.signals.rule import Rule, Test

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NIC = "0000:5c:00.0"
COUNTER = "ib.symbol_error"
MINUTE = timedelta(minutes=1)


def rule(test: Test, **changes: object) -> Rule:
    """A rule about `ib.symbol_error`."""
    given = {
        "name": "ib-symbol-errors",
        "reads": COUNTER,
        "test": test,
        "tier": "suspect",
        "blame": Blame.LINK,
        "summary": "symbol errors",
        "source": "a test",
    }
    return Rule(**{**given, **changes})  # type: ignore[arg-type]  # one builder for all fields


class EngineDriver:
    """Feeds one engine; a sample every minute unless the time is turned."""

    def __init__(self, *rules: Rule) -> None:
        self.engine = Engine(rules)
        self.now = START

    def sample(self, *readings: Reading, after: timedelta = MINUTE, source: str = "ib", trouble: str = "") -> list[Bad]:
        """What is bad after one more sample."""
        self.now += after
        self.engine.ingest(Sample(source=source, at=self.now, readings=readings, trouble=trouble))
        return self.engine.bad()

    def good_since(self, rule: str, device: str = NIC) -> datetime | None:
        """Since when the device is good by a rule; None: it is not, or that is not known."""
        good = self.engine.good(device, rule)
        return good.since if good else None

    def counts(self, *values: float | str, after: timedelta = MINUTE) -> list[bool]:
        """For each value of one counter whether it was bad then."""
        return [bool(self.sample(read(value), after=after)) for value in values]


def read(value: float | str, device: str = NIC, name: str = COUNTER, part: str = "port 1") -> Reading:
    """One reading of a port."""
    return Reading(device, name, value, part)
