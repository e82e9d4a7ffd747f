"""When the rules about nodes fire, and when they are silent."""

from __future__ import annotations

import pytest

from tests.grafana.promtool import Promtool

pytestmark = pytest.mark.lab

SINCE = 'healthd_node_quarantined_since_timestamp_seconds{node="gpu-1"}'
BLIND, UNKNOWN = "healthd_source_blind", "healthd_node_verdict"


def blind(number: int, of: int) -> dict[str, str]:
    """The series of *of* nodes, of which *number* are blind."""
    unseen = {f'{BLIND}{{node="gpu-{n}",source="nvml"}}': "1x20" for n in range(number)}
    return unseen | {f'{UNKNOWN}{{node="gpu-{n}",verdict="unknown"}}': f"{int(n < number)}x20" for n in range(of)}


def findings(now: int, before: int = 0) -> dict[str, str]:
    """The series of nodes with an Xid 79: *before* of them for long, *now* of them after an hour and a half."""
    old = {f'healthd_findings{{node="gpu-{n}",rule="xid-79",severity="fatal"}}': "1x120" for n in range(before)}
    new = (f'healthd_findings{{node="gpu-{n}",rule="xid-79",severity="fatal"}}' for n in range(before, now))
    return old | dict.fromkeys(new, "_x90 1x60") | {f'{UNKNOWN}{{node="gpu-0",verdict="unknown"}}': "0x150"}


def test_a_node_pages_after_a_day_in_quarantine_until_it_is_back(promtool: Promtool) -> None:
    series = {SINCE: "-86100x9 stale"}

    alert = 'HealthdNodeQuarantinedLong{node="gpu-1",severity="page"}'
    assert promtool.fires(alert, series, in_minutes=range(6, 12)) == ""


def test_a_quarantine_that_another_leader_shows_goes_on_without_a_gap(promtool: Promtool) -> None:
    series = {
        SINCE.replace("}", ',instance="a"}'): "-86400x9 stale",
        SINCE.replace("}", ',instance="b"}'): "_x11 -86400x20",
    }

    assert promtool.fires("HealthdNodeQuarantinedLong", series, in_minutes=range(1, 20)) == ""


def test_a_budget_that_is_used_up_pages_after_five_minutes_until_there_is_room(promtool: Promtool) -> None:
    series = {
        'healthd_quarantined_nodes{instance="leader"}': "2x2 3x9 2x20",
        'healthd_quarantine_budget{instance="agent"}': "3x40",
        'healthd_quarantine_budget{instance="leader"}': "0x40",
        'healthd_quarantined_nodes{instance="agent"}': "0x40",
    }

    assert promtool.fires("HealthdBudgetUsedUp", series, in_minutes=range(8, 14)) == ""


def test_a_budget_that_no_agent_shows_is_not_used_up(promtool: Promtool) -> None:
    series = {"healthd_quarantined_nodes": "3x20", "healthd_quarantine_budget": "0x20"}

    assert promtool.fires("HealthdBudgetUsedUp", series, in_minutes=[]) == ""


def test_a_budget_of_one_is_used_up_by_one_node(promtool: Promtool) -> None:
    series = {"healthd_quarantined_nodes": "1x20", "healthd_quarantine_budget": "1x20"}

    assert promtool.fires("HealthdBudgetUsedUp", series, in_minutes=range(5, 20)) == ""


def test_a_budget_over_a_change_of_the_leader_is_still_used_up(promtool: Promtool) -> None:
    series = {
        'healthd_quarantined_nodes{instance="a"}': "3x9 0x20",
        'healthd_quarantined_nodes{instance="b"}': "0x10 3x20",
        'healthd_quarantine_budget{instance="agent"}': "3x40",
    }

    assert promtool.fires("HealthdBudgetUsedUp", series, in_minutes=range(5, 20)) == ""


def test_a_refused_quarantine_is_reported_for_a_quarter_of_an_hour(promtool: Promtool) -> None:
    series = {'healthd_quarantine_refused_total{node="gpu-1",instance="i"}': "0x2 1x40"}

    assert promtool.fires("HealthdQuarantineRefused", series, in_minutes=range(3, 17), of=30) == ""


def test_an_agent_that_starts_anew_has_refused_nothing(promtool: Promtool) -> None:
    series = {'healthd_quarantine_refused_total{node="gpu-1",instance="i"}': "4x5 0x30"}

    assert promtool.fires("HealthdQuarantineRefused", series, in_minutes=[]) == ""


def test_five_more_nodes_with_one_finding_than_an_hour_ago_are_reported(promtool: Promtool) -> None:
    assert (
        promtool.fires('HealthdFindingsRising{rule="xid-79"}', findings(7, 2), in_minutes=range(95, 110), of=110) == ""
    )


def test_findings_that_are_cleared_do_not_rise_any_more(promtool: Promtool) -> None:
    series = {name: "_x90 1x8 stale" if "xid" in name else values for name, values in findings(5).items()}

    assert promtool.fires("HealthdFindingsRising", series, in_minutes=range(95, 100), of=110) == ""


def test_four_more_nodes_with_one_finding_are_not_reported(promtool: Promtool) -> None:
    assert promtool.fires("HealthdFindingsRising", findings(6, 2), in_minutes=[], of=110) == ""


def test_a_finding_that_no_node_had_before_rises_from_zero(promtool: Promtool) -> None:
    assert promtool.fires("HealthdFindingsRising", findings(5), in_minutes=range(95, 110), of=110) == ""


def test_findings_that_stood_before_prometheus_knew_healthd_do_not_rise(promtool: Promtool) -> None:
    assert promtool.fires("HealthdFindingsRising", findings(9, 9), in_minutes=[], of=110) == ""


def test_a_source_without_readings_is_reported_after_five_minutes(promtool: Promtool) -> None:
    series = {f'{BLIND}{{node="gpu-1",source="nvml"}}': "_ 1x9 stale"}

    alert = 'HealthdNodeBlind{node="gpu-1",source="nvml",severity="notice"}'
    assert promtool.fires(alert, series, in_minutes=range(6, 12)) == ""


def test_a_source_that_answers_again_within_five_minutes_is_not_reported(promtool: Promtool) -> None:
    assert promtool.fires("HealthdNodeBlind", {f'{BLIND}{{node="n",source="nvml"}}': "1x2 stale"}, in_minutes=[]) == ""


def test_an_agent_that_starts_anew_does_not_begin_the_alert_anew(promtool: Promtool) -> None:
    series = {
        f'{BLIND}{{node="n",source="kernel log",pod="a"}}': "1x4 stale",
        f'{BLIND}{{node="n",source="kernel log",pod="b"}}': "_x6 1x20",
    }

    assert promtool.fires("HealthdNodeBlind", series, in_minutes=range(5, 20)) == ""


def test_more_than_a_fifth_of_all_nodes_that_are_blind_page(promtool: Promtool) -> None:
    assert promtool.fires('HealthdManyNodesBlind{severity="page"}', blind(3, 14), in_minutes=range(5, 20)) == ""


def test_many_blind_nodes_that_see_again_end_the_page(promtool: Promtool) -> None:
    series = {name: "1x8 stale" if name.startswith(BLIND) else values for name, values in blind(3, 4).items()}

    assert promtool.fires("HealthdManyNodesBlind", series, in_minutes=range(5, 10)) == ""


@pytest.mark.parametrize(("number", "of"), [(3, 15), (2, 4)])
def test_a_fifth_of_all_nodes_or_two_that_are_blind_do_not_page(promtool: Promtool, number: int, of: int) -> None:
    assert promtool.fires("HealthdManyNodesBlind", blind(number, of), in_minutes=[]) == ""


def test_lost_kernel_records_are_reported_for_a_quarter_of_an_hour(promtool: Promtool) -> None:
    series = {'healthd_kernel_records_lost_total{node="gpu-1",instance="i"}': "0x2 50x40"}

    assert promtool.fires("HealthdKernelRecordsLost", series, in_minutes=range(3, 17), of=30) == ""


def test_an_agent_that_lost_no_record_is_not_reported(promtool: Promtool) -> None:
    series = {'healthd_kernel_records_lost_total{node="gpu-1",instance="i"}': "50x40"}

    assert promtool.fires("HealthdKernelRecordsLost", series, in_minutes=[]) == ""
