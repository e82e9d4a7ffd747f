"""
The shape of a rule about readings: what it reads, when that is bad, how bad it is, and its source.

Rules are data. One module per source, beside this one, holds their table; `healthd.core.diagnosis.signals.engine`
applies them. The tiers define what a rule's tier makes of a finding (severity, action, quarantine).
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from healthd.core.api.model import Blame


class Is(msgspec.Struct, frozen=True, tag=True):
    """Bad while the value is one of *values*. Numbers are compared as words without a fraction: `1`, not `1.0`."""

    values: frozenset[str]


class IsNot(msgspec.Struct, frozen=True, tag=True):
    """Bad while the value is none of *values*."""

    values: frozenset[str]


class AtLeast(msgspec.Struct, frozen=True, tag=True):
    """Bad while a gauge is at or above *limit*."""

    limit: float


class Below(msgspec.Struct, frozen=True, tag=True):
    """
    Bad while a gauge is below a limit: the number *limit*, or the reading *other* of the same device and part.

    With *other*, a device that does not report it is not judged.
    """

    limit: float = 0
    other: str = ""


class FellBelowBest(msgspec.Struct, frozen=True, tag=True):
    """Bad while a gauge is below its best value since the agent started."""


class Grows(msgspec.Struct, frozen=True, tag=True):
    """Bad once a counter has grown by *by* or more within *within*. Counting starts at its first value."""

    by: float
    within: timedelta


class Changes(msgspec.Struct, frozen=True, tag=True):
    """Bad once a state has changed *times* or more within *within*: it flaps."""

    times: int
    within: timedelta


class OutOfLine(msgspec.Struct, frozen=True, tag=True):
    """
    Bad once a counter has grown far more within *within* than the same counter of its peers on the node.

    Its growth must be at least *floor* and lie *score* robust standard deviations (1.4826 x the median absolute
    deviation) above the median of at least three peers.
    """

    score: float
    floor: float
    within: timedelta


Test = Is | IsNot | AtLeast | Below | FellBelowBest | Grows | Changes | OutOfLine


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. The id of its finding is `<device>/<name>`."""

    name: str
    """For example `ib-symbol-errors`."""
    reads: str
    """The reading's name, for example `ib.symbol_error`."""
    test: Test
    tier: str
    """The tier of its findings: a name in the table of tiers."""
    blame: Blame
    summary: str
    """What is wrong, for a person: half a sentence without a full stop."""
    advice: str = ""
    """What a person should do, where the tier does not make that clear: a sentence."""
    holds: timedelta = timedelta(0)
    """A state or gauge must be bad for this long before it is reported."""
    clears_after: timedelta | None = timedelta(minutes=10)
    """
    It must be good for this long before the finding is cleared. None: a good state clears nothing. Only a repair, a
    reset, a reboot, or the fade time of its tier ends the finding.
    """
    same_as: str = ""
    """The fault of which this is one witness, for example `gpu-lost`: see `healthd.core.diagnosis.causes`."""
    source: str
    """Where threshold and meaning come from: a document, a driver's source, another detector."""
