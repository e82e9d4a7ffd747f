"""Tables as kubectl prints them: plain columns that are easy to cut and search, fitted to the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from healthd.core.printable import printable

GAP = "   "
ELLIPSIS = "…"
NARROWEST = 12
"""Characters. A column is not cut to less."""
NOTHING = "-"
"""An empty cell: `cut` and `awk` count columns by words."""


class Column(NamedTuple):
    """One column. *wide*: shown by `-o wide` alone. *flexible*: cut first where the terminal is narrow."""

    title: str
    wide: bool = False
    flexible: bool = False


def lines_of(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, wide: bool = False, width: int | None = None
) -> Iterator[str]:
    """
    The title line and one line for each of *rows*, which have a cell for each of *columns*.

    *width* is that of the terminal; None: no limit, as in a pipe. Flexible columns are cut to fit it. Control
    characters in cells are escaped.
    """
    shown = [number for number, column in enumerate(columns) if wide or not column.wide]
    cells = [[columns[number].title for number in shown]]
    cells += [[printable(row[number]) or NOTHING for number in shown] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if width is not None:
        widths = _fitted(widths, [columns[number].flexible for number in shown], width)
    for line in cells:
        yield GAP.join(_cell(text, size) for text, size in zip(line, widths, strict=True)).rstrip()


def _fitted(widths: Sequence[int], flexible: Sequence[bool], width: int) -> list[int]:
    """*widths* with the flexible columns cut, from the last one on, until a line fits into *width*."""
    fitted = list(widths)
    excess = sum(fitted) + len(GAP) * (len(fitted) - 1) - width
    for number in reversed(range(len(fitted))):
        if excess > 0 and flexible[number]:
            cut = min(excess, max(0, fitted[number] - NARROWEST))
            fitted[number] -= cut
            excess -= cut
    return fitted


def _cell(text: str, size: int) -> str:
    return text.ljust(size) if len(text) <= size else f"{text[: size - 1]}{ELLIPSIS}"
