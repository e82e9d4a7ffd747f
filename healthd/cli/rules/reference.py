"""
The folder `docs/findings/`, written from the same rows that `healthd rules` lists.

Each page has the rules of one source, the worst consequence first. The index lists what takes a node out of service.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache

from healthd.cli.rules.pages import INDEX, INDEX_HEAD, INDEX_TAIL, MADE, PAGES, Page, page_of
from healthd.core.api.model import Blame, Severity
from healthd.core.diagnosis.rule_reference import KERNEL_LOG, Mode, RuleOutcome, RuleRow
from healthd.core.diagnosis.xid import sxid_codes, xid_codes

Rows = Sequence[RuleRow]
Cells = Sequence[str]

_MODES = {Mode.ON: "", Mode.SHADOW: "in shadow: ", Mode.OFF: "off: "}
_WORST_FIRST = tuple(reversed(Severity))
_COLUMNS = ("Rule", "What", "Reads", "Threshold", "What follows", "Blame", "From")
_COLUMNS_OF_CODES = ("Rule", "What", "What follows", "Blame", "Why")
"""The name of such a rule says what it reads, and one line is enough."""
_COLUMNS_OF_INDEX = ("Rule", "What", "What is needed", "Page")


class Section(StrEnum):
    """The sections of a page, in order."""

    TAKES_OUT = "Takes the node out"
    IF_FATAL = "Takes the node out only if the line says Fatal"
    DEGRADED = "The node is degraded"
    HEALTHY = "The node stays healthy"
    OBSOLETE = "Obsolete numbers"
    INACTIVE = "Off, or in shadow"


def reference(rows: Iterable[RuleRow]) -> dict[str, str]:
    """The pages as Markdown, by file name. A page without rows is left out."""
    taken: dict[Page, list[RuleRow]] = {page: [] for page in PAGES}
    for row in rows:
        taken[page_of(row)].append(row)
    pages = {page: _by_section(each) for page, each in taken.items() if each}
    return {INDEX: _index(pages), **{page.file: _page(page, sections) for page, sections in pages.items()}}


def consequence(row: RuleRow) -> str:
    """What follows from a finding of *row*, as Markdown."""
    worst_first = sorted(row.outcomes, key=lambda outcome: not outcome.quarantines)
    return _MODES[row.mode] + "; ".join(map(_follows, worst_first))


def _by_section(rows: Rows) -> dict[Section, Rows]:
    """The sections that have rows, each with its worst rows first."""
    found = {section: [row for row in rows if _section(row) is section] for section in Section}
    return {section: sorted(group, key=_rank) for section, group in found.items() if group}


def _section(row: RuleRow) -> Section:
    if row.mode is not Mode.ON:
        return Section.INACTIVE
    if row.quarantines:
        return Section.IF_FATAL if len(row.outcomes) > 1 and row.rule in _not_fatal() else Section.TAKES_OUT
    if row.rule in _obsolete():
        return Section.OBSOLETE
    is_harmless = row.blame is Blame.APPLICATION or all(each.severity is Severity.INFO for each in row.outcomes)
    return Section.HEALTHY if is_harmless else Section.DEGRADED


@cache
def _obsolete() -> frozenset[str]:
    """The numbers that mean nothing on current devices."""
    return frozenset(f"xid-{code.code}" for code in xid_codes().values() if code.tier == "unused")


@cache
def _not_fatal() -> frozenset[str]:
    """The switch errors that NVIDIA does not document as fatal."""
    others = (code for code in sxid_codes().values() if code.severity not in {"fatal", "always-fatal"})
    return frozenset({"sxid-unknown-*", *(f"sxid-{code.code}" for code in others)})


def _rank(row: RuleRow) -> int:
    return min(_WORST_FIRST.index(outcome.severity) for outcome in row.outcomes)


def _page(page: Page, sections: Mapping[Section, Rows]) -> str:
    columns = _COLUMNS_OF_CODES if page.is_of_codes else _COLUMNS
    parts = [f"# {page.title}\n", f"{MADE}\n", f"{page.about}\n"]
    for section, rows in sections.items():
        parts += [f"## {section}\n", _table(columns, (_cells(row, page) for row in rows))]
    return "\n".join(parts)


def _cells(row: RuleRow, page: Page) -> Cells:
    reads = row.reads if row.source == KERNEL_LOG else f"`{row.reads}`"
    how = () if page.is_of_codes else (reads, row.threshold)
    return f"`{row.rule}`", row.what, *how, _advised(consequence(row), row), row.blame.value, row.origin


def _index(pages: Mapping[Page, Mapping[Section, Rows]]) -> str:
    out = [cells for page, sections in pages.items() for cells in _taking_out(page, sections)]
    columns = ("Page", "Rules", *Section)
    counts = [_counted(page, sections) for page, sections in pages.items()]
    tables = ["## What takes a node out\n", _table(_COLUMNS_OF_INDEX, out), "## All rules\n", _table(columns, counts)]
    return "\n".join([INDEX_HEAD, *tables, INDEX_TAIL])


def _taking_out(page: Page, sections: Mapping[Section, Rows]) -> Iterator[Cells]:
    """The rules of *page* that take a node out. A family has one row for each consequence."""
    link = f"[{page.file}]({page.file})"
    rows = [row for section in (Section.TAKES_OUT, Section.IF_FATAL) for row in sections.get(section, ())]
    alone = [row for row in rows if not row.rule.startswith(tuple(family.prefix for family in page.families))]
    yield from ((f"`{row.rule}`", row.what, _needed(row), link) for row in alone)
    for prefix, what in page.families:
        needed = Counter(_needed(row) for row in rows if row.rule.startswith(prefix))
        yield from ((f"`{prefix}*` ({count} rules)", what, text, link) for text, count in needed.items())


def _needed(row: RuleRow) -> str:
    """What the node needs before it is good again."""
    actions = (f"{one.when}: {_action(one)}" if one.when else _action(one) for one in row.outcomes if one.quarantines)
    return _advised("; ".join(actions), row)


def _counted(page: Page, sections: Mapping[Section, Rows]) -> Cells:
    counts = [len(sections.get(section, ())) for section in Section]
    return f"[{page.title}]({page.file})", str(sum(counts)), *(str(count or "") for count in counts)


def _follows(outcome: RuleOutcome) -> str:
    what = "**takes the node out**" if outcome.quarantines else f"`{outcome.severity}`"
    return f"{outcome.when}: {what}, {_action(outcome)}" if outcome.when else f"{what}, {_action(outcome)}"


def _action(outcome: RuleOutcome) -> str:
    return outcome.action.value.replace("_", " ")


def _advised(text: str, row: RuleRow) -> str:
    return f"{text}. {row.advice}" if row.advice else f"{text}."


def _table(columns: Cells, rows: Iterable[Cells]) -> str:
    """A table as Markdown. A column without any text is left out."""
    cells = list(rows)
    used = [at for at in range(len(columns)) if any(row[at] for row in cells)]
    lines = [columns, ["---"] * len(columns), *cells]
    return "".join(f"| {' | '.join(_cell(line[at]) for at in used)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
