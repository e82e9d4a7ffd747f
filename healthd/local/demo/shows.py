"""
Displays of the demo that need no terminal: plain lines for people and logs, JSON lines for programs.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol, TextIO

import msgspec

from healthd.local.demo.outcome import DemoOutcome, outcome_lines
from healthd.local.demo.scene import Note, Scene


class Show(Protocol):
    """What the demo shows while it runs, and at its end."""

    def note(self, note: Note) -> None:
        """Show one event."""
        ...

    def showing(self, scene: Scene) -> AbstractContextManager[None]:
        """Show *scene* while the block runs."""
        ...

    def end(self, outcome: DemoOutcome) -> None:
        """Show the outcome."""
        ...


class LinesShow:
    """One line for each event, at once."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._began: datetime | None = None

    def note(self, note: Note) -> None:
        """One line: seconds since the start, who, what."""
        self._began = self._began or note.at
        seconds = (note.at - self._began).total_seconds()
        self._print(f"{seconds:7.3f}  {note.who:<10}  {note.text}")

    @contextlib.contextmanager
    def showing(self, scene: Scene) -> Iterator[None]:
        """Nothing to do: lines are shown at once."""
        self._began = scene.began
        yield

    def end(self, outcome: DemoOutcome) -> None:
        """The outcome. Its last line says whether the weights are equal."""
        self._print("")
        for line in outcome_lines(outcome):
            self._print(line)

    def _print(self, line: str) -> None:
        print(line, file=self._out, flush=True)


class JsonShow:
    """One object per line. The last one is the outcome and has `weights_equal`. The others have `at` and `text`."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def note(self, note: Note) -> None:
        """`at` is a time (RFC 3339, UTC). `who` is the actor."""
        self._print({"at": note.at.isoformat(), "who": note.who.value, "text": note.text})

    @contextlib.contextmanager
    def showing(self, scene: Scene) -> Iterator[None]:  # noqa: ARG002 - the protocol's signature
        """Nothing to do: lines are shown at once."""
        yield

    def end(self, outcome: DemoOutcome) -> None:
        """The outcome."""
        self._print(msgspec.to_builtins(outcome))

    def _print(self, value: object) -> None:
        print(json.dumps(value), file=self._out, flush=True)
