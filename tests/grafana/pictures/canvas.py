"""SVG on which a dashboard is drawn. Coordinates are px, rounded, so that the same data gives the same file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

COLORS = {
    "green": "#2f9e5b",
    "yellow": "#d6a700",
    "orange": "#e8811a",
    "red": "#d0303f",
    "blue": "#2b78c9",
    "purple": "#8a55cf",
}
PALETTE = ("#3b8f4f", "#c99a06", "#2b78c9", "#e06c1f", "#cc3347", "#7a52c7", "#16919c", "#a8467f", "#6b7d14", "#5b6b7d")
STYLE = """\
text{font-family:Helvetica,Arial,'Liberation Sans',sans-serif;fill:#24292f;font-size:11px}
.head{font-size:17px;font-weight:700}.row{font-size:13px;font-weight:700}.title{font-size:12px;font-weight:700}
.soft{fill:#66707c}.inside{fill:#ffffff}.page{fill:#f4f5f7}.panel{fill:#ffffff;stroke:#d9dde2}.grid{stroke:#e8ebee}
.line{fill:none;stroke-width:1.3}
"""
_PER_EM = 0.56
_NARROW = frozenset("ijl.,:;|'!ftrI()/- 1")


@dataclass(frozen=True, slots=True)
class Area:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right border."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Its lower border."""
        return self.y + self.height

    def inset(self, left: float = 0, top: float = 0, right: float = 0, bottom: float = 0) -> Area:
        """What is left of it."""
        return Area(self.x + left, self.y + top, self.width - left - right, self.height - top - bottom)


def rect(area: Area, *, kind: str = "", fill: str = "", round_by: float = 0) -> str:
    """A filled rectangle."""
    look = f'class="{kind}"' if kind else f'fill="{fill}"'
    size = f'width="{px(max(area.width, 0.5))}" height="{px(area.height)}"'
    corners = f' rx="{px(round_by)}"' if round_by else ""
    return f'<rect {look} x="{px(area.x)}" y="{px(area.y)}" {size}{corners}/>'


def text(x: float, y: float, words: str, *, kind: str = "", anchor: str = "", size: float = 0, fill: str = "") -> str:
    """One line of text; *y* is its base line."""
    look = f' class="{kind}"' if kind else ""
    look += f' text-anchor="{anchor}"' if anchor else ""
    style = (f"font-size:{px(size)}px;font-weight:700;" if size else "") + (f"fill:{fill}" if fill else "")
    look += f' style="{style}"' if style else ""
    return f'<text x="{px(x)}" y="{px(y)}"{look}>{escape(words)}</text>'


def path(points: Sequence[tuple[float, float]], color: str, *, dashed: bool = False) -> str:
    """A line through *points*."""
    drawn = "".join(f"{'L' if number else 'M'}{px(x)} {px(y)}" for number, (x, y) in enumerate(points))
    look = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<path class="line" stroke="{color}"{look} d="{drawn}"/>'


def filled(points: Sequence[tuple[float, float]], color: str) -> str:
    """The area between *points*."""
    drawn = "".join(f"{'L' if number else 'M'}{px(x)} {px(y)}" for number, (x, y) in enumerate(points))
    return f'<path fill="{color}" fill-opacity=".75" d="{drawn}Z"/>'


def width_of(words: str, size: float = 11) -> float:
    """About how wide *words* are."""
    return size * sum(0.33 if letter in _NARROW else 0.85 if letter in "mwMW%@" else _PER_EM for letter in words)


def fitted(words: str, width: float, size: float = 11) -> str:
    """*words*, cut where they would be wider than *width*."""
    if width_of(words, size) <= width:
        return words
    while words and width_of(f"{words}…", size) > width:
        words = words[:-1]
    return f"{words}…"


def wrapped(words: str, width: float, size: float = 11) -> list[str]:
    """*words* in lines that are not wider than *width*."""
    lines: list[str] = []
    for word in words.split():
        if lines and width_of(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def px(value: float) -> str:
    """A coordinate, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")
