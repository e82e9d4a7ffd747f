"""The last minutes before a hang for a terminal: a line for each rank, a sign for some seconds, and the time below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from healthd.core.hang.history import UNSEEN, WAITS, merged
from healthd.core.printable import printable
from healthd.core.report.activity_picture import ActivityPicture, ActivityRow, rows_of, ticks_of

MOST_LINES = 24
"""Ranks. The rest are counted."""
FEWEST_SIGNS = 10
"""Of a rank: a narrower terminal wraps the lines."""
LONGEST_NODE = 24
_BLOCKS = str.maketrans(f"01234567{WAITS}{UNSEEN}", "·▁▂▃▄▅▆▇~ ")
_ASCII = str.maketrans(f"01234567{WAITS}{UNSEEN}", ".:-=+*%#~ ")
_TIME = "%H:%M:%S"
_SUSPECT, _OTHER = "> ", "  "


def activity_lines(picture: ActivityPicture, *, width: int, ascii_only: bool = False) -> Iterator[str]:
    """*picture* in lines of at most *width* characters, in ASCII where *ascii_only*. Nothing where it has no rank."""
    rows = rows_of(picture)
    if not rows:
        return
    shown = rows[:MOST_LINES]
    labels = _labels(shown, width)
    room = max(FEWEST_SIGNS, width - len(labels[0]))
    longest = max(len(row.signs) for row in shown)
    together = max(1, -(-longest // room))
    signs = _ASCII if ascii_only else _BLOCKS
    yield from wrap(_legend(picture, together, signs), width)
    for row, label in zip(shown, labels, strict=True):
        yield (label + merged(row.signs, together).translate(signs)).rstrip()
    columns = -(-longest // together)
    if axis := _axis(picture, together, columns):
        yield " " * len(labels[0]) + axis
    yield _last_work(picture, together, columns, len(labels[0]), width)
    if more := len(rows) - len(shown) + picture.history.left_out:
        yield f"and {more:,} ranks more"


def _legend(picture: ActivityPicture, together: int, signs: dict[int, int]) -> str:
    seconds = picture.history.interval * together
    nothing, little, usual, waits = (sign.translate(signs) for sign in "017w")
    parts = [f"{usual} its usual work", f"{little} little", f"{nothing} none"]
    if any(WAITS in each.signs for each in picture.history.ranks):
        parts.append(f"{waits} uses a processor and does nothing else")
    history = picture.history
    span = f"{history.start:{_TIME}} to {history.end:{_TIME}} UTC"
    legend = f"what each rank did from {span}, a sign for each {seconds} s: {', '.join(parts)}"
    return f"{legend}; {_SUSPECT.strip()} marks a suspect" if picture.suspects else legend


def _labels(rows: Sequence[ActivityRow], width: int) -> list[str]:
    """Of one length, and with the nodes where they have room."""
    ranks = [f"{_SUSPECT if row.is_suspect else _OTHER}rank {row.rank}" for row in rows]
    nodes = [_cut(printable(row.node)) for row in rows]
    numbers, names = max(map(len, ranks)), max(map(len, nodes))
    if not names or numbers + names + 4 + 2 * FEWEST_SIGNS > width:
        return [f"{rank:{numbers}}  " for rank in ranks]
    return [f"{rank:{numbers}}  {node:{names}}  " for rank, node in zip(ranks, nodes, strict=True)]


def _cut(node: str) -> str:
    return node if len(node) <= LONGEST_NODE else f"{node[: LONGEST_NODE - 1]}~"


def _axis(picture: ActivityPicture, together: int, columns: int) -> str:
    """Round times, each below the sign with which it begins."""
    line = ""
    for seconds, at in ticks_of(picture.history, max(1, columns // 12)):
        column = int(seconds / picture.history.interval / together)
        label = f"|{at:{_TIME}}"
        if len(line) <= column and column + len(label) <= columns:
            line = line.ljust(column) + label
    return line


def _last_work(picture: ActivityPicture, together: int, columns: int, indent: int, width: int) -> str:
    """The moment of the last work, below its sign, with its time on the side that has room."""
    seconds = (picture.last_work - picture.history.start).total_seconds()
    column = min(max(0, int(seconds / picture.history.interval / together)), columns - 1)
    words = f"last work {picture.last_work:{_TIME}} UTC"
    if indent + column > len(words):
        return f"{words} ^".rjust(indent + column + 1)
    return f"{' ' * (indent + column)}^ {words}" if indent + column + len(words) + 2 <= width else words
