"""
What stands in the way of a recovery before anything has broken: `healthd doctor`. Pure.

`chart` is what there is to know of one gang; each of the other modules looks at one side of it. A remark says what is
wrong, why that matters on the day, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from healthd.core.printable import printable
from healthd.core.report.doctor import described, hint, kinds, options, rights, saves, surroundings
from healthd.core.report.doctor.chart import Chart, FoundTrap, HintPolicy, Remark, RemarkLevel, Right, VerifierPod

__all__ = ["Chart", "FoundTrap", "HintPolicy", "Remark", "RemarkLevel", "Right", "VerifierPod", "examine"]

_CHECKS: Sequence[Callable[[Chart], Iterable[Remark]]] = (
    options.examine,
    kinds.examine,
    described.examine,
    hint.examine,
    rights.examine,
    surroundings.examine,
    saves.examine,
)


def _on_one_line(remark: Remark) -> Remark:
    """What owners wrote is quoted in it: a line end there must begin no line of ours, least of all one to copy."""
    return Remark(remark.level, printable(remark.what), printable(remark.why), printable(remark.remedy))


def examine(chart: Chart) -> list[Remark]:
    """All remarks, the gravest first. Each thing is said once, however many pods it is true of."""
    found = {_on_one_line(remark): None for check in _CHECKS for remark in check(chart)}
    return sorted(found, key=lambda remark: list(RemarkLevel).index(remark.level))
