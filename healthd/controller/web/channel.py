"""
Viewers who see the same share one channel: a snapshot, and the changes since.

A new viewer gets the snapshot and the changes after it, so a hundred viewers cost one encoding. A viewer that does not
keep up loses what waits for it, and gets the snapshot again: it skips states, and ends with the newest one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime

from healthd.controller.web.frames import Frame
from healthd.core.report.listing import gangs, recoveries
from healthd.core.report.listing.gangs import GangState
from healthd.core.report.page.nodes import NodeState
from healthd.core.report.page.state import Head, PageState, Scope, Surroundings, changes, head, visible

BEHIND_BYTES = 256 * 1024
"""Uncompressed bytes that may wait for one viewer. The frames are shared: a viewer holds references alone."""
LOG_BYTES = 64 * 1024
"""Changes after a snapshot, compressed, from which on a new snapshot is made for the next viewer."""
ALIVE = Frame("alive", {})
WORDS = {
    "gangStates": list(GangState),
    "nodeStates": list(NodeState),
    "gangColumns": [(each.title, each.wide) for each in gangs.COLUMNS],
    "recoveryColumns": [(each.title, each.wide) for each in recoveries.COLUMNS],
}
"""What the page calls things: as the terminal does, and in the same order."""


class Viewer:
    """The events that one viewer has yet to get."""

    def __init__(self, again: Callable[[], Iterable[Frame]]) -> None:
        """*again* gives the frames from which a viewer learns everything."""
        self._again = again
        self._waiting: deque[Frame] = deque()
        self._bytes = 0
        self._is_behind = True
        self._news = asyncio.Event()
        self._news.set()

    def offer(self, frame: Frame) -> None:
        """Queue *frame*. When too much waits, all of it is dropped for the snapshot."""
        self._bytes += len(frame.plain)
        if self._bytes > BEHIND_BYTES:
            self._is_behind = True
            self._waiting.clear()
        elif not self._is_behind:
            self._waiting.append(frame)
        self._news.set()

    async def next(self, alive_after: float) -> list[Frame]:
        """What there is to send. A sign of life, where nothing happened for *alive_after* seconds."""
        try:
            async with asyncio.timeout(alive_after):
                await self._news.wait()
        except TimeoutError:
            return [ALIVE]
        frames = list(self._again()) if self._is_behind else list(self._waiting)
        self._waiting.clear()
        self._news.clear()
        self._bytes, self._is_behind = 0, False
        return frames


class Channel:
    """What viewers with one *scope* see."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._state = PageState()
        self._head: Head | None = None
        self._around: Surroundings | None = None
        self._now: datetime | None = None
        self._log: list[Frame] = []
        self._log_bytes = 0
        self.viewers: set[Viewer] = set()

    def join(self) -> Viewer:
        """A new viewer. It gets everything first."""
        viewer = Viewer(self._everything)
        self.viewers.add(viewer)
        return viewer

    def publish(self, state: PageState, around: Surroundings, now: datetime) -> None:
        """Send each viewer what changed."""
        seen = visible(state, self._scope)
        top = head(seen, around, self._scope)
        changed = changes(self._state, seen)
        is_first, head_changed = self._head is None, top != self._head
        self._state, self._head, self._now = seen, top, now
        if is_first or not (changed or head_changed):
            return
        frame = Frame("change", {"now": now, **({"head": top} if head_changed else {}), **changed})
        self._remember(frame)
        for viewer in self.viewers:
            viewer.offer(frame)

    def _remember(self, frame: Frame) -> None:
        if not self._log:
            return
        self._log.append(frame)
        self._log_bytes += len(frame.packed)
        if self._log_bytes > LOG_BYTES:
            self._log.clear()

    def _everything(self) -> list[Frame]:
        """A snapshot and the changes after it; a new snapshot where there is none."""
        if not self._log:
            self._log = [Frame("state", _snapshot(self._state, self._head, self._now))]
            self._log_bytes = 0
        return list(self._log)


def _snapshot(state: PageState, top: Head | None, now: datetime | None) -> dict[str, object]:
    tables = {"nodes": state.nodes, "gangs": state.gangs, "recoveries": state.recoveries, "incidents": state.incidents}
    return {"now": now, "head": top, "words": WORDS, **tables}
