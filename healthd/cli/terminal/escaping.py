"""What makes a console of rich escape text before it colours it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment

from healthd.core.printable import printable


class Escaping(RenderHook):
    """Everything that is printed goes through it."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """The same, escaped."""
        return [_Escaped(each) for each in renderables]


class _Escaped:
    def __init__(self, inside: ConsoleRenderable) -> None:
        self._inside = inside

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._inside, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text, keep="\n"))
