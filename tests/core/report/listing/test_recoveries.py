"""The list of recoveries: what goes on comes first, and each duration is from the fault."""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api import ChosenCheckpoint, TimelineEntry
from healthd.core.api.model import Phase
from healthd.core.report.listing.recoveries import COLUMNS, cells, in_order, recovery_row
from tests.core.gangs import a_recovery_in
from tests.fakes import START

TIMELINE = [
    TimelineEntry(phase=Phase.DETECTED, at=START),
    TimelineEntry(phase=Phase.RECOVERED, at=START + timedelta(seconds=133)),
]


def test_held_ones_come_first_then_those_in_progress() -> None:
    phases = [Phase.RECOVERED, Phase.CHOOSING, Phase.HELD, Phase.GAVE_UP]

    assert [row.phase for row in in_order(map(a_recovery_in, phases))][:2] == [Phase.HELD, Phase.CHOOSING]


def test_how_long_it_took_counts_from_the_fault() -> None:
    row = recovery_row(a_recovery_in(Phase.RECOVERED, timeline=TIMELINE))

    assert (row.took, cells(row, START + timedelta(hours=3))[9]) == (133, "2m13s")


def test_one_in_progress_has_an_age_and_no_duration() -> None:
    row = recovery_row(a_recovery_in(Phase.CHOOSING))

    assert cells(row, START + timedelta(seconds=40))[7:10] == ("40s", "", "")


def test_the_checkpoint_and_the_spares_are_named() -> None:
    chosen = ChosenCheckpoint(path="/c/step_8", step=8)
    row = recovery_row(a_recovery_in(Phase.STARTING, checkpoint=chosen, replacements={"gpu-3": "spare-1"}))

    assert row.from_step == 8
    assert "gpu-3 -> spare-1" in cells(row, START)


def test_a_fresh_start_is_no_step() -> None:
    assert recovery_row(a_recovery_in(Phase.STARTING, checkpoint=ChosenCheckpoint())).from_step is None


def test_there_is_a_cell_for_each_column() -> None:
    assert len(cells(recovery_row(a_recovery_in(Phase.HELD)), START)) == len(COLUMNS)
