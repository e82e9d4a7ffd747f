"""What a fault would cost the gang now, as the controller last saw its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from healthd.core.api import ANNOTATION_CHECKPOINT
from healthd.core.api.save_stats import Concern
from healthd.core.checkpoint.precheck import is_checked
from healthd.core.checkpoint.restart_cost import Stake, at_stake, cost_line
from healthd.core.report.doctor.chart import Chart, Remark, RemarkLevel

_REMEDIES = {
    Concern.LATE: "see whether the job still trains, and why it does not save",
    Concern.REFUSED: "see `healthd checkpoints latest` on its folder; declare the format where it is not known",
    Concern.SLOWER: "see what else uses the store",
    Concern.FULL: "delete old checkpoints, or let the job keep fewer",
}
_RISK_TEXTS = {
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
        if concern is Concern.REFUSED and root.saves.why_refused.startswith(ANNOTATION_CHECKPOINT):
            continue  # what is wrong with the annotation is looked at elsewhere, as it is now
        held = concern is Concern.REFUSED and root.saves.none_loads
        why = root.saves.why_refused if concern is Concern.REFUSED else "a fault would cost more than it has to"
        message = (
            "a fault now would hold it: nothing that is there would be resumed from" if held else _RISK_TEXTS[concern]
        )
        yield Remark(RemarkLevel.PREVENTS if held else RemarkLevel.RISKS, message, why, _REMEDIES[concern])
    stake = at_stake(root, now)
    if stake is not None and stake.newest:
        what, _, why = cost_line(stake).partition(": ")
        yield Remark(RemarkLevel.NOTE, what, why, _advice(stake))


def _advice(stake: Stake) -> str:
    is_usual = stake.lost_ms <= 2 * (stake.interval_ms or 0)
    return "nothing, unless that is too much" if is_usual else "save more often, if that is too much"
