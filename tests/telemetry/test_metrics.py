"""The metrics: their names are a contract, and the gauges follow what is gone from the world."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import generate_latest

from healthd.core.api import GangRef
from healthd.core.api.model import Blame, CauseKind, Finding, Hold, Phase, RepairAction, Severity, Verdict
from healthd.core.api.save_stats import Concern
from healthd.core.recovery.progress import NO_PROGRESS, Progress
from healthd.telemetry.metrics import (
    SHOWN_GANGS,
    GangGpuTime,
    GangSaves,
    GivenUpGang,
    HangingGang,
    HeldGang,
    Metrics,
    RecoveringGang,
    SlowRank,
)
from tests.core.gangs import a_root

NOW = datetime(2026, 1, 1, tzinfo=UTC)

CONTRACT = {
    "healthd_alert_dead_letters_total": {"sink"},
    "healthd_alert_messages_total": {"sink", "answer"},
    "healthd_alert_oldest_waiting_seconds": {"sink"},
    "healthd_alert_waiting": {"sink"},
    "healthd_api_errors_total": {"error"},
    "healthd_gangs_invalid": set(),
    "healthd_gangs_not_shown": set(),
    "healthd_object_errors_total": {"where"},
    "healthd_breaker_open": {"crowd"},
    "healthd_build_info": {"version"},
    "healthd_checkpoint_concern": {"namespace", "gang", "concern"},
    "healthd_checkpoint_interval_seconds": {"namespace", "gang"},
    "healthd_checkpoint_lost_work_seconds": {"namespace", "gang"},
    "healthd_checkpoint_rejected_total": set(),
    "healthd_checkpoint_saved_timestamp_seconds": {"namespace", "gang"},
    "healthd_checkpoint_valid": {"namespace", "gang"},
    "healthd_fabric_congested": {"rail"},
    "healthd_fabric_outliers": {"rail"},
    "healthd_findings": {"node", "device", "rule", "severity", "action"},
    "healthd_findings_raised_total": {"rule"},
    "healthd_gang_attempt": {"namespace", "gang"},
    "healthd_gang_effective_training_time_ratio": {"namespace", "gang"},
    "healthd_gang_lost_gpu_seconds": {"namespace", "gang"},
    "healthd_gpu_seconds_total": set(),
    "healthd_lost_gpu_seconds_total": {"cause", "phase"},
    "healthd_productive_gpu_seconds_total": set(),
    "healthd_recovery_detection_seconds_count": {"cause"},
    "healthd_unverified_gpu_seconds_total": set(),
    "healthd_waiting_gpu_seconds_total": {"state"},
    "healthd_gang_gave_up_timestamp_seconds": {"namespace", "gang"},
    "healthd_gang_held_since_timestamp_seconds": {"namespace", "gang", "reason"},
    "healthd_gang_recovery_since_timestamp_seconds": {"namespace", "gang", "phase"},
    "healthd_gang_silent_since_timestamp_seconds": {"namespace", "gang"},
    "healthd_gang_straggler_since_timestamp_seconds": {"namespace", "gang", "rank", "node"},
    "healthd_gang_step": {"namespace", "gang"},
    "healthd_heartbeat_heard_timestamp_seconds": set(),
    "healthd_heartbeats_total": {"result"},
    "healthd_incidents_open": {"severity"},
    "healthd_incidents_opened_total": {"severity"},
    "healthd_informer_last_heard_timestamp_seconds": {"kind"},
    "healthd_kernel_log_up": set(),
    "healthd_kind_forbidden": {"kind"},
    "healthd_nodes_below_peers": {"part"},
    "healthd_probe_up": {"source"},
    "healthd_kernel_records_lost_total": set(),
    "healthd_pods_sampled": set(),
    "healthd_pods_silent": set(),
    "healthd_kernel_records_total": set(),
    "healthd_loop_last_success_timestamp_seconds": {"loop"},
    "healthd_lost_steps_total": set(),
    "healthd_node_verdict": {"node", "verdict"},
    "healthd_node_quarantined_since_timestamp_seconds": {"node"},
    "healthd_nodes_without_agent": set(),
    "healthd_quarantine_budget": set(),
    "healthd_quarantine_refused_total": set(),
    "healthd_quarantine_seconds_count": set(),
    "healthd_quarantined_nodes": set(),
    "healthd_recoveries_held": {"reason"},
    "healthd_recoveries_total": {"cause", "outcome"},
    "healthd_recovery_in_progress": set(),
    "healthd_recovery_confirmed_seconds_count": set(),
    "healthd_remediation_attempts_total": {"rung", "hand", "outcome"},
    "healthd_remediation_nodes": {"phase"},
    "healthd_remediation_person_since_timestamp_seconds": {"node"},
    "healthd_remediation_return_seconds_count": {"by"},
    "healthd_recovery_phase_seconds_count": {"phase"},
    "healthd_recovery_running_seconds_count": set(),
    "healthd_leading": set(),
    "healthd_events_dropped_total": set(),
    "healthd_source_blind": {"node", "source"},
    "healthd_spare_check_failed": {"node"},
    "healthd_spare_check_passed_timestamp_seconds": {"node"},
    "healthd_spare_checks_in_doubt": set(),
    "healthd_spare_checks_total": {"outcome"},
    "healthd_spares": set(),
    "healthd_spares_claimed": set(),
    "healthd_spares_wanted": set(),
    "healthd_lemons": set(),
    "healthd_node_lemon_probability": {"node"},
    "healthd_spares_unfit": set(),
    "healthd_watch_last_heard_timestamp_seconds": set(),
}
"""Dashboards and alert rules stand on these: a change here is a change for users, and belongs in the changelog."""


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def series(metrics: Metrics, name: str) -> dict[str, float]:
    """Every series of that name: its labels as written -> its value."""
    lines = generate_latest(metrics.registry).decode().splitlines()
    found = (re.fullmatch(rf"{name}(\{{.*\}})? (\S+)", line) for line in lines)
    return {match[1] or "": float(match[2]) for match in found if match}


def a_finding(rule: str = "xid-79", *, cleared: bool = False) -> Finding:
    return Finding(
        id=f"0000:17:00.0/{rule}",
        device="0000:17:00.0",
        rule=rule,
        severity=Severity.FATAL,
        action=RepairAction.REBOOT_NODE,
        blame=Blame.DEVICE,
        message="The GPU has fallen off the bus.",
        raised_at=NOW,
        last_at=NOW,
        cleared_at=NOW if cleared else None,
    )


def test_the_names_and_labels_are_the_contract(metrics: Metrics) -> None:
    metrics.show_node("n1", Verdict.HEALTHY, [a_finding()], ["nvml"])
    metrics.show_gangs([a_root(progress=Progress(step=1))])
    metrics.show_saves([GangSaves("default", "g", NOW, timedelta(1), timedelta(1), [Concern.LATE])])
    metrics.show_gpu_time([GangGpuTime("default", "g", 0.9, 1000)])
    metrics.start_gpu_time_at_zero()
    metrics.show_fabric({3: 1}, {3: 0})
    metrics.show_below_peers({"gpus": 1})
    metrics.show_lemons({"n1": 0.9})
    metrics.findings_raised.labels("xid-79").inc()
    metrics.loop_succeeded("agent", NOW)
    metrics.start_alerts_at_zero(["oncall"], ["accepted"], ["page"])
    metrics.start_heartbeat_at_zero()
    for gauge in (metrics.alert_waiting, metrics.alert_oldest_waiting):
        gauge.labels("oncall").set(0)
    metrics.incidents_open.labels("page").set(0)
    metrics.api_errors.labels("Unavailable").inc()
    metrics.probe_up.labels("nvml").set(1)
    metrics.show_standstills([HeldGang("default", "g", Hold.SPARE, NOW)], [GivenUpGang("default", "h", NOW)])
    metrics.show_recovering([RecoveringGang("default", "i", Phase.STOPPING, NOW)])
    metrics.show_hanging([HangingGang("default", "j", NOW)])
    metrics.show_stragglers([SlowRank("default", "k", "3", "n1", NOW)])
    metrics.show_quarantined({"n1": NOW})
    metrics.know_hands([])
    metrics.show_remediations({}, {"n1": NOW})
    metrics.show_spare_checks(passed={"n1": NOW}, failed=["n2"], in_doubt=False)
    metrics.follow_informer("pods", NOW.timestamp)
    metrics.show_forbidden("rayjobs", True)

    exposed = {
        (sample.name, frozenset(sample.labels))
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name.startswith("healthd_") and not sample.name.endswith(("_bucket", "_sum"))
    }

    assert exposed == {(name, frozenset(labels)) for name, labels in CONTRACT.items()}


def test_every_metric_says_what_it_means(metrics: Metrics) -> None:
    described = {family.name: family.documentation for family in metrics.registry.collect()}

    assert all(text.endswith((".", "Unix time.")) for name, text in described.items() if name.startswith("healthd"))


def test_two_processes_in_one_do_not_share_numbers(metrics: Metrics) -> None:
    metrics.kernel_records.inc()

    assert series(Metrics(), "healthd_kernel_records_total") == {"": 0}


def test_counters_of_closed_sets_exist_before_the_first_event(metrics: Metrics) -> None:
    assert len(series(metrics, "healthd_recoveries_total")) == 21
    assert set(series(metrics, "healthd_recoveries_total").values()) == {0}


def test_a_node_has_exactly_one_verdict(metrics: Metrics) -> None:
    metrics.show_node("n1", Verdict.HEALTHY, [])
    metrics.show_node("n1", Verdict.UNHEALTHY, [])

    shown = series(metrics, "healthd_node_verdict")
    assert [labels for labels, value in shown.items() if value == 1] == ['{node="n1",verdict="unhealthy"}']
    assert len(shown) == len(Verdict)


def test_a_source_that_sees_again_is_not_shown_as_blind(metrics: Metrics) -> None:
    metrics.show_node("n1", Verdict.UNKNOWN, [], ["nvml", "edac"])
    metrics.show_node("n2", Verdict.UNKNOWN, [], ["nvml"])
    metrics.show_node("n1", Verdict.UNKNOWN, [], ["edac"])

    assert set(series(metrics, "healthd_source_blind")) == {
        '{node="n1",source="edac"}',
        '{node="n2",source="nvml"}',
    }


def test_a_finding_that_is_gone_or_cleared_is_not_shown(metrics: Metrics) -> None:
    metrics.show_node("n1", Verdict.UNHEALTHY, [a_finding("xid-79"), a_finding("xid-48")])
    metrics.show_node("n2", Verdict.UNHEALTHY, [a_finding("xid-79")])
    metrics.show_node("n1", Verdict.DEGRADED, [a_finding("xid-48", cleared=True), a_finding("xid-31")])

    shown = [re.findall(r'(?:node|rule)="([^"]*)"', labels) for labels in series(metrics, "healthd_findings")]
    assert sorted(shown) == [["n1", "xid-31"], ["n2", "xid-79"]]


def test_a_gang_that_is_gone_leaves_no_series(metrics: Metrics) -> None:
    metrics.show_gangs([a_root("gone", progress=Progress(step=10)), a_root("stays", attempt=3)])
    metrics.show_gangs([a_root("stays", attempt=3)])

    assert series(metrics, "healthd_gang_attempt") == {'{gang="stays",namespace="default"}': 3}
    assert series(metrics, "healthd_gang_step") == {}


def test_a_step_that_is_not_known_is_not_shown_as_a_number(metrics: Metrics) -> None:
    metrics.show_gangs([a_root("blind", progress=NO_PROGRESS), a_root("seen", progress=Progress(step=0))])

    assert series(metrics, "healthd_gang_step") == {'{gang="seen",namespace="default"}': 0}


def test_what_is_not_known_of_checkpoints_is_not_shown(metrics: Metrics) -> None:
    metrics.show_saves([GangSaves("default", "blind", saved=None, interval=None, lost=None, concerns=[])])

    assert series(metrics, "healthd_checkpoint_valid") == {'{gang="blind",namespace="default"}': 0}
    assert series(metrics, "healthd_checkpoint_lost_work_seconds") == {}


def test_a_rail_that_is_not_compared_any_more_leaves_no_series(metrics: Metrics) -> None:
    metrics.show_fabric({2: 5, 3: 1}, {2: 0, 3: 0})
    metrics.show_fabric({3: 0}, {3: 800})

    assert series(metrics, "healthd_fabric_outliers") == {'{rail="3"}': 0}
    assert series(metrics, "healthd_fabric_congested") == {'{rail="3"}': 800}


def test_a_recovery_is_counted_by_cause_and_outcome(metrics: Metrics) -> None:
    metrics.count_ended(CauseKind.HANG, Phase.GAVE_UP)

    counted = {labels for labels, value in series(metrics, "healthd_recoveries_total").items() if value}
    assert counted == {'{cause="hang",outcome="GaveUp"}'}


def test_a_tenant_has_a_bounded_number_of_series(metrics: Metrics) -> None:
    crowd = [a_root(f"evil-{number}") for number in range(SHOWN_GANGS + 7)]
    metrics.show_gangs([*crowd, a_root("train", ref=GangRef(kind="Job", name="train", namespace="good", uid="u"))])

    attempts = series(metrics, "healthd_gang_attempt")
    assert len(attempts) == SHOWN_GANGS + 1
    assert '{gang="train",namespace="good"}' in attempts
    assert series(metrics, "healthd_gangs_not_shown") == {"": 7}


def test_an_invalid_gang_is_counted_and_has_no_series(metrics: Metrics) -> None:
    metrics.show_gangs([a_root(invalid=("healthd.dev/min-nodes: 'x' is not a number",))])

    assert series(metrics, "healthd_gang_attempt") == {}
    assert series(metrics, "healthd_gangs_invalid") == {"": 1}


def test_a_gang_that_goes_on_leaves_no_series_of_its_standstill(metrics: Metrics) -> None:
    metrics.show_standstills([HeldGang("ml", "a", Hold.FENCE, NOW)], [GivenUpGang("ml", "b", NOW)])
    held = series(metrics, "healthd_gang_held_since_timestamp_seconds")
    metrics.show_standstills([], [])

    assert held == {'{gang="a",namespace="ml",reason="fence"}': NOW.timestamp()}
    assert series(metrics, "healthd_gang_held_since_timestamp_seconds") == {}
    assert series(metrics, "healthd_gang_gave_up_timestamp_seconds") == {}


def test_a_recovery_that_moves_on_leaves_no_series_of_its_last_phase(metrics: Metrics) -> None:
    metrics.show_recovering([RecoveringGang("ml", "a", Phase.STOPPING, NOW)])
    metrics.show_recovering([RecoveringGang("ml", "a", Phase.FENCING, NOW)])

    found = series(metrics, "healthd_gang_recovery_since_timestamp_seconds")
    assert found == {'{gang="a",namespace="ml",phase="Fencing"}': NOW.timestamp()}


def test_a_tenant_has_a_bounded_number_of_series_of_standstills(metrics: Metrics) -> None:
    metrics.show_standstills([HeldGang("evil", f"g{n}", Hold.SPARE, NOW) for n in range(SHOWN_GANGS + 7)], [])

    assert len(series(metrics, "healthd_gang_held_since_timestamp_seconds")) == SHOWN_GANGS


def test_a_tenant_has_a_bounded_number_of_series_of_gpu_time(metrics: Metrics) -> None:
    metrics.show_gpu_time([GangGpuTime("evil", f"g{n}", 0.9, 1000) for n in range(SHOWN_GANGS + 7)])

    assert len(series(metrics, "healthd_gang_effective_training_time_ratio")) == SHOWN_GANGS
    assert len(series(metrics, "healthd_gang_lost_gpu_seconds")) == SHOWN_GANGS


def test_all_gpu_time_is_the_sum_of_its_parts(metrics: Metrics) -> None:
    metrics.count_gpu_time({"productive": 60_000, "no_spare/xid": 3_000, "queued": 2_000, "unverified": 1_000})

    assert series(metrics, "healthd_gpu_seconds_total") == {"": 66}
    assert series(metrics, "healthd_lost_gpu_seconds_total") == {'{cause="xid",phase="no_spare"}': 3}
    assert series(metrics, "healthd_waiting_gpu_seconds_total") == {'{state="queued"}': 2}


def test_who_leads_no_more_shows_nothing_of_the_cluster_and_of_the_loops(metrics: Metrics) -> None:
    metrics.leading.set(1)
    metrics.loop_succeeded("controller", NOW)
    metrics.show_quarantined({"n1": NOW})
    metrics.show_spares(free=1, unfit=1, claimed=2)
    metrics.show_standstills([HeldGang("ml", "a", Hold.FENCE, NOW)], [])
    metrics.forget_the_world()

    assert series(metrics, "healthd_loop_last_success_timestamp_seconds") == {}
    assert series(metrics, "healthd_node_quarantined_since_timestamp_seconds") == {}
    assert series(metrics, "healthd_gang_held_since_timestamp_seconds") == {}
    assert [series(metrics, f"healthd_spares{end}") for end in ("", "_unfit", "_claimed")] == [{"": 0}] * 3
