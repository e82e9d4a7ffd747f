"""`healthd run --live`: a picture of the run in place of lines: how it stands, what happened, what rank 0 says."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from healthd.cli.runs import status as run_status
from healthd.clock import Clock
from healthd.core.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

EVERY = 0.5
"""Seconds between two frames."""
KEPT = 200
"""Lines that are kept. A terminal shows fewer."""
TAIL = 64 * 1024
"""Bytes read from the end of a log."""


ENDS = frozenset({"run.completed", "run.gave_up", "run.stopped", "run.done"})
"""
Events that start the end of a run. The picture cuts long lines, so lines from there on are printed below it.
"""


class Happened(io.TextIOBase):
    """What healthd says, kept for the next picture; as a filter of the log it learns when the end begins."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=KEPT)
        self.end: list[str] = []
        """The lines since the end of the run started."""
        self._is_over = False

    def write(self, text: str) -> int:
        """Keep its lines."""
        self.lines.extend(text.splitlines())
        if self._is_over:
            self.end.append(text)
        return len(text)

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record passes."""
        event = record.msg.get("event") if isinstance(record.msg, dict) else ""
        self._is_over = self._is_over or event in ENDS
        return True


@contextlib.asynccontextmanager
async def live(state: Path, happened: Happened, clock: Clock, console: Console) -> AsyncIterator[None]:
    """Within it the run that keeps its *state* there is shown on *console*; the last picture stays."""
    from rich.live import Live  # imported here: pipes and programs need no terminal library

    async def picture() -> RenderableType:
        status = await run_status.read_state(state, clock)
        status_lines = list(run_status.lines(status)) if status else []
        size = console.size
        return frame(status_lines, list(happened.lines), last_lines(state), width=size.width, height=size.height - 1)

    async def draw() -> None:
        while True:
            shown.update(await picture(), refresh=True)
            await asyncio.sleep(EVERY)

    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as shown:
        drawing = asyncio.create_task(draw(), name="live view")
        try:
            yield
        finally:
            drawing.cancel()
            await asyncio.gather(drawing, return_exceptions=True)
            shown.update(await picture(), refresh=True)


def frame(
    status: Sequence[str], happened: Sequence[str], output: Sequence[str], *, width: int, height: int
) -> RenderableType:
    """The picture, *width* columns and *height* lines."""
    from rich.console import Group

    top = min(len(status) + 1, max(4, height // 2))
    middle = min(len(happened) + 2, max(4, (height - top) // 2 + 1))
    bottom = max(3, height - top - middle)
    title = status[0] if status else "the run begins"
    return Group(
        _boxed(title, status[1 : top - 1], width, top),
        _boxed("what happened", happened[2 - middle :], width, middle),
        _boxed("rank 0", output[2 - bottom :], width, bottom),
    )


def _boxed(title: str, lines: Sequence[str], width: int, height: int) -> RenderableType:
    from rich.panel import Panel
    from rich.text import Text

    text = Text("\n").join(Text(printable(line), no_wrap=True, overflow="ellipsis") for line in lines)
    text.no_wrap, text.overflow = True, "ellipsis"
    return Panel(text, title=Text(printable(title)), title_align="left", width=width, height=height)


def last_lines(state: Path) -> list[str]:
    """The end of what rank 0 has written in its newest attempt."""
    logs = [path for path in (state / "logs").glob("attempt-*/rank-0.log") if path.parent.name[8:].isdecimal()]
    if not logs:
        return []
    try:
        with max(logs, key=lambda path: int(path.parent.name[8:])).open("rb") as file:
            file.seek(max(0, file.seek(0, io.SEEK_END) - TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.rpartition("\r")[2] for line in text.rstrip("\r\n").split("\n")][-KEPT:]
