"""
Boxes and arrows as an SVG that any browser shows, on light and dark pages. Standard library alone.

A text that does not fit into its box is an error, and so are two boxes that overlap: an edit cannot spoil the picture
unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from xml.sax.saxutils import escape

SIZES = {"title": 13.0, "text": 11.5, "code": 11.0}
"""Of the letters in px, by class."""
LINE = 15.5
"""From one line to the next."""
MARGIN = 9.0
"""Between the border of a box and its text."""
STYLE = """\
:root{--page:#ffffff;--group:#f3f5f8;--box:#ffffff;--line:#8a94a3;--ink:#1b2430;--soft:#4b5664;
--agent:#0b6bcb;--controller:#a8480b;--cluster:#4b5664}
@media(prefers-color-scheme:dark){:root{--page:#12161c;--group:#1a2029;--box:#232b36;--line:#6d7988;--ink:#eef2f6;
--soft:#b4bfcc;--agent:#6cb2ff;--controller:#f2a369;--cluster:#b4bfcc}}
text{font-family:Helvetica,Arial,'Liberation Sans',sans-serif;fill:var(--ink)}
.title{font-size:13px;font-weight:700}.text{font-size:11.5px;fill:var(--soft)}
.code{font-size:11px;font-family:ui-monospace,Menlo,'Liberation Mono','DejaVu Sans Mono',monospace;fill:var(--soft)}
.page{fill:var(--page)}.group{fill:var(--group);stroke-width:1.5}.box{fill:var(--box);stroke:var(--line)}
.agent{stroke:var(--agent)}.controller{stroke:var(--controller)}.cluster{stroke:var(--cluster)}
.arrow{fill:none;stroke:var(--soft);stroke-width:1.5;marker-end:url(#head)}#head path{fill:var(--soft)}
"""
HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8z"/></marker></defs>'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle with a title, lines of text, and lines of code such as a path. Sizes are px."""

    x: float
    y: float
    width: float
    height: float
    title: str = ""
    text: Sequence[str] = ()
    code: Sequence[str] = ()
    look: str = "box"
    """The classes of its rectangle."""

    @property
    def right(self) -> float:
        """Its right border."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Its lower border."""
        return self.y + self.height

    @property
    def middle(self) -> float:
        """Half way down."""
        return self.y + self.height / 2

    @property
    def center(self) -> float:
        """Half way across."""
        return self.x + self.width / 2

    def overlaps(self, other: Box) -> bool:
        """Whether they share a part of the picture, and neither lies in the other."""
        apart = other.x >= self.right or other.right <= self.x or other.y >= self.bottom or other.bottom <= self.y
        return not (apart or self.holds(other) or other.holds(self))

    def holds(self, other: Box) -> bool:
        """Whether *other* lies within."""
        is_across = self.x <= other.x and other.right <= self.right
        return is_across and self.y <= other.y and other.bottom <= self.bottom

    def lines(self) -> list[tuple[str, str]]:
        """The class and the text of each line."""
        named = [("title", self.title)] if self.title else []
        return [*named, *(("text", line) for line in self.text), *(("code", line) for line in self.code)]


@dataclass(frozen=True, slots=True)
class Arrow:
    """A line through *points* with a head at its end, and a *label* that is centered above *at*."""

    points: Sequence[tuple[float, float]]
    label: str = ""
    at: tuple[float, float] = (0, 0)


def svg(width: int, height: int, name: str, said: str, boxes: Iterable[Box], arrows: Iterable[Arrow]) -> str:
    """The whole file. *said* is for readers who cannot see it. Raises ValueError for what does not fit."""
    boxes = list(boxes)
    for one, other in combinations(boxes, 2):
        if one.overlaps(other):
            raise ValueError(f"the boxes {one.title!r} and {other.title!r} overlap")
    body = [_box(box) for box in boxes] + [_arrow(arrow) for arrow in arrows]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(name)}</title><desc>{escape(said)}</desc>",
            f"<style>\n{STYLE}</style>{HEAD}",
            f'<rect class="page" width="{width}" height="{height}" rx="8"/>',
            *body,
            "</svg>\n",
        ]
    )


def width_of(kind: str, text: str) -> float:
    """An upper bound of the width of *text* in px, for the widest of the fonts that a browser may choose."""
    if kind == "code":
        return 0.605 * SIZES[kind] * len(text)
    return (1.2 if kind == "title" else 1.08) * SIZES[kind] * sum(map(_em, text))


def _em(letter: str) -> float:
    """The width of a letter of Helvetica, in its own size, rounded up."""
    if not letter.isascii():
        return 1.0
    if letter in "ijl.,:;|'!":
        return 0.28
    if letter in "ftrI()/- ":
        return 0.34
    return 0.84 if letter in "mwMW" else 0.72 if letter.isupper() else 0.56


def _box(box: Box) -> str:
    parts = [
        f'<rect class="{box.look}" x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}" rx="6"/>'
    ]
    lines = box.lines()
    y = box.y + MARGIN - 2 + (SIZES[lines[0][0]] if lines else 0)
    for kind, text in lines:
        if MARGIN + width_of(kind, text) > box.width or y + MARGIN / 2 > box.bottom:
            raise ValueError(f"{text!r} does not fit into the box {box.title!r}")
        parts.append(_text(kind, box.x + MARGIN, y, text))
        y += LINE
    return "\n".join(parts)


def _arrow(arrow: Arrow) -> str:
    (begin, _), (end, _) = arrow.points[:2]
    if arrow.label and width_of("text", arrow.label) > abs(end - begin):
        raise ValueError(f"{arrow.label!r} is longer than its arrow")
    path = "L".join(f"{x:g} {y:g}" for x, y in arrow.points)
    drawn = f'<path class="arrow" d="M{path}"/>'
    return f"{drawn}\n{_text('text', *arrow.at, arrow.label, anchor='middle')}" if arrow.label else drawn


def _text(kind: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
