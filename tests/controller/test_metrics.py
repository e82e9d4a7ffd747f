"""What the controller's metrics say of the world, and of a step of a recovery."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from healthd.controller.cluster_state import ClusterState
from healthd.controller.metrics import measure_move, measure_world
from healthd.core.api import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_RESTART,
    ChosenCheckpoint,
    RecoveryStatus,
    RejectedCheckpoint,
    TimelineEntry,
)
from healthd.core.api.model import Phase
from healthd.core.node.quarantine import Record, cordon_patch
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import Metrics
from tests.builders import a_job, a_node, a_recovery
from tests.fakes import START


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
