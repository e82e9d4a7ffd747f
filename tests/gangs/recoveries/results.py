"""
Writes what a run of the table has shown into docs/gangs.md: `pytest --all-kinds --write-results …`.

A cell that was not played keeps what stands there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.gangs.recoveries.gangs import PLAYED
from tests.gangs.recoveries.stories import STORIES, applies
from tests.gangs.recoveries.table import LIMITS

PAGE = Path(__file__).parents[3] / "docs" / "gangs.md"
BEGIN, END = "<!-- results: begin -->\n", "<!-- results: end -->\n"
NEVER, PASSED, LIMITED, FAILED = "not tried", "passed", "limit", "failed"
INAPPLICABLE = "—"

Cell = tuple[str, str]
"""A kind and a story."""


def record(cell: Cell, report: pytest.TestReport) -> None:
    """Write into the page what became of *cell*, at once: a run of all takes long, and may be ended."""
    if report.when != "call" and not report.failed:
        return
    was_limited = report.skipped and hasattr(report, "wasxfail")
    text = PAGE.read_text()
    result = PASSED if report.passed else LIMITED if was_limited else FAILED
    PAGE.write_text(with_results(text, {**results_of(text), cell: result}))


def with_results(page: str, results: Mapping[Cell, str]) -> str:
    """*page* with these results between its marks."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + "\n".join(_lines(results)) + "\n" + END + rest.partition(END)[2]


def results_of(page: str) -> dict[Cell, str]:
    """What stands between the marks of *page*."""
    table = page.partition(BEGIN)[2].partition(END)[0]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table.splitlines() if "|" in line]
    if not rows:
        return {}
    kinds = rows[0][1:]
    return {(kind, row[0]): cell for row in rows[2:] for kind, cell in zip(kinds, row[1:], strict=True)}


def _lines(results: Mapping[Cell, str]) -> Iterator[str]:
    yield _row("", *(f"`{kind}`" for kind in PLAYED))
    yield _row(*["---"] * (len(PLAYED) + 1))
    for story in STORIES:
        yield _row(story, *(_cell(results, kind, story) for kind in PLAYED))
    yield ""
    yield from (f"- `{kind}`, {story}: {why}." for (kind, story), why in LIMITS.items())


def _cell(results: Mapping[Cell, str], kind: str, story: str) -> str:
    return results.get((kind, story), NEVER) if applies(kind, story) else INAPPLICABLE


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
