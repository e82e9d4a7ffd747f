"""The table in docs/gangs.md: what a run writes there, and that nothing is missing."""

from __future__ import annotations

import pytest

from tests.gangs.recoveries import results
from tests.gangs.recoveries.gangs import PLAYED
from tests.gangs.recoveries.results import INAPPLICABLE, LIMITED, NEVER, PAGE, PASSED, results_of, with_results
from tests.gangs.recoveries.stories import STORIES
from tests.gangs.recoveries.table import LIMITS

EMPTY = f"before\n{results.BEGIN}{results.END}after\n"
TFJOB = ("TFJob", "no spare")


def test_the_page_shows_every_kind_in_every_scenario_and_none_that_failed() -> None:
    shown = results_of(PAGE.read_text())

    assert set(shown) == {(kind, story) for kind in PLAYED for story in STORIES}
    assert set(shown.values()) <= {PASSED, LIMITED, INAPPLICABLE, NEVER}
    assert {cell for cell, result in shown.items() if result == LIMITED} == set(LIMITS)


def test_what_was_not_played_again_keeps_what_stands_there() -> None:
    page = with_results(EMPTY, {TFJOB: PASSED})
    again = with_results(page, {**results_of(page), ("MPIJob", "no spare"): LIMITED})

    assert results_of(again)[TFJOB] == PASSED
    assert results_of(again)[("MPIJob", "no spare")] == LIMITED
    assert (again.startswith("before\n"), again.endswith("after\n")) == (True, True)


def test_a_kind_that_never_completes_cannot_finish_meanwhile() -> None:
    assert results_of(with_results(EMPTY, {}))[("LeaderWorkerSet", "finished meanwhile")] == INAPPLICABLE


@pytest.mark.parametrize("page", [EMPTY, "no marks"])
def test_a_page_without_results_has_none(page: str) -> None:
    assert results_of(page) == {}
