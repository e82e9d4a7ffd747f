"""What a fault would cost the gang now, as the controller last saw its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from healthd.core.doctor.chart import Chart, Level, Remark
from healthd.core.precheck import is_checked, lost_work, tell_saves, usual_interval
from healthd.core.saves import Concern

_REMEDIES = {
    Concern.LATE: "see whether the job still trains, and why it does not save",
    Concern.REFUSED: "see `healthd checkpoints latest` on its folder; declare the format where it is not known",
    Concern.SLOWER: "see what else uses the store",
    Concern.FULL: "delete old checkpoints, or let the job keep fewer",
}
_SAID = {
    Concern.LATE: "it saves much later than usual",
    Concern.REFUSED: "its newest checkpoint would be refused",
    Concern.SLOWER: "writing a checkpoint takes twice as long as it did",
    Concern.FULL: "there is room for only a few more checkpoints",
}


def examine(chart: Chart) -> Iterator[Remark]:
    """Is there something to resume from, and how old is it?"""
    root, now = chart.root, chart.now
    if root is None or now is None or not is_checked(root):
        return
    for concern in root.saves.concerns:
        why = root.saves.why_refused if concern is Concern.REFUSED else "a fault would cost more than it has to"
        yield Remark(Level.RISKS, _SAID[concern], why, _REMEDIES[concern])
    lost = lost_work(root, now)
    if lost is not None and root.saves.good:
        cost, *_ = tell_saves(root, now)
        usual = usual_interval(root) or timedelta(0)
        remedy = "nothing, unless that is too much" if lost <= 2 * usual else "save more often, if that is too much"
        yield Remark(Level.NOTE, cost.partition(":")[0], cost.partition(": ")[2], remedy)
