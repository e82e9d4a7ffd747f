"""
The live view: slots, loss, recoveries with their phases in milliseconds, and events. A function of the scene.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import datetime

from rich.box import ROUNDED
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from healthd.clock import Clock
from healthd.core.api import Node, Pod, Recovery
from healthd.core.api.model import ENDED, Phase
from healthd.core.node.quarantine import read_record
from healthd.core.printable import printable
from healthd.core.recovery.members import attempt_of, index_of, is_terminal
from healthd.core.recovery.nodes.spares import is_spare, read_claim
from healthd.local.demo.outcome import DemoOutcome, explanations, outcome_lines
from healthd.local.demo.plot import plot_log
from healthd.local.demo.scene import ClusterSnapshot, Note, Scene, Tone
from healthd.local.demo.script import Script
from healthd.local.machine.slots import devices_of

SMALLEST = (76, 22)
"""Columns and lines that the view needs. On a smaller terminal, plain lines are better."""
WIDEST = 130
CLOSING_LINES = 6
"""Lines that the outcome needs below the last frame, with the prompt."""
REFRESH = 0.1
"""Seconds between two frames."""
SLOTS_WIDTH = 44
ATTEMPT_STYLES = ("cyan", "yellow", "green")
WHO_STYLE = {"kernel": "magenta", "agent": "yellow", "controller": "cyan", "trainer": "dim", "demo": "dim"}
TONE_STYLE = {Tone.PLAIN: "", Tone.BAD: "red", Tone.GOOD: "bold green"}
PHASES = [p for p in Phase if p not in ENDED and p is not Phase.HELD]


def may_show(console: Console) -> bool:
    """Whether *console* can show the view."""
    size = console.size
    big_enough = size.width >= SMALLEST[0] and size.height >= SMALLEST[1]
    return console.is_terminal and not console.is_dumb_terminal and big_enough and "utf" in console.encoding.lower()


def frame(scene: Scene, script: Script, now: datetime, *, width: int, height: int) -> RenderableType:
    """The whole frame, *width* columns and *height* lines."""
    top = max(script.total + 2, min(height // 3, 14))
    recoveries = 3 + max(2, len(scene.world.recoveries))
    left = _boxed(_attempt(scene), _slots(scene.world, script), SLOTS_WIDTH, top)
    right = _boxed(_training(scene, script), _loss(scene, script, width - SLOTS_WIDTH, top), width - SLOTS_WIDTH, top)
    below = height - 1 - top - recoveries
    return Group(
        _title(scene, script, now, width),
        Columns([left, right], padding=0),
        _boxed("recoveries, milliseconds in each phase", _recoveries(scene.world), width, recoveries),
        _boxed("what happened", Group(*_timeline(scene, below - 2)), width, below),
    )


def _boxed(title: str | Text, content: RenderableType, width: int, height: int) -> Panel:
    return Panel(
        content, title=title, title_align="left", width=width, height=height, box=ROUNDED, border_style="bright_black"
    )


def _title(scene: Scene, script: Script, now: datetime, width: int) -> Table:
    line = Table.grid(expand=False)
    line.width = width
    line.add_column(justify="left")
    line.add_column(justify="right")
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(" healthd demo", "bold").append(f"  {script.ranks} ranks, {script.spares} spares  ")
    if scene.warning:
        title.append(f" {scene.warning} ", "bold white on red")
    elif scene.waiting_for:
        title.append(f"next: {scene.waiting_for}", "dim")
    line.add_row(title, f"{(now - scene.began).total_seconds():.1f} s ")
    return line


def _slots(world: ClusterSnapshot, script: Script) -> Table:
    table = Table.grid(padding=(0, 1))
    for slot in script.slots:
        node = world.nodes.get(slot.name)
        mark, text, style = _slot_state(node, _pod_on(world, slot.name)) if node else ("·", "", "dim")
        pci = devices_of(node)[0].pci if node else slot.devices[0].pci
        table.add_row(Text(mark, style), slot.name, Text(pci, "dim"), Text(text, style, no_wrap=True))
    return table


def _pod_on(world: ClusterSnapshot, node: str) -> Pod | None:
    """The newest pod on *node*. Ended pods stay as objects."""
    pods = [pod for pod in world.pods if pod.spec.node_name == node]
    return max(pods, key=lambda pod: (attempt_of(pod), not is_terminal(pod)), default=None)


def _slot_state(node: Node, pod: Pod | None) -> tuple[str, str, str]:
    """A mark, a text, and its style."""
    record = read_record(node)
    if record:
        return "✖", f"{record.finding.rpartition('/')[2]}, quarantine", "red"
    if pod is not None and not is_terminal(pod):
        stand_in = ", was spare" if read_claim(node) else ""
        if pod.metadata.deletion_timestamp:
            return "◐", f"rank {index_of(pod)} stopping", "yellow"
        return "●", f"rank {index_of(pod)}{stand_in}", "green" if pod.status.phase == "Running" else "yellow"
    if is_spare(node):
        return "○", "spare", "dim"
    return "◌", "reserved" if read_claim(node) else "idle", "yellow"


def _training(scene: Scene, script: Script) -> Text:
    training = scene.training
    if not training.attempts:
        return Text("loss")
    loss = f" · loss {training.present.points[-1].loss:.4f}" if training.present.points else ""
    text = f"step {training.present.step} of {script.steps}{loss}"
    return Text(text, _attempt_style(max(training.attempts)))


def _attempt(scene: Scene) -> Text:
    attempts = scene.training.attempts
    if not attempts:
        return Text("slots")
    return Text.assemble("slots · ", (f"attempt {max(attempts)}", _attempt_style(max(attempts))))


def _loss(scene: Scene, script: Script, width: int, height: int) -> Group:
    curves = [
        ([(point.step, point.loss) for point in attempt.points], _attempt_style(number))
        for number, attempt in sorted(scene.training.attempts.items())
    ]
    return Group(*plot_log(curves, width=width - 4, height=height - 2, last_x=script.steps))


def _attempt_style(attempt: int) -> str:
    return ATTEMPT_STYLES[attempt % len(ATTEMPT_STYLES)]


def _recoveries(world: ClusterSnapshot) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("cause", no_wrap=True)
    for phase in PHASES:
        table.add_column(phase.value, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for recovery, explanation in zip(world.recoveries, explanations(world), strict=True):
        cells = [_phase_cell(recovery, phase, explanation.phases.get(phase.value)) for phase in PHASES]
        table.add_row(explanation.causes[0].kind.value, *cells, _end_mark(recovery))
    return table


def _phase_cell(recovery: Recovery, phase: Phase, ms: float | None) -> Text:
    if recovery.status.phase is phase:
        return Text("…", "bold yellow")
    return Text("" if ms is None else f"{ms:.1f}" if ms < 10 else f"{ms:.0f}")


def _end_mark(recovery: Recovery) -> Text:
    phase = recovery.status.phase
    if phase is Phase.RECOVERED:
        return Text("✔", "bold green")
    return Text(phase.value, "red") if phase in ENDED or phase is Phase.HELD else Text("")


def _timeline(scene: Scene, lines: int) -> Iterator[Text]:
    for note in scene.notes[-lines:] if lines > 0 else []:
        seconds = (note.at - scene.began).total_seconds()
        yield Text.assemble(
            (f"{seconds:6.2f}  ", "dim"),
            (f"{note.who:<11}", WHO_STYLE[note.who]),
            (printable(note.text), TONE_STYLE[note.tone]),
            no_wrap=True,
            overflow="ellipsis",
        )


def words(outcome: DemoOutcome) -> Iterator[Text]:
    """The outcome as lines below the last frame, which shows the phases."""
    for line in outcome_lines(outcome, phases=False):
        bad = line.startswith(("NOT AS EXPECTED", "WEIGHTS DIFFER"))
        good = line.startswith("Weights equal")
        yield Text(line, "bold red" if bad else "bold green" if good else "")


class LiveShow:
    """Keeps the view on a terminal up to date."""

    def __init__(self, script: Script, clock: Clock, console: Console) -> None:
        self._script = script
        self._clock = clock
        self._console = console

    def note(self, note: Note) -> None:
        """Nothing to do: the next frame shows it."""

    @contextlib.contextmanager
    def showing(self, scene: Scene) -> Iterator[None]:
        """Draw a frame ten times a second. The last frame stays."""
        with Live(console=self._console, auto_refresh=False, vertical_overflow="crop") as live:
            drawing = asyncio.get_running_loop().create_task(self._draw(live, scene))
            try:
                yield
            finally:
                drawing.cancel()
                live.update(self._picture(scene, leave=CLOSING_LINES), refresh=True)

    def end(self, outcome: DemoOutcome) -> None:
        """The outcome, below the last frame."""
        for line in words(outcome):
            self._console.print(line)

    async def _draw(self, live: Live, scene: Scene) -> None:
        while True:
            live.update(self._picture(scene), refresh=True)
            await asyncio.sleep(REFRESH)

    def _picture(self, scene: Scene, leave: int = 1) -> RenderableType:
        """The frame, with *leave* free lines of the terminal below it."""
        size = self._console.size
        width, height = min(size.width, WIDEST), max(size.height - leave, SMALLEST[1] - CLOSING_LINES)
        return frame(scene, self._script, self._clock.now(), width=width, height=height)
