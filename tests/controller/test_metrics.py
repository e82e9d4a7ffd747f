"""What the controller's metrics say of the world, and of a step of a recovery."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.metrics import measure_agents, measure_detection, measure_hangs, measure_move, measure_world
from healthd.core.api import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_CLAIM,
    ANNOTATION_RESTART,
    ANNOTATION_SILENCE,
    ChosenCheckpoint,
    NodeHealth,
    NodeHealthStatus,
    RecoveryStatus,
    RejectedCheckpoint,
    TimelineEntry,
)
from healthd.core.api.health import MemberState, PodRhythm
from healthd.core.api.model import CauseKind, Phase
from healthd.core.hang.silence import Silence
from healthd.core.node.quarantine import Record, cordon_patch
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import Metrics
from tests.builders import a_cause, a_job, a_node, a_nodehealth, a_pod, a_recovery
from tests.fakes import START

HOUR = timedelta(hours=1)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def value(metrics: Metrics, name: str) -> float | None:
    """The series of that name that has no labels."""
    return metrics.registry.get_sample_value(name)


def a_census(*objects: Any) -> ClusterState:
    """What was noticed of a cluster with these *objects*."""
    cluster_state = ClusterState(ADAPTERS)
    for number, obj in enumerate(objects, start=1):
        meta = msgspec.structs.replace(obj.metadata, resource_version=str(number), uid=obj.metadata.name)
        cluster_state.upsert(msgspec.structs.replace(obj, metadata=meta))
    return cluster_state


def move(metrics: Metrics, before: RecoveryStatus, after: RecoveryStatus) -> None:
    """One step of a recovery."""
    measure_move(metrics, a_recovery(status=before), a_recovery(status=after))


def test_a_node_counts_as_quarantined_while_its_record_stands(metrics: Metrics) -> None:
    record = Record(finding="0000:3b:00.0/xid-79", message="off the bus", since=START)
    annotations = cordon_patch(a_node("bad"), record)["metadata"]["annotations"]
    cluster_state = a_census(a_node("good"), a_node("bad", annotations=annotations))
    measure_world(metrics, cluster_state)
    assert value(metrics, "healthd_quarantined_nodes") == 1

    cluster_state.remove(a_node("bad"), 3)
    measure_world(metrics, cluster_state)

    assert value(metrics, "healthd_quarantined_nodes") == 0


def test_only_gangs_that_healthd_watches_over_are_shown(metrics: Metrics) -> None:
    watched = a_job("watched", annotations={ANNOTATION_RESTART: "enabled", ANNOTATION_ATTEMPT: "2"})
    measure_world(metrics, a_census(watched, a_job("other", annotations={ANNOTATION_ATTEMPT: "1"})))

    shown = [sample.labels["gang"] for metric in metrics.gang_attempt.collect() for sample in metric.samples]
    assert shown == ["watched"]


def test_each_refused_checkpoint_counts_once_also_where_the_recovery_is_held_for_it(metrics: Metrics) -> None:
    torn = [RejectedCheckpoint(path=f"/step_{step}", step=step, reason="torn") for step in (9, 8)]
    choosing = RecoveryStatus(phase=Phase.CHOOSING)
    held = RecoveryStatus(phase=Phase.HELD, held_in=Phase.CHOOSING, rejected=torn)
    move(metrics, choosing, held)
    move(metrics, held, RecoveryStatus(phase=Phase.RESERVING, rejected=torn))

    assert value(metrics, "healthd_checkpoint_rejected_total") == 2


@pytest.mark.parametrize(
    ("checkpoint", "lost"),
    [
        (ChosenCheckpoint(path="/step_6", step=6), 4),
        (ChosenCheckpoint(), 10),
        (ChosenCheckpoint(path="/last.pt"), 0),
    ],
)
@pytest.mark.parametrize("held", [False, True])
def test_the_steps_that_must_be_done_again_are_counted(
    metrics: Metrics, checkpoint: ChosenCheckpoint, lost: int, held: bool
) -> None:
    before = RecoveryStatus(phase=Phase.CHOOSING)
    if held:
        before = RecoveryStatus(phase=Phase.HELD, held_in=Phase.CHOOSING)
    move(metrics, before, RecoveryStatus(phase=Phase.RESERVING, checkpoint=checkpoint, step_at_fault=10))

    assert value(metrics, "healthd_lost_steps_total") == lost


def test_held_recoveries_are_shown_by_what_they_wait_for_until_they_go_on(metrics: Metrics) -> None:
    def shown() -> dict[str, float]:
        samples = [sample for metric in metrics.recoveries_held.collect() for sample in metric.samples]
        return {sample.labels["reason"]: sample.value for sample in samples if sample.value}

    held = [a_recovery(f"r{n}", status=RecoveryStatus(phase=Phase.HELD, held_in=Phase.RESERVING)) for n in range(2)]
    measure_world(metrics, a_census(*held))
    before = shown()
    measure_world(metrics, a_census(held[0], a_recovery("r1", status=RecoveryStatus(phase=Phase.STARTING))))

    assert (before, shown()) == ({"spare": 2}, {"spare": 1})


def test_the_time_until_it_runs_is_measured_apart_from_the_time_until_it_is_confirmed(metrics: Metrics) -> None:
    ran, saved = START + timedelta(seconds=5), START + timedelta(minutes=4)
    entries = [TimelineEntry(phase=Phase.DETECTED, at=START), TimelineEntry(phase=Phase.CONFIRMING, at=ran)]
    starting = RecoveryStatus(phase=Phase.STARTING, phase_since=START, timeline=entries[:1])
    running = RecoveryStatus(phase=Phase.CONFIRMING, phase_since=ran, timeline=entries)
    done = [*entries, TimelineEntry(phase=Phase.RECOVERED, at=saved)]
    confirmed = RecoveryStatus(phase=Phase.RECOVERED, phase_since=saved, timeline=done)

    move(metrics, starting, running)
    move(metrics, running, confirmed)

    assert value(metrics, "healthd_recovery_running_seconds_sum") == 5
    assert value(metrics, "healthd_recovery_confirmed_seconds_sum") == 240


def test_the_time_until_a_recovery_is_opened_is_measured_once(metrics: Metrics) -> None:
    fault = msgspec.structs.replace(a_cause(CauseKind.SOFTWARE), at=START)
    entries = [
        TimelineEntry(phase=phase, at=START + timedelta(seconds=7)) for phase in (Phase.DETECTED, Phase.STOPPING)
    ]
    new, opened, stopping = (
        a_recovery(cause=fault, status=RecoveryStatus(timeline=entries[:number])) for number in range(3)
    )
    measure_detection(metrics, new, opened)
    measure_detection(metrics, opened, stopping)

    assert samples(metrics, "healthd_recovery_detection_seconds_sum")["software",] == 7
    assert samples(metrics, "healthd_recovery_detection_seconds_count")["software",] == 1


def samples(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Every series of that name: the values of its labels, by the names of these -> its value."""
    found = [sample for family in metrics.registry.collect() for sample in family.samples if sample.name == name]
    return {tuple(value for _, value in sorted(sample.labels.items())): sample.value for sample in found}


def a_recovery_of(name: str, phase: Phase, held_in: Phase | None = None) -> Any:
    """A recovery of the Job *name*, in *phase* since `START`."""
    status = RecoveryStatus(phase=phase, held_in=held_in, phase_since=START)
    gang = a_job(name)
    gang = msgspec.structs.replace(gang, metadata=msgspec.structs.replace(gang.metadata, uid=name))
    return a_recovery(f"{name}-1", gang=gang, status=status)


def test_a_gang_on_hold_is_named_with_what_it_waits_for_and_since_when(metrics: Metrics) -> None:
    measure_world(metrics, a_census(a_recovery_of("train", Phase.HELD, Phase.FENCING)))

    shown = samples(metrics, "healthd_gang_held_since_timestamp_seconds")
    assert shown == {("train", "default", "fence"): START.timestamp()}


def test_a_gang_that_was_given_up_is_named_until_a_person_starts_it(metrics: Metrics) -> None:
    def shown(*, suspended: bool) -> dict[tuple[str, ...], float]:
        job = a_job("train", annotations={ANNOTATION_RESTART: "enabled"}, suspend=suspended)
        measure_world(metrics, a_census(job, a_recovery_of("train", Phase.GAVE_UP)))
        return samples(metrics, "healthd_gang_gave_up_timestamp_seconds")

    assert shown(suspended=True) == {("train", "default"): START.timestamp()}
    assert shown(suspended=False) == {}


def test_a_gang_that_hangs_is_named_with_since_when_while_its_agents_say_so(metrics: Metrics) -> None:
    silence = Silence(since=START, seen_at=START, allowed=12.0, period=2.0, members=())
    notes = {ANNOTATION_RESTART: "enabled", ANNOTATION_SILENCE: msgspec.json.encode(silence).decode()}
    job = a_job("train", annotations=notes, uid="train")
    rank = a_pod("train-0", node="n1", owner=job, labels={"batch.kubernetes.io/job-name": "train"})
    rhythm = PodRhythm(uid="train-0", state=MemberState.SILENT, since=START, allowed=12.0)
    status = NodeHealthStatus(rhythms=[rhythm], seen_at=START)

    def shown(*reports: NodeHealth) -> dict[tuple[str, ...], float]:
        measure_hangs(metrics, a_census(a_node("n1"), job, rank, *reports), START + timedelta(minutes=1))
        return samples(metrics, "healthd_gang_silent_since_timestamp_seconds")

    assert shown(a_nodehealth("n1", status=status)) == {("train", "default"): START.timestamp()}
    assert shown() == {}


def test_a_node_in_quarantine_is_named_with_since_when(metrics: Metrics) -> None:
    record = Record(finding="0000:3b:00.0/xid-79", message="off the bus", since=START)
    annotations = cordon_patch(a_node("bad"), record)["metadata"]["annotations"]
    measure_world(metrics, a_census(a_node("bad", annotations=annotations), a_node("good")))

    shown = samples(metrics, "healthd_node_quarantined_since_timestamp_seconds")
    assert shown == {("bad",): START.timestamp()}


def test_spares_that_cannot_be_used_and_those_in_use_are_counted_apart(metrics: Metrics) -> None:
    claimed = a_node("claimed", spare=True, annotations={ANNOTATION_CLAIM: "{}"})
    cordoned = a_node("cordoned", spare=True, unschedulable=True)
    measure_world(metrics, a_census(a_node("free", spare=True), cordoned, claimed, a_node("no-spare")))

    assert value(metrics, "healthd_spares") == 2
    assert value(metrics, "healthd_spares_unfit") == 1
    assert value(metrics, "healthd_spares_claimed") == 1


def test_a_node_counts_as_without_an_agent_when_none_reported_in_three_hours(metrics: Metrics) -> None:
    now = START + timedelta(hours=4)
    silent = a_nodehealth("silent", status=NodeHealthStatus(seen_at=START))
    alive = a_nodehealth("alive", status=NodeHealthStatus(seen_at=now))
    measure_agents(metrics, a_census(*map(a_node, ("silent", "alive", "never")), silent, alive), now)

    assert value(metrics, "healthd_nodes_without_agent") == 2


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (RecoveryStatus(phase=Phase.STOPPING, phase_since=START), START),
        (RecoveryStatus(phase=Phase.RESERVING, phase_since=START, not_before=START + HOUR), START + HOUR),
        (RecoveryStatus(phase=Phase.STARTING, phase_since=START + HOUR, not_before=START), START + HOUR),
        (RecoveryStatus(phase=Phase.HELD, held_in=Phase.RESERVING, phase_since=START), None),
        (RecoveryStatus(phase=Phase.RECOVERED, phase_since=START), None),
    ],
)
def test_a_recovery_is_in_its_phase_since_it_entered_it_or_may_start(
    metrics: Metrics, status: RecoveryStatus, expected: datetime | None
) -> None:
    measure_world(metrics, a_census(a_recovery(status=status)))

    labels = {"namespace": "default", "gang": "train", "phase": status.phase.value}
    found = metrics.registry.get_sample_value("healthd_gang_recovery_since_timestamp_seconds", labels)
    assert found == (expected.timestamp() if expected else None)
