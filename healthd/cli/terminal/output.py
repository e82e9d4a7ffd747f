"""
The edge of the terminal: what users, nodes and files wrote is printed here and nowhere else, with its controls escaped.

A terminal obeys what it is shown: text may change its title, hide lines, or type. Whatever is printed goes through
`guarded`, which lets letters and the ends of lines through. Colours are for `console` alone, which escapes text before
it colours it; a `Console` of rich's own would show its colours as escaped letters, and do no harm.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, TextIO, cast

from healthd.core.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

KEPT = "\n\t"
"""Characters that end lines and columns."""


class _Guarded:
    """A stream that writes no character sequence that controls a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.beneath = stream

    def write(self, text: str) -> int:
        self.beneath.write(printable(text, keep=KEPT))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.beneath, name)


@contextmanager
def guarded() -> Iterator[None]:
    """Within it everything that is printed is escaped."""
    with ExitStack() as stack:
        if sys.stdout:  # None when the caller closed it
            stack.enter_context(redirect_stdout(cast("TextIO", _Guarded(sys.stdout))))
        yield


def complain(text: str) -> None:
    """A line for standard error, where logs in colour go, too."""
    print(printable(text, keep=KEPT), file=sys.stderr)


def console(*, width: int | None = None, stderr: bool = False, highlight: bool = False) -> Console:
    """One of rich's, whose text is escaped before it is coloured."""
    from rich.console import Console  # imported here: programs need no terminal library

    from healthd.cli.terminal.escaping import Escaping

    stream = sys.stderr if stderr else sys.stdout
    made = Console(file=getattr(stream, "beneath", stream), width=width, highlight=highlight)
    made.push_render_hook(Escaping())
    return made
