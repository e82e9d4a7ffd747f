"""Draw curves with braille characters: each cell of the terminal is two dots wide and four high. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.text import Text

_BLANK = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot of a cell, by row and column."""


class Canvas:
    """*width* × *height* cells. A cell has the style of the last dot that was set in it."""

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.height = height
        self._cells: dict[tuple[int, int], tuple[int, str]] = {}

    def line(self, begin: tuple[float, float], end: tuple[float, float], style: str) -> None:
        """Draw a line from *begin* to *end*, both (x, y) from 0 to 1, y upwards."""
        (x0, y0), (x1, y1) = self._dot(*begin), self._dot(*end)
        count = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(count + 1):
            self._set(round(x0 + (x1 - x0) * i / count), round(y0 + (y1 - y0) * i / count), style)

    def lines(self) -> Iterator[Text]:
        """The rows of the picture, from the top."""
        for row in range(self.height):
            text = Text(no_wrap=True)
            for column in range(self.width):
                bits, style = self._cells.get((column, row), (0, ""))
                text.append(chr(_BLANK + bits) if bits else " ", style)
            yield text

    def _dot(self, x: float, y: float) -> tuple[int, int]:
        across, down = self.width * 2 - 1, self.height * 4 - 1
        return round(min(max(x, 0), 1) * across), round((1 - min(max(y, 0), 1)) * down)

    def _set(self, x: int, y: int, style: str) -> None:
        cell = (x // 2, y // 4)
        bits, _ = self._cells.get(cell, (0, ""))
        self._cells[cell] = (bits | _DOTS[y % 4][x % 2], style)


def plot_log(
    curves: Sequence[tuple[Sequence[tuple[float, float]], str]], *, width: int, height: int, last_x: float
) -> list[Text]:
    """Curves of (x, value) points, each with its style, on a logarithmic scale. Later curves are drawn on top."""
    values = [value for points, _ in curves for _, value in points if value > 0]
    canvas = Canvas(width, height)
    if values:
        top = math.log(max(values))
        span = max(top - math.log(min(values)), math.log(10))
        for points, style in curves:
            places = [(x / last_x, 1 - (top - math.log(value)) / span) for x, value in points if value > 0]
            for begin, end in zip(places, [*places[1:], *places[-1:]], strict=True):
                canvas.line(begin, end, style)
    return list(canvas.lines())
