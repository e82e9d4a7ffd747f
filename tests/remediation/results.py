"""
Writes what a run has shown into docs/remediation-hands.md: `pytest --write-results tests/remediation`.

A row whose trial was not run keeps what stands there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from healthd.core.api.remediations import Rung
from tests.remediation.definitions import origin
from tests.remediation.trials import Trial, trials

PAGE = Path(__file__).parents[2] / "docs" / "remediation-hands.md"
BEGIN, END = "<!-- results: begin -->\n", "<!-- results: end -->\n"
NEVER, ACCEPTED, REFUSED, UNPUBLISHED = "not tried", "yes", "no", "no definition found"
_PROOFS = {Rung.REPLACE: "none: another machine is the proof"}
_BOOT = "none: another boot id is the proof"


def record(trial: Trial, *, passed: bool) -> None:
    """Write the outcome of *trial* into the page."""
    text = PAGE.read_text()
    PAGE.write_text(with_results(text, {**results_of(text), _row_of(trial)[:2]: ACCEPTED if passed else REFUSED}))


def with_results(page: str, results: Mapping[tuple[str, str], str]) -> str:
    """*page* with these results between its marks."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + "\n".join(_lines(results)) + "\n" + END + rest.partition(END)[2]


def results_of(page: str) -> dict[tuple[str, str], str]:
    """What stands between the marks of *page*, by hand and API."""
    table = page.partition(BEGIN)[2].partition(END)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {(row[0], row[1]): row[3] for row in rows}


def _lines(results: Mapping[tuple[str, str], str]) -> Iterator[str]:
    yield _line("hand", "found by", "definition of", "accepted", "sign read")
    yield _line(*["---"] * 5)
    for trial in trials():
        hand, found_by, comes_from, signs = _row_of(trial)
        accepted = results.get((hand, found_by), NEVER) if trial.is_published else UNPUBLISHED
        yield _line(hand, found_by, comes_from, accepted, signs)


def _row_of(trial: Trial) -> tuple[str, str, str, str]:
    found_by = f"`{trial.api}` `{trial.kind}`" if trial.api else f"the label `{trial.label}`"
    comes_from = origin(trial.api, trial.kind) if trial.api and trial.is_published else "—"
    signs = ", ".join(trial.said.signs) or _PROOFS.get(trial.hand.rung, _BOOT)
    return f"`{trial.hand.name}`", found_by, comes_from, signs


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
