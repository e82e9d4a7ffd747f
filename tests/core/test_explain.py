"""What an explanation says: every number and reason on record, in words that a tired person understands."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest

from healthd.core.explain import explain
from healthd.core.explain_text import duration, harmless, row, tell
from healthd.core.model import CauseKind, Evidence, Phase
from healthd.core.objects import (
    ANNOTATION_QUARANTINE,
    Attempt,
    Cause,
    ChosenCheckpoint,
    FencedPod,
    Recovery,
    RecoveryStatus,
    RejectedCheckpoint,
    TimelineEntry,
)
from healthd.core.quarantine import Record
from tests.builders import a_cause, a_finding, a_node, a_nodehealth, a_recovery
from tests.fakes import START

TORN = "model-00004-of-00004.safetensors: 1,204 of 4,096 bytes (torn write)"
LINE = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def at(ms: int) -> datetime:
    return START + timedelta(milliseconds=ms)


def timeline(*entries: tuple[Phase, int, str]) -> list[TimelineEntry]:
    return [TimelineEntry(phase=phase, at=at(ms), message=message) for phase, ms, message in entries]


def a_status(phase: Phase, entries: list[TimelineEntry], cause: Cause, **fields: object) -> RecoveryStatus:
    return msgspec.structs.replace(
        RecoveryStatus(phase=phase, timeline=entries, message=entries[-1].message, causes=[cause]), **fields
    )


HARDWARE = a_cause(message="Xid 79 on 0000:3b:00.0", at=at(4), node="node-a", finding="0000:3b:00.0/xid-79")

RECOVERED = a_status(
    Phase.RECOVERED,
    timeline(
        (Phase.DETECTED, 6, "hardware: Xid 79 on 0000:3b:00.0"),
        (Phase.STOPPING, 8, "stop first, diagnose later"),
        (Phase.STARTING, 220, "node-s in place of node-a"),
        (Phase.CONFIRMING, 420, "2 members run"),
        (Phase.RECOVERED, 1506, "training moved on to step 20"),
    ),
    HARDWARE,
    checkpoint=ChosenCheckpoint(path="/ckpt/step-10", step=10, format="safetensors"),
    rejected=[RejectedCheckpoint(path="/ckpt/step-20", step=20, reason=TORN)],
    step_at_fault=20,
    pods=[FencedPod(name="train-0-x", uid="u0", node="node-a", proof="the kubelet of node-a reports it")],
    replacements={"node-a": "node-s"},
    attempts=[Attempt(number=1, checkpoint=ChosenCheckpoint(path="/ckpt/step-10", step=10), placement={"0": "node-s"})],
    confirmed_step=20,
)


def a_story(status: RecoveryStatus = RECOVERED) -> Recovery:
    return a_recovery(cause=status.causes[0], status=status)


def the_world() -> tuple[dict[str, object], dict[str, object]]:
    record = Record(finding=HARDWARE.finding, message=HARDWARE.message, since=HARDWARE.at)
    node = a_node("node-a", annotations={ANNOTATION_QUARANTINE: msgspec.json.encode(record).decode()})
    seen = Evidence(source="kmsg", at=at(0), text=LINE, sequence=1234)
    return {"node-a": node}, {"node-a": a_nodehealth("node-a", findings=[a_finding(evidence=[seen])])}


def words(recovery: Recovery, *, width: int = 200) -> str:
    nodes, health = the_world()
    sections = tell(explain(recovery, nodes, health), width=width)  # type: ignore[arg-type]  # dicts are invariant
    return "\n".join(line for section in sections for line in [section.title, *section.lines])


@pytest.mark.parametrize(
    "fact",
    [
        "train-1: Recovered after 1.50 s (Job train in default, began 2026-01-01 00:00:00 UTC)",
        f"00:00:00.000  kmsg record 1234: {LINE}",
        "taken out of service for 0000:3b:00.0/xid-79, 4.0 ms after the kernel's own time stamp",
        "the node is to blame",
        f"refused step 20, /ckpt/step-20: {TORN}",
        "resume from step 10, /ckpt/step-10 (safetensors, verified); at least 10 steps to do again",
        "node-s in place of node-a",
        "00:00:00.008     212 ms  Stopping    stop first, diagnose later",
        "attempt 1 was told to resume from step 10; ranks: 0 on node-s",
        "train-0-x: the kubelet of node-a reports it",
        "step 20 was seen and verified, beyond step 10 that was loaded",
        "node-a is in quarantine since 00:00:00.004, for 0000:3b:00.0/xid-79; once it is repaired, say so",
        "`healthd repair node-a`, or its annotation healthd.dev/repaired set to the time",
    ],
)
def test_a_recovery_is_told_with_every_fact_on_record(fact: str) -> None:
    assert fact in words(a_story())


def test_each_phase_has_its_milliseconds() -> None:
    story = explain(a_story(), {}, {})

    assert story.phases == {"Detected": 2.0, "Stopping": 212.0, "Starting": 200.0, "Confirming": 1086.0}
    assert story.ms == 1500.0


def test_a_phase_entered_twice_has_the_sum_of_both() -> None:
    entries = timeline(
        (Phase.STOPPING, 0, ""), (Phase.FENCING, 10, ""), (Phase.STOPPING, 30, ""), (Phase.FENCING, 35, "")
    )

    story = explain(a_story(a_status(Phase.FENCING, entries, HARDWARE)), {}, {})

    assert story.phases == {"Stopping": 15.0, "Fencing": 20.0}


def test_a_recovery_that_is_not_over_has_no_end() -> None:
    story = explain(a_story(a_status(Phase.STOPPING, timeline((Phase.STOPPING, 0, "stop")), HARDWARE)), {}, {})

    assert (story.ended, story.ms, story.timeline[-1].ms) == (None, None, None)


def test_a_recovery_that_nobody_has_begun_is_told_by_its_cause() -> None:
    assert "Xid 79 on 0000:3b:00.0" in words(a_recovery(cause=HARDWARE))


def test_a_held_recovery_says_what_it_waits_for() -> None:
    entries = timeline((Phase.DETECTED, 0, ""), (Phase.HELD, 5, "no spare for node-a"))
    status = a_status(Phase.HELD, entries, HARDWARE, held_in=Phase.RESERVING)

    told = words(a_story(status))

    assert "train-1: Held in Reserving" in told
    assert "it waits, and goes on by itself when this changes: no spare for node-a" in told


def test_a_fault_of_the_software_needs_no_spare() -> None:
    crash = a_cause(CauseKind.SOFTWARE, message="train-2 exited with code 1")
    attempt = Attempt(number=2, checkpoint=ChosenCheckpoint(), placement={})
    status = a_status(Phase.STARTING, timeline((Phase.STARTING, 0, "")), crash, attempts=[attempt])

    told = words(a_story(status))

    assert "a fault of the software" in told
    assert "no spare was needed" in told


def test_a_pod_without_proof_stands_out() -> None:
    pods = [FencedPod(name="train-0-x", uid="u", node="node-a")]
    told = words(a_story(a_status(Phase.FENCING, timeline((Phase.FENCING, 0, "")), HARDWARE, pods=pods)))

    assert "train-0-x: NOT PROVEN to be gone" in told


def test_no_line_is_wider_than_asked() -> None:
    assert max(len(line) for line in words(a_story(), width=80).splitlines()[1:]) <= 80


def test_what_came_from_outside_cannot_move_the_cursor() -> None:
    assert harmless("a\x1b[2Jb\n\u202e") == "a\ufffd[2Jb\ufffd\ufffd"


def test_one_line_tells_a_recovery() -> None:
    assert row(a_story()) == (
        "train-1", "train", "Recovered", "hardware", "node-a", "10", "1.50 s", "training moved on to step 20",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0.42, "0.4 ms"), (212.3, "212 ms"), (2413, "2.41 s"), (200_000, "3 min 20 s"), (3_600_000, "60 min 0 s")],
)
def test_durations_are_short(ms: float, text: str) -> None:
    assert duration(ms) == text
