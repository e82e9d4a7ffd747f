"""What the demo tells of a change, and how the story waits for one."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec

from healthd.core.api import ANNOTATION_QUARANTINE, Node, RecoveryStatus, RejectedCheckpoint, TimelineEntry
from healthd.core.api.model import Blame, Phase, RepairAction
from healthd.core.node.quarantine import Record
from healthd.local.demo.scene import ClusterSnapshot, Note, Scene, Tone, Who, changes
from tests.builders import a_finding, a_node, a_nodehealth, a_recovery
from tests.fakes import START


def at(seconds: float) -> TimelineEntry:
    return TimelineEntry(phase=Phase.DETECTED, at=START + timedelta(seconds=seconds), message="found")


def a_quarantined_node() -> Node:
    record = Record(finding="0000:3b:00.0/xid-79", message="lost", since=START)
    return a_node("node-a", annotations={ANNOTATION_QUARANTINE: msgspec.json.encode(record).decode()})


def reported(before: ClusterSnapshot, after: ClusterSnapshot) -> list[str]:
    return [note.text for note in changes(before, after)]


def test_without_a_change_there_are_no_notes() -> None:
    world = ClusterSnapshot(nodes={"node-a": a_quarantined_node()}, recoveries=(a_recovery(),))

    assert changes(world, world) == []


def test_a_quarantine_is_reported_once_with_its_own_time() -> None:
    notes = changes(
        ClusterSnapshot(nodes={"node-a": a_node("node-a")}), ClusterSnapshot(nodes={"node-a": a_quarantined_node()})
    )

    assert notes == [Note(START, Who.AGENT, "node-a is quarantined for 0000:3b:00.0/xid-79", Tone.BAD)]


def test_a_fault_of_the_application_stays_in_service() -> None:
    finding = a_finding(
        "xid-31", action=RepairAction.CHECK_APP, blame=Blame.APPLICATION, quarantines=False, message="MMU fault"
    )
    world = ClusterSnapshot(health={"node-a": a_nodehealth("node-a", findings=[finding])})

    assert reported(ClusterSnapshot(), world) == ["node-a stays in service: MMU fault"]


def test_each_new_entry_of_a_timeline_is_reported() -> None:
    old = a_recovery(status=RecoveryStatus(timeline=[at(0)]))
    new = a_recovery(status=RecoveryStatus(timeline=[at(0), at(1), at(2)]))

    assert reported(ClusterSnapshot(recoveries=(old,)), ClusterSnapshot(recoveries=(new,))) == [
        "Detected: found",
        "Detected: found",
    ]


def test_refused_checkpoints_are_reported_with_the_choice() -> None:
    status = RecoveryStatus(
        timeline=[TimelineEntry(phase=Phase.RESERVING, at=START, message="step 10")],
        rejected=[RejectedCheckpoint(path="/c/20", step=20, reason="torn write")],
    )

    assert reported(ClusterSnapshot(), ClusterSnapshot(recoveries=(a_recovery(status=status),))) == [
        "step 20 refused: torn write",
        "Reserving: step 10",
    ]


async def test_the_demo_waits_until_the_scene_shows_it() -> None:
    scene = Scene(START, show=lambda _: None)
    waiting = asyncio.create_task(scene.until("a step", lambda s: s.training.present.step == 1))
    await asyncio.sleep(0)

    assert scene.waiting_for == "a step"
    scene.ingest_line(0, "step 1 loss 0.5", START)
    await waiting
    assert scene.waiting_for == ""


def test_paths_are_reported_from_the_demo_on() -> None:
    shown: list[Note] = []
    scene = Scene(START, show=shown.append, root="/tmp/demo-1")
    scene.note(Note(START, Who.DEMO, "took /tmp/demo-1/checkpoints/step-10"))

    assert [note.text for note in shown] == ["took checkpoints/step-10"]
