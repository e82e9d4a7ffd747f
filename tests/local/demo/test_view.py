"""The live view shows the scene, and never more than the terminal holds."""

from __future__ import annotations

import io
from datetime import timedelta

import msgspec
import pytest
from rich.console import Console

from healthd.core.api import ANNOTATION_QUARANTINE, ObjectMeta
from healthd.core.node.quarantine import Record
from healthd.local.demo.plot import plot_log
from healthd.local.demo.scene import ClusterSnapshot, Note, Scene, Who
from healthd.local.demo.script import Script
from healthd.local.demo.view import frame, may_show
from healthd.local.machine.slots import node_of
from tests.builders import a_pod, a_recovery
from tests.fakes import START


def a_scene() -> Scene:
    scene = Scene(START, show=lambda _: None)
    nodes = {slot.name: node_of(slot) for slot in Script().slots}
    record = msgspec.json.encode(Record(finding="0000:22:00.0/xid-79", message="lost", since=START)).decode()
    bad = nodes["slot-1"]
    notes = {**bad.metadata.annotations, ANNOTATION_QUARANTINE: record}
    nodes["slot-1"] = msgspec.structs.replace(bad, metadata=ObjectMeta(name="slot-1", annotations=notes))
    scene.see(ClusterSnapshot(nodes=nodes, pods=(a_pod(node="slot-0", index=0),), recoveries=(a_recovery(),)))
    for step in range(1, 30):
        scene.ingest_line(0, f"step {step} loss {3 / step:.4f}", START)
    for number in range(100):
        scene.note(Note(START, Who.KERNEL, f"line {number} " + "x" * 300))
    return scene


def shown(scene: Scene, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    picture = frame(scene, Script(), START + timedelta(seconds=3), width=width, height=height)
    return ["".join(segment.text for segment in line) for line in console.render_lines(picture, pad=False)]


@pytest.mark.parametrize(("width", "height"), [(76, 22), (80, 23), (120, 39), (130, 60)])
def test_it_fills_the_terminal_exactly(width: int, height: int) -> None:
    lines = shown(a_scene(), width, height)

    assert len(lines) == height
    assert max(map(len, lines)) <= width


def test_it_shows_each_slot_and_what_became_of_it() -> None:
    text = "\n".join(shown(a_scene(), 80, 24))

    assert "slot-0 0000:11:00.0 rank 0" in text
    assert "slot-1 0000:22:00.0 xid-79, quarantine" in text
    assert "slot-5 0000:66:00.0 spare" in text


def test_it_shows_the_newest_that_happened() -> None:
    text = "\n".join(shown(a_scene(), 80, 24))

    assert "line 99 " in text
    assert "line 0 " not in text


def test_a_warning_stays_on_the_screen() -> None:
    scene = a_scene()
    scene.warning = "THE REAL KERNEL LOG"

    assert "THE REAL KERNEL LOG" in shown(scene, 80, 24)[0]


@pytest.mark.parametrize(
    ("encoding", "kind", "width", "fits"),
    [
        ("utf-8", "xterm", 100, True),
        ("utf-8", "xterm", 60, False),
        ("utf-8", "dumb", 100, False),
        ("ascii", "xterm", 100, False),
    ],
)
def test_a_terminal_that_cannot_show_it_is_distinguished(encoding: str, kind: str, width: int, fits: bool) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=out, width=width, height=40, force_terminal=True, _environ={"TERM": kind})

    assert may_show(console) is fits


def test_a_falling_curve_falls() -> None:
    rows = plot_log([([(1, 10.0), (2, 1.0), (3, 0.1)], "")], width=6, height=3, last_x=3)

    first, last = rows[0].plain.strip(), rows[-1].plain.strip()
    assert rows[0].plain.index(first) < rows[-1].plain.index(last)


def test_no_point_is_an_empty_plot() -> None:
    assert [row.plain for row in plot_log([([], "")], width=4, height=2, last_x=3)] == ["    ", "    "]
