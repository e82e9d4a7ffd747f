"""
The last minutes before a hang as an SVG: a row for each rank, whose height is its work, and the time below.

It holds no script, no link and no picture of another place. Names of ranks and nodes are text, escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from xml.sax.saxutils import escape

from healthd.core.hang.history import HIGHEST, UNSEEN, WAITS, level_of
from healthd.core.printable import printable
from healthd.core.report.activity_picture import ActivityPicture, ActivityRow, rows_of, ticks_of

WIDTH = 960
MARGIN, HEAD, FOOT = 16, 64, 44
LEFT = 190
"""Px, of the names of ranks."""
ROW = 24
BAR = 17
"""Px, of usual work."""
LONGEST_NODE = 18
_LEGEND = (
    (MARGIN, str(HIGHEST), "usual work"),
    (112, WAITS, "uses a processor, and does nothing else"),
    (356, "0", "none"),
)
_PLOT = WIDTH - LEFT - MARGIN
_STYLE = """\
:root{--page:#ffffff;--ink:#1b2430;--soft:#5b6673;--grid:#e3e7ec;--work:#2b78c9;--waits:#c77700;--bad:#c4202f;
--marked:#fdecee}
@media(prefers-color-scheme:dark){:root{--page:#12161c;--ink:#eef2f6;--soft:#a9b4c1;--grid:#2a323d;--work:#5aa5f0;
--waits:#f0a940;--bad:#ff7a85;--marked:#3a1c22}}
text{font:12px Helvetica,Arial,'Liberation Sans',sans-serif;fill:var(--ink)}
.head{font-size:15px;font-weight:700}.soft{fill:var(--soft)}.bad{fill:var(--bad);font-weight:700}
.page{fill:var(--page)}.marked{fill:var(--marked)}.work{fill:var(--work)}.waits{fill:var(--waits)}
.none{stroke:var(--soft)}.grid{stroke:var(--grid)}.last{stroke:var(--bad);stroke-dasharray:4 3}
"""


def activity_svg(picture: ActivityPicture, title: str) -> str:
    """The whole file, with a line of *title*. Works on light and on dark pages."""
    rows = rows_of(picture)
    bottom = HEAD + ROW * len(rows)
    body = [
        _text(MARGIN, 28, title, "head"),
        *_legend(),
        *_grid(picture, bottom),
        *(line for number, row in enumerate(rows) for line in _row(picture, row, HEAD + ROW * number)),
        *_last_work(picture, bottom),
    ]
    if left_out := picture.history.left_out:
        body.append(_text(MARGIN, bottom + 18, f"and {left_out:,} ranks more", "soft"))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + FOOT}" role="img">',
            f"<title>{_escaped(title)}</title><desc>{_escaped(_said(picture))}</desc>",
            f"<style>\n{_STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{bottom + FOOT}"/>',
            *body,
            "</svg>\n",
        ]
    )


def _said(picture: ActivityPicture) -> str:
    """For readers who cannot see it."""
    ranks = [str(row.rank) for row in rows_of(picture) if row.is_suspect]
    suspects = f"Suspects: {', '.join(ranks)}." if ranks else "No rank is a suspect."
    return f"No rank worked after {_clock(picture.last_work)} UTC. {suspects}"


def _row(picture: ActivityPicture, row: ActivityRow, top: float) -> Iterator[str]:
    base = top + BAR + (ROW - BAR) / 2
    if row.is_suspect:
        yield f'<rect class="marked" x="{MARGIN / 2:g}" y="{top:g}" width="{WIDTH - MARGIN}" height="{ROW}"/>'
    node = row.node if len(row.node) <= LONGEST_NODE else f"{row.node[: LONGEST_NODE - 1]}…"
    yield _text(MARGIN, base - 4, f"rank {row.rank}", "bad" if row.is_suspect else "")
    if node:
        yield _text(MARGIN + 66, base - 4, node, "bad" if row.is_suspect else "soft")
    for kind in ("work", "waits", "none"):
        bars = [_bar(*each, base) for each in _spans(picture, row.signs) if _kind_of(each[0]) == kind]
        if bars:
            yield f'<path class="{kind}" d="{"".join(bars)}"/>'


def _spans(picture: ActivityPicture, signs: str) -> Iterator[tuple[str, float, float]]:
    """Equal signs together: the sign, and the px from where to where."""
    column = 0
    for sign, same in groupby(signs):
        count = len(list(same))
        yield sign, _x(picture, column), _x(picture, column + count)
        column += count


def _kind_of(sign: str) -> str:
    return {WAITS: "waits", "0": "none", UNSEEN: ""}.get(sign, "work")


def _bar(sign: str, left: float, right: float, base: float, full: float = BAR) -> str:
    """A part of a path: all of a row are one, so that no seams show."""
    if sign == "0":
        return f"M{left:.1f} {base:g}H{right:.1f}"
    height = full / 2 if sign == WAITS else full * level_of(sign) / HIGHEST
    return f"M{left:.1f} {base:g}V{base - height:.1f}H{right:.1f}V{base:g}Z"


def _grid(picture: ActivityPicture, bottom: float) -> Iterator[str]:
    """Round times. None is written across the line of the last work, nor over the edge."""
    last = _x_of_last_work(picture)
    for seconds, at in ticks_of(picture.history, 8):
        x = _x(picture, seconds / picture.history.interval)
        yield f'<path class="grid" d="M{x:.1f} {HEAD - 6}V{bottom + 4:g}"/>'
        if x <= WIDTH - MARGIN - 24 and abs(x - last) > 28:
            yield _text(x, bottom + 18, _clock(at), "soft", anchor="middle")


def _last_work(picture: ActivityPicture, bottom: float) -> Iterator[str]:
    x = _x_of_last_work(picture)
    yield f'<path class="last" d="M{x:.1f} {HEAD - 6}V{bottom + 22:g}"/>'
    anchor = "end" if x > WIDTH / 2 else "start"
    yield _text(x, bottom + 36, f"last work {_clock(picture.last_work)} UTC", "bad", anchor=anchor)


def _x_of_last_work(picture: ActivityPicture) -> float:
    """Within the picture, whatever the clocks were set to."""
    seconds = (picture.last_work - picture.history.start).total_seconds()
    return min(max(LEFT, _x(picture, seconds / picture.history.interval)), WIDTH - MARGIN)


def _legend() -> Iterator[str]:
    base = 48.0
    for left, sign, words in _LEGEND:
        yield f'<path class="{_kind_of(sign)}" d="{_bar(sign, left, left + 12, base, full=10)}"/>'
        yield _text(left + 18, base, words, "soft")


def _x(picture: ActivityPicture, column: float) -> float:
    columns = max(len(each.signs) for each in picture.history.ranks)
    return LEFT + _PLOT * column / max(1, columns)


def _clock(at: datetime) -> str:
    return f"{at:%H:%M:%S}"


def _text(x: float, y: float, words: str, kind: str, *, anchor: str = "") -> str:
    look = f' class="{kind}"' if kind else ""
    look += f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:g}"{look}>{_escaped(words)}</text>'


def _escaped(words: str) -> str:
    """XML allows no control characters, not even escaped."""
    return escape(printable(words))
