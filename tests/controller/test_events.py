"""What is reported of a recovery, and on which objects."""

from __future__ import annotations

from healthd.controller.events import EventText, events_of
from healthd.core.api import Node, RecoveryStatus, RejectedCheckpoint, TimelineEntry
from healthd.core.api.model import Phase
from healthd.gangs import ADAPTERS
from tests.builders import a_cause, a_node, a_recovery
from tests.fakes import START

NODES = {name: a_node(name, uid=f"uid-{name}") for name in ("bad", "spare")}


def entry(phase: Phase, message: str = "so it is") -> TimelineEntry:
    """That *phase* was entered."""
    return TimelineEntry(phase=phase, at=START, message=message)


def reported(before: RecoveryStatus, after: RecoveryStatus, nodes: dict[str, Node] = NODES) -> list[EventText]:
    """The events of a step."""
    return list(events_of(a_recovery(status=before), a_recovery(status=after), ADAPTERS["Job"], nodes.get))


def on(events: list[EventText]) -> list[tuple[str, str, str]]:
    """Kind and name of the object, and the reason."""
    return [(event.about.kind, event.about.name, event.reason) for event in events]


def test_a_phase_is_reported_on_the_recovery_and_on_the_job() -> None:
    events = reported(RecoveryStatus(), RecoveryStatus(phase=Phase.CONFIRMING, timeline=[entry(Phase.CONFIRMING)]))

    assert on(events) == [("Recovery", "train-1", "Confirming"), ("Job", "train", "RecoveryConfirming")]


def test_what_only_healthd_cares_for_is_not_reported_on_the_job() -> None:
    events = reported(RecoveryStatus(), RecoveryStatus(phase=Phase.FENCING, timeline=[entry(Phase.FENCING)]))

    assert on(events) == [("Recovery", "train-1", "Fencing")]


def test_a_node_gets_an_event_when_a_gang_leaves_it() -> None:
    after = RecoveryStatus(phase=Phase.STOPPING, timeline=[entry(Phase.STOPPING)], causes=[a_cause(node="bad")])
    events = reported(RecoveryStatus(), after)

    assert ("Node", "bad", "GangStopping") in on(events)
    assert events[-1].about.uid == "uid-bad"


def test_a_spare_gets_an_event_when_a_gang_takes_it() -> None:
    after = RecoveryStatus(phase=Phase.STARTING, timeline=[entry(Phase.STARTING)], replacements={"bad": "spare"})

    assert ("Node", "spare", "GangStarting") in on(reported(RecoveryStatus(), after))


def test_a_node_that_is_gone_gets_no_event() -> None:
    after = RecoveryStatus(phase=Phase.STOPPING, timeline=[entry(Phase.STOPPING)], causes=[a_cause(node="bad")])

    assert all(kind != "Node" for kind, _, _ in on(reported(RecoveryStatus(), after, nodes={})))


def test_each_reason_of_a_hold_is_reported_though_the_timeline_has_one_entry() -> None:
    before = RecoveryStatus(phase=Phase.HELD, timeline=[entry(Phase.HELD, "no spare")])
    after = RecoveryStatus(phase=Phase.HELD, timeline=[entry(Phase.HELD, "no checkpoint")])

    first = reported(before, after)[0]

    assert (first.kind, first.message) == ("Warning", "no checkpoint")


def test_a_write_that_enters_no_phase_reports_nothing() -> None:
    status = RecoveryStatus(phase=Phase.STOPPING, timeline=[entry(Phase.STOPPING)])

    assert reported(status, status) == []


def test_a_checkpoint_that_is_refused_is_reported_once() -> None:
    torn = [RejectedCheckpoint(path="/step_9", step=9, reason="torn")]
    first = reported(RecoveryStatus(phase=Phase.CHOOSING), RecoveryStatus(phase=Phase.CHOOSING, rejected=torn))
    again = reported(RecoveryStatus(rejected=torn), RecoveryStatus(rejected=torn))

    assert [(event.reason, event.message) for event in first] == [("CheckpointRejected", "/step_9: torn")]
    assert again == []
