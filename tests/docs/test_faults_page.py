"""Each row of the page about faults and jobs is shown by a test that exists, or by a row of the table of gang kinds."""

from __future__ import annotations

import re

from tests.docs.page import ROOT, Page, is_test, named_tests
from tests.gangs.recoveries.stories import STORIES

PAGE = Page(ROOT / "docs" / "faults.md")


def test_every_row_names_a_test_or_a_row_of_the_table_of_kinds() -> None:
    rows = [line for line in PAGE.text.splitlines() if line.startswith("| ")][1:]
    stories = [re.findall(r"the row \*([^*]+)\*", row) for row in rows]

    assert len(rows) > 15
    assert [row for row, story in zip(rows, stories, strict=True) if not named_tests(row) and not story] == []
    assert {name for found in stories for name in found} <= set(STORIES)


def test_every_test_that_it_names_exists() -> None:
    assert [each for each in named_tests(PAGE.text) if not is_test(*each)] == []
