"""When the rules about healthd itself fire: nothing answers, none leads, a view is old, a loop stands still."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tests.grafana.promtool import Promtool

pytestmark = pytest.mark.lab

UP_A, UP_B = (f'up{{job="healthd-controller",instance="{one}"}}' for one in "ab")
LEADING_A, LEADING_B = (f'healthd_leading{{instance="{one}"}}' for one in "ab")
LOOP = "healthd_loop_last_success_timestamp_seconds"
HEARD = 'healthd_informer_last_heard_timestamp_seconds{kind="pods",instance="a"}'
NOW = "0+60x60"
"""A time that is always now."""


def agents(down: int, of: int) -> dict[str, str]:
    """Agents of which the first *down* do not answer."""
    return {f'up{{job="healthd-agent",instance="{n}",node="gpu-{n}"}}': f"{int(n >= down)}x40" for n in range(of)}


def test_the_watchdog_always_fires(promtool: Promtool) -> None:
    assert promtool.fires('HealthdWatchdog{severity="none"}', {}, in_minutes=range(20)) == ""


def test_controllers_that_do_not_answer_page_within_a_minute(promtool: Promtool) -> None:
    series = {UP_A: "1x4 0x4 1x20", UP_B: "1x3 0x9 1x20"}

    assert promtool.fires('HealthdControllerAbsent{severity="page"}', series, in_minutes=range(6, 10)) == ""


def test_controllers_that_are_gone_page_as_those_that_do_not_answer(promtool: Promtool) -> None:
    assert promtool.fires("HealthdControllerAbsent", {UP_A: "1x4 stale"}, in_minutes=range(6, 20)) == ""


def test_one_controller_that_answers_is_enough(promtool: Promtool) -> None:
    series = {UP_A: "1x4 0x20", UP_B: "0x4 1x20"}

    assert promtool.fires("HealthdControllerAbsent", series, in_minutes=[]) == ""


def test_controllers_of_which_none_leads_page_after_a_minute_and_a_half(promtool: Promtool) -> None:
    series = {UP_A: "1x40", UP_B: "1x40", LEADING_A: "1x2 0x40", LEADING_B: "0x8 1x20"}

    assert promtool.fires('HealthdNoLeader{severity="page"}', series, in_minutes=range(5, 9)) == ""


def test_a_change_of_the_leader_is_not_the_lack_of_one(promtool: Promtool) -> None:
    series = {UP_A: "1x40", UP_B: "1x40", LEADING_A: "1x2 0x40", LEADING_B: "0x3 1x40"}

    assert promtool.fires("HealthdNoLeader", series, in_minutes=[]) == ""


def test_a_leader_whose_pod_is_gone_while_another_leads_is_no_lack_of_one(promtool: Promtool) -> None:
    series = {UP_A: "1x2 stale", UP_B: "1x40", LEADING_A: "1x2 stale", LEADING_B: "0x3 1x40"}

    assert promtool.fires("HealthdNoLeader", series, in_minutes=[]) == ""


def test_without_any_controller_the_lack_of_a_leader_is_not_reported_beside_it(promtool: Promtool) -> None:
    series = {UP_A: "1x2 0x40", LEADING_A: "1x2 stale", 'healthd_leading{instance="agent"}': "0x40"}

    assert promtool.fires("HealthdNoLeader", series, in_minutes=[]) == ""


def test_a_leader_that_hears_nothing_for_three_minutes_pages(promtool: Promtool) -> None:
    series = {LEADING_A: "1x40", HEARD: "60x9 600+60x20"}

    assert promtool.fires('HealthdCacheStale{severity="page"}', series, in_minutes=range(5, 10)) == ""


def test_a_leader_that_has_listed_nothing_yet_pages(promtool: Promtool) -> None:
    assert promtool.fires("HealthdCacheStale", {LEADING_A: "1x40", HEARD: "0x40"}, in_minutes=range(4, 20)) == ""


def test_a_leader_that_hears_once_a_minute_does_not_page(promtool: Promtool) -> None:
    assert promtool.fires("HealthdCacheStale", {LEADING_A: "1x40", HEARD: NOW}, in_minutes=[]) == ""


def test_the_old_view_of_a_controller_that_does_not_lead_does_not_page(promtool: Promtool) -> None:
    series = {LEADING_A: "0x40", LEADING_B: "1x40", HEARD: "0x40", HEARD.replace('"a"', '"b"'): NOW}

    assert promtool.fires("HealthdCacheStale", series, in_minutes=[]) == ""


def test_a_leader_whose_loop_stands_still_pages(promtool: Promtool) -> None:
    series = {LEADING_A: "1x40", HEARD: NOW, f'{LOOP}{{loop="controller",instance="a"}}': "0x2 180x5 540+60x20"}

    alert = 'HealthdControllerLoopStopped{instance="a",severity="page"}'
    assert promtool.fires(alert, series, in_minutes=range(7, 9)) == ""


def test_a_leader_whose_loop_never_succeeded_pages(promtool: Promtool) -> None:
    series = {LEADING_A: "0x2 1x40", HEARD: NOW}

    assert promtool.fires("HealthdControllerLoopStopped", series, in_minutes=range(4, 20)) == ""


def test_a_loop_that_waits_for_a_fresh_view_is_not_reported_beside_the_old_view(promtool: Promtool) -> None:
    series = {LEADING_A: "1x40", HEARD: "0x40", f'{LOOP}{{loop="controller",instance="a"}}': "0x40"}

    assert promtool.fires("HealthdControllerLoopStopped", series, in_minutes=[]) == ""


@pytest.mark.parametrize(("age", "minutes"), [(100, range(4, 20)), (181, [])])
def test_the_loop_is_reported_until_the_view_is_too_old_to_decide_on(
    promtool: Promtool, age: int, minutes: Collection[int]
) -> None:
    series = {LEADING_A: "1x40", HEARD: f"-{age}+60x40", f'{LOOP}{{loop="controller",instance="a"}}': "0x40"}

    assert promtool.fires("HealthdControllerLoopStopped", series, in_minutes=minutes) == ""


def test_the_loop_of_a_controller_that_leads_no_more_is_not_missed(promtool: Promtool) -> None:
    loop = f'{LOOP}{{loop="controller",instance="a"}}'
    series = {LEADING_A: "1x2 0x40", HEARD: NOW, loop: "0+60x2 stale", LEADING_B: "0x2 1x40"}
    series |= {loop.replace('"a"', '"b"'): "_x3 180+60x40"}

    assert promtool.fires("HealthdControllerLoopStopped", series, in_minutes=[]) == ""


@pytest.mark.parametrize("loop", ["fabric", "precheck"])
def test_a_side_loop_that_stands_still_is_reported_after_a_quarter_of_an_hour(promtool: Promtool, loop: str) -> None:
    series = {f'{LOOP}{{loop="{loop}",instance="a"}}': "0x17 1080+60x20"}

    alert = f'HealthdSideLoopStopped{{loop="{loop}",severity="notice"}}'
    assert promtool.fires(alert, series, in_minutes=range(16, 18), of=25) == ""


def test_a_side_loop_of_a_leader_that_is_gone_is_not_missed(promtool: Promtool) -> None:
    series = {f'{LOOP}{{loop="fabric",instance="a"}}': "0+60x3 stale"}

    assert promtool.fires("HealthdSideLoopStopped", series, in_minutes=[], of=30) == ""


def test_more_than_a_fifth_of_the_agents_that_do_not_answer_page(promtool: Promtool) -> None:
    assert promtool.fires('HealthdManyAgentsDown{severity="page"}', agents(3, 14), in_minutes=range(5, 20)) == ""


@pytest.mark.parametrize(("down", "of"), [(3, 15), (2, 4)])
def test_a_fifth_of_the_agents_or_two_do_not_page(promtool: Promtool, down: int, of: int) -> None:
    assert promtool.fires("HealthdManyAgentsDown", agents(down, of), in_minutes=[]) == ""


def test_agents_that_answer_again_end_the_page(promtool: Promtool) -> None:
    series = {name: values.replace("0x40", "0x8 1x40") for name, values in agents(3, 4).items()}

    assert promtool.fires("HealthdManyAgentsDown", series, in_minutes=range(5, 9)) == ""


def test_no_agent_at_all_pages(promtool: Promtool) -> None:
    assert promtool.fires("HealthdManyAgentsDown", {UP_A: "1x40"}, in_minutes=range(5, 20)) == ""


def test_an_agent_that_does_not_answer_is_reported_after_ten_minutes(promtool: Promtool) -> None:
    series = {'up{job="healthd-agent",node="gpu-1",instance="i"}': "1 0x13 1x20"}

    alert = 'HealthdAgentDown{node="gpu-1",severity="notice"}'
    assert promtool.fires(alert, series, in_minutes=range(11, 15)) == ""


def test_an_agent_that_is_replaced_is_not_reported(promtool: Promtool) -> None:
    series = {
        'up{job="healthd-agent",node="gpu-1",instance="i"}': "1x3 0x8 stale",
        'up{job="healthd-agent",node="gpu-1",instance="j"}': "_x12 1x20",
    }

    assert promtool.fires("HealthdAgentDown", series, in_minutes=[], of=30) == ""


def test_nodes_without_an_agent_are_reported_after_a_quarter_of_an_hour(promtool: Promtool) -> None:
    series = {"healthd_nodes_without_agent": "0 1x16 0x20"}

    assert promtool.fires('HealthdAgentMissing{severity="notice"}', series, in_minutes=range(16, 19), of=25) == ""


def test_nodes_without_an_agent_over_a_change_of_the_leader_are_the_same(promtool: Promtool) -> None:
    series = {
        'healthd_nodes_without_agent{instance="a"}': "2x9 0x20",
        'healthd_nodes_without_agent{instance="b"}': "0x10 2x20",
    }

    assert promtool.fires("HealthdAgentMissing", series, in_minutes=range(15, 25), of=25) == ""


@pytest.mark.parametrize(
    "stopped",
    [
        {f'{LOOP}{{loop="agent",instance="i",node="gpu-1"}}': "0x40"},
        {'healthd_watch_last_heard_timestamp_seconds{job="healthd-agent",instance="i",node="gpu-1"}': "0x40"},
    ],
    ids=["loop", "watch"],
)
def test_an_agent_that_reaches_no_api_server_is_reported(promtool: Promtool, stopped: dict[str, str]) -> None:
    alert = 'HealthdAgentLoopStopped{node="gpu-1",severity="notice"}'

    assert promtool.fires(alert, stopped, in_minutes=range(11, 20)) == ""


def test_an_agent_whose_loop_never_succeeded_is_reported(promtool: Promtool) -> None:
    series = {'up{job="healthd-agent",instance="i",node="gpu-1"}': "1x40"}

    assert promtool.fires("HealthdAgentLoopStopped", series, in_minutes=range(5, 20)) == ""


def test_an_agent_that_gets_through_again_is_not_reported(promtool: Promtool) -> None:
    series = {
        'up{job="healthd-agent",instance="i"}': "1x40",
        f'{LOOP}{{loop="agent",instance="i"}}': "0x7 480+60x40",
        'healthd_watch_last_heard_timestamp_seconds{job="healthd-agent",instance="i"}': NOW,
        'healthd_watch_last_heard_timestamp_seconds{job="healthd-controller",instance="a"}': "0x40",
    }

    assert promtool.fires("HealthdAgentLoopStopped", series, in_minutes=[]) == ""


def test_a_controller_that_does_not_answer_beside_one_that_does_is_reported(promtool: Promtool) -> None:
    series = {UP_A: "1 0x13 1x20", UP_B: "1x40"}

    alert = 'HealthdControllerReplicaDown{instance="a",severity="notice"}'
    assert promtool.fires(alert, series, in_minutes=range(11, 15)) == ""


def test_a_kind_without_rights_is_reported_after_ten_minutes_by_whichever_replica_leads(promtool: Promtool) -> None:
    series = {
        'healthd_kind_forbidden{kind="rayjobs",instance="a"}': "1x8 _x20",
        'healthd_kind_forbidden{kind="rayjobs",instance="b"}': "_x8 1x8 _x20",
    }

    assert promtool.fires('HealthdKindForbidden{kind="rayjobs"}', series, in_minutes=range(10, 18), of=25) == ""


def test_an_error_of_one_object_is_reported_for_a_quarter_of_an_hour(promtool: Promtool) -> None:
    series = {'healthd_object_errors_total{where="gang",instance="a"}': "0x2 1x40"}

    alert = 'HealthdObjectErrors{where="gang",severity="notice"}'
    assert promtool.fires(alert, series, in_minutes=range(3, 17), of=30) == ""


def test_errors_of_a_controller_that_started_anew_are_not_counted_twice(promtool: Promtool) -> None:
    series = {'healthd_object_errors_total{where="gang",instance="a"}': "3x5 0x40"}

    assert promtool.fires("HealthdObjectErrors", series, in_minutes=[]) == ""


def test_more_than_twenty_dropped_events_are_reported(promtool: Promtool) -> None:
    series = {'healthd_events_dropped_total{job="healthd-controller",instance="a"}': "0x20 21x40"}

    alert = 'HealthdEventsDropped{job="healthd-controller",severity="notice"}'
    assert promtool.fires(alert, series, in_minutes=range(21, 35), of=40) == ""


def test_a_few_dropped_events_are_not_reported(promtool: Promtool) -> None:
    series = {'healthd_events_dropped_total{job="healthd-controller",instance="a"}': "0x20 18x40"}

    assert promtool.fires("HealthdEventsDropped", series, in_minutes=[], of=40) == ""
