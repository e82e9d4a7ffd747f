"""
Record the terminal while the real demo runs: `python -m tests.recording` writes docs/demo.svg.

The picture moves by CSS alone, so it plays wherever an SVG image is shown; who prefers stillness sees its end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import re
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from rich.console import Console, Group, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import MONOKAI, TerminalTheme

from healthd.cli.commands.demo import present
from healthd.clock import Clock, SystemClock
from healthd.local.demo.outcome import DemoOutcome
from healthd.local.demo.scene import Note, Scene
from healthd.local.demo.script import Script
from healthd.local.demo.view import frame, words

EVERY = 0.2
"""Seconds between two looks."""
LINGER = 8.0
"""Seconds for which the end stays."""
CELL = (8.4, 18.0)
"""Pixels of one character."""
MARGIN = 12.0
FONT = "ui-monospace, SFMono-Regular, Menlo, 'DejaVu Sans Mono', Consolas, monospace"
BRAILLE = re.compile("[\u2800-\u28ff]")
DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
"""Column and row of each dot of a Braille character, from its lowest bit on."""

Row = tuple[tuple[str, Style | None], ...]


class Shot(NamedTuple):
    """What the terminal showed, from *second* on."""

    second: float
    rows: tuple[Row, ...]


class Recorder:
    """A show on a terminal without a reader."""

    def __init__(self, script: Script, clock: Clock, *, columns: int, lines: int) -> None:
        self.shots: list[Shot] = []
        self._script = script
        self._clock = clock
        self._size = (columns, lines)
        self._console = Console(
            file=io.StringIO(), width=columns, height=lines, force_terminal=True, color_system="truecolor"
        )
        self._scene: Scene | None = None

    def note(self, note: Note) -> None:
        """The next look sees it."""

    @contextlib.contextmanager
    def showing(self, scene: Scene) -> Iterator[None]:
        """Look at it until the block ends."""
        self._scene = scene
        looking = asyncio.get_running_loop().create_task(self._look(scene))
        try:
            yield
        finally:
            looking.cancel()

    def end(self, outcome: DemoOutcome) -> None:
        """The last picture, with the outcome below."""
        assert self._scene is not None
        last = list(words(outcome))
        columns, lines = self._size
        now = self._clock.now()
        picture = frame(self._scene, self._script, now, width=columns, height=lines - len(last))
        self._take(self._scene.began, now, Group(picture, *last))

    async def _look(self, scene: Scene) -> None:
        columns, lines = self._size
        while True:
            now = self._clock.now()
            self._take(scene.began, now, frame(scene, self._script, now, width=columns, height=lines))
            await asyncio.sleep(EVERY)

    def _take(self, began: datetime, now: datetime, picture: RenderableType) -> None:
        rows = self._console.render_lines(picture, pad=False)
        self.shots.append(Shot((now - began).total_seconds(), tuple(map(_row, rows))))


def _row(segments: Sequence[Segment]) -> Row:
    kept = Segment.simplify(segment for segment in segments if not segment.control)
    return tuple((segment.text, segment.style) for segment in kept)


def svg(shots: Sequence[Shot], *, columns: int, lines: int, theme: TerminalTheme = MONOKAI) -> str:
    """The moving picture. Every distinct row is written once and used wherever it was seen."""
    names: dict[Row, str] = {}
    for shot in shots:
        for row in shot.rows:
            names.setdefault(row, f"r{len(names)}")
    width, height = columns * CELL[0] + 2 * MARGIN, lines * CELL[1] + 2 * MARGIN
    begin, end = shots[0].second, shots[-1].second + LINGER
    stops = [(shot.second - begin) / (end - begin) * 100 for shot in shots]
    moves = "".join(f"{at:.3f}%{{transform:translateY({-n * height:.0f}px)}}" for n, at in enumerate(stops))
    still = f"translate(0,{-(len(shots) - 1) * height:.0f})"  # for viewers that do not animate: the end
    rules = (
        f"svg{{font:14px {FONT};fill:{theme.foreground_color.hex};white-space:pre}}"
        f"path{{stroke-width:2;stroke-linecap:round}}"
        f"#film{{animation:film {end - begin:.1f}s step-end infinite}}@keyframes film{{{moves}}}"
        f"@media (prefers-reduced-motion:reduce){{#film{{animation:none}}}}"
    )
    background = theme.background_color.hex
    size = f'viewBox="0 0 {width:.0f} {height:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" xml:space="preserve">',
            "<title>healthd demo, recorded</title>",
            f"<style>{rules}</style>",
            "<defs>",
            *(f'<g id="{name}">{_text(row, theme)}</g>' for row, name in names.items()),
            "</defs>",
            f'<rect width="100%" height="100%" rx="8" fill="{background}"/>',
            f'<g id="film" transform="{still}">',
            *(_picture(shot, names, n * height) for n, shot in enumerate(shots)),
            "</g></svg>",
            "",
        ]
    )


def _picture(shot: Shot, names: dict[Row, str], top: float) -> str:
    uses = (
        f'<use href="#{names[row]}" x="{MARGIN:.0f}" y="{top + MARGIN + n * CELL[1]:.0f}"/>'
        for n, row in enumerate(shot.rows)
        if any(text.strip() for text, _ in row)
    )
    return "".join(uses)


def _text(row: Row, theme: TerminalTheme) -> str:
    parts, column = [], 0
    for text, style in row:
        letters = BRAILLE.sub(" ", text)
        if word := letters.strip():
            left = column + len(letters) - len(letters.lstrip())
            place = f'x="{left * CELL[0]:.1f}" textLength="{len(word) * CELL[0]:.1f}"'
            parts.append(f'<text {place} y="14"{_look_of(style, theme)}>{escape(word)}</text>')
        if dots := _dots(text, column):
            colour = style.color.get_truecolor(theme) if style and style.color else theme.foreground_color
            parts.append(f'<path d="{dots}" stroke="{colour.hex}"/>')
        column += len(text)
    return "".join(parts)


def _dots(text: str, column: int) -> str:
    """The Braille characters of *text* drawn dot by dot: few fonts have them, and each in a width of its own."""
    return "".join(
        f"M{(column + at.start() + x / 2 + 0.25) * CELL[0]:.1f} {(y / 4 + 0.125) * CELL[1]:.1f}h.1"
        for at in BRAILLE.finditer(text)
        for bit, (x, y) in enumerate(DOTS)
        if ord(at[0]) >> bit & 1
    )


def _look_of(style: Style | None, theme: TerminalTheme) -> str:
    if style is None:
        return ""
    look = f" fill={quoteattr(style.color.get_truecolor(theme).hex)}" if style.color else ""
    look += ' font-weight="bold"' if style.bold else ""
    return look + (' opacity="0.6"' if style.dim else "")


def distinct(shots: Sequence[Shot]) -> list[Shot]:
    """Without those that show what the one before them shows."""
    return [shot for n, shot in enumerate(shots) if n == 0 or shot.rows != shots[n - 1].rows]


def main() -> int:
    """Play, record, write."""
    parser = argparse.ArgumentParser(description="Record the terminal while the real demo runs.")
    parser.add_argument("--out", type=Path, default=Path("docs/demo.svg"))
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--lines", type=int, default=30)
    args = parser.parse_args()
    script, clock = Script(), SystemClock()
    recorder = Recorder(script, clock, columns=args.columns, lines=args.lines)
    with tempfile.TemporaryDirectory(prefix="healthd-demo-") as root:
        outcome = asyncio.run(present(script, recorder, clock, Path(root), real_kmsg=False, kept=False))
    args.out.write_text(svg(distinct(recorder.shots), columns=args.columns, lines=args.lines))
    print(f"{args.out}: {args.out.stat().st_size / 1000:.0f} kB, {len(distinct(recorder.shots))} pictures")
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    raise SystemExit(main())
