"""
The figures of one gang or of many: goodput and ETTR. docs/goodput.md compares them with the published definitions.

ETTR, the effective training time ratio, is productive time by the time in which a gang was to train: time that its user
had suspended it or that it was queued is left out, as healthd can do nothing about it. Goodput is productive time by
all GPU time of gangs, with that time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from healthd.core.accounting.timeline import totals
from healthd.core.api.gpu_time import LOST, NOT_OURS, GpuTime, LossCause, Part, key


class Loss(NamedTuple):
    """One kind of loss."""

    part: Part
    cause: LossCause
    gpu_ms: int


class Figures(NamedTuple):
    """GPU-milliseconds by `timeline.key`."""

    amounts: Counter[str]

    @property
    def whole(self) -> int:
        """All of it: wall clock times GPUs."""
        return self.amounts.total()

    @property
    def productive(self) -> int:
        """What training took that a later step shows."""
        return self.amounts[Part.PRODUCTIVE]

    @property
    def not_ours(self) -> int:
        """What its user had suspended or what waited in a queue."""
        return sum(self.amounts[part] for part in NOT_OURS)

    @property
    def lost(self) -> int:
        """What faults and starts cost."""
        return sum(amount for name, amount in self.amounts.items() if name in _LOSSES)

    @property
    def ettr(self) -> float | None:
        """The effective training time ratio, from 0 to 1; None before there was any time to train."""
        ours = self.whole - self.not_ours
        return self.productive / ours if ours else None

    @property
    def goodput(self) -> float | None:
        """The productive share of the whole, from 0 to 1; None for nothing."""
        return self.productive / self.whole if self.whole else None

    def losses(self) -> list[Loss]:
        """What was lost, the largest first."""
        rows = [
            Loss(part, cause, self.amounts[name]) for name, (part, cause) in _LOSSES.items() if name in self.amounts
        ]
        return sorted((row for row in rows if row.gpu_ms), key=lambda row: -row.gpu_ms)


_LOSSES = {key(part, cause): (part, cause) for part in LOST for cause in LossCause}


def figures(accounts: Iterable[GpuTime]) -> Figures:
    """The figures of *accounts* together."""
    amounts = Counter[str]()
    for account in accounts:
        amounts.update(totals(account))
    return Figures(amounts)
