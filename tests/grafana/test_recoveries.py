"""When the rules about recoveries and spares fire, and when they are silent."""

from __future__ import annotations

import pytest

from healthd.core.api.model import Hold
from tests.grafana.promtool import Promtool

pytestmark = pytest.mark.lab

HELD = "healthd_gang_held_since_timestamp_seconds"
GAVE_UP = "healthd_gang_gave_up_timestamp_seconds"
GANG = 'namespace="ml",gang="llama"'


@pytest.mark.parametrize("reason", Hold)
def test_a_gang_that_is_held_pages_after_five_minutes_until_it_goes_on(promtool: Promtool, reason: Hold) -> None:
    series = {f'{HELD}{{{GANG},reason="{reason}"}}': "_ 60x9 stale"}

    alert = f'HealthdGangHeld{{{GANG},reason="{reason}",severity="page"}}'
    assert promtool.fires(alert, series, in_minutes=range(7, 13)) == ""


def test_a_gang_that_is_held_for_five_minutes_is_not_reported(promtool: Promtool) -> None:
    series = {f'{HELD}{{{GANG},reason="spare"}}': "_ 60x4 stale"}

    assert promtool.fires("HealthdGangHeld", series, in_minutes=[]) == ""


def test_a_hold_that_another_leader_shows_goes_on_without_a_gap(promtool: Promtool) -> None:
    series = {
        f'{HELD}{{{GANG},reason="fence",instance="a"}}': "60x9 stale",
        f'{HELD}{{{GANG},reason="fence",instance="b"}}': "_x11 60x20",
    }

    assert promtool.fires("HealthdGangHeld", series, in_minutes=range(7, 25), of=25) == ""


def test_a_prometheus_that_starts_anew_knows_how_long_a_gang_is_held(promtool: Promtool) -> None:
    series = {f'{HELD}{{{GANG},reason="fence"}}': "_x15 60x20"}

    assert promtool.fires("HealthdGangHeld", series, in_minutes=range(15, 20)) == ""


def test_a_gang_that_was_given_up_pages_at_once_until_a_person_starts_it(promtool: Promtool) -> None:
    series = {f"{GAVE_UP}{{{GANG}}}": "_x2 120x5 stale"}

    assert promtool.fires(f"HealthdGangGaveUp{{{GANG}}}", series, in_minutes=range(2, 10)) == ""


def test_a_gang_that_was_given_up_stays_so_over_a_change_of_the_leader(promtool: Promtool) -> None:
    series = {
        f'{GAVE_UP}{{{GANG},instance="a"}}': "0x9 stale",
        f'{GAVE_UP}{{{GANG},instance="b"}}': "_x11 0x20",
    }

    assert promtool.fires("HealthdGangGaveUp", series, in_minutes=range(20)) == ""


def test_two_restarts_in_half_an_hour_without_a_new_step_are_reported(promtool: Promtool) -> None:
    attempt, step = f"healthd_gang_attempt{{{GANG}}}", f"healthd_gang_step{{{GANG}}}"
    series = {attempt: "0x4 1x4 2x60", step: "100x70"}

    assert promtool.fires("HealthdRestartsWithoutProgress", series, in_minutes=range(10, 34), of=40) == ""


def test_one_restart_without_a_new_step_is_not_reported(promtool: Promtool) -> None:
    attempt, step = f"healthd_gang_attempt{{{GANG}}}", f"healthd_gang_step{{{GANG}}}"
    series = {attempt: "0x4 1x60", step: "100x70"}

    assert promtool.fires("HealthdRestartsWithoutProgress", series, in_minutes=[]) == ""


def test_restarts_after_which_the_gang_trains_on_are_not_reported(promtool: Promtool) -> None:
    attempt, step = f"healthd_gang_attempt{{{GANG}}}", f"healthd_gang_step{{{GANG}}}"
    series = {attempt: "0x4 1x4 2x60", step: "100x8 110x60"}

    assert promtool.fires("HealthdRestartsWithoutProgress", series, in_minutes=[], of=30) == ""


def test_the_attempts_of_a_new_leader_are_no_new_restarts(promtool: Promtool) -> None:
    series = {
        f'healthd_gang_attempt{{{GANG},instance="a"}}': "5x9 stale",
        f'healthd_gang_attempt{{{GANG},instance="b"}}': "_x10 5x20",
        f'healthd_gang_step{{{GANG},instance="a"}}': "100x9 stale",
        f'healthd_gang_step{{{GANG},instance="b"}}': "_x10 100x20",
    }

    assert promtool.fires("HealthdRestartsWithoutProgress", series, in_minutes=[]) == ""


@pytest.mark.parametrize("crowd", ["nodes", "restarts"])
def test_an_open_breaker_pages_after_three_minutes_until_it_closes(promtool: Promtool, crowd: str) -> None:
    series = {f'healthd_breaker_open{{crowd="{crowd}"}}': "0x2 1x5 0x20"}

    assert promtool.fires(f'HealthdBreakerOpen{{crowd="{crowd}"}}', series, in_minutes=range(6, 10)) == ""


def test_a_breaker_that_was_open_for_a_moment_is_not_reported(promtool: Promtool) -> None:
    series = {'healthd_breaker_open{crowd="nodes"}': "0x2 1 0x20"}

    assert promtool.fires("HealthdBreakerOpen", series, in_minutes=[]) == ""


def test_an_open_breaker_that_another_leader_shows_is_the_same(promtool: Promtool) -> None:
    series = {
        'healthd_breaker_open{crowd="nodes",instance="a"}': "1x5 0x20",
        'healthd_breaker_open{crowd="nodes",instance="b"}': "0x6 1x20",
    }

    assert promtool.fires("HealthdBreakerOpen", series, in_minutes=range(3, 20)) == ""


def test_a_gang_that_healthd_cannot_read_is_reported_after_ten_minutes(promtool: Promtool) -> None:
    series = {"healthd_gangs_invalid": "0 1x14 0x20"}

    assert promtool.fires("HealthdGangInvalid", series, in_minutes=range(11, 17), of=20) == ""


def test_a_gang_that_is_corrected_within_ten_minutes_is_not_reported(promtool: Promtool) -> None:
    series = {"healthd_gangs_invalid": "0 1x6 0x20"}

    assert promtool.fires("HealthdGangInvalid", series, in_minutes=[]) == ""


def test_no_usable_spare_pages_after_ten_minutes_until_there_is_one(promtool: Promtool) -> None:
    series = {"healthd_spares": "1x2 0x15 1x20", "healthd_spares_unfit": "0x40", "healthd_spares_claimed": "0x2 1x40"}

    assert promtool.fires("HealthdNoSpare", series, in_minutes=range(14, 19), of=30) == ""


def test_spares_that_are_all_unfit_are_none(promtool: Promtool) -> None:
    series = {"healthd_spares": "2x40", "healthd_spares_unfit": "1x4 2x40", "healthd_spares_claimed": "0x40"}

    assert promtool.fires("HealthdNoSpare", series, in_minutes=range(15, 30), of=30) == ""


def test_one_usable_spare_is_enough(promtool: Promtool) -> None:
    series = {"healthd_spares": "2x40", "healthd_spares_unfit": "1x40", "healthd_spares_claimed": "3x40"}

    assert promtool.fires("HealthdNoSpare", series, in_minutes=[], of=30) == ""


def test_a_cluster_that_has_no_spares_at_all_has_no_alert_about_them(promtool: Promtool) -> None:
    series = {"healthd_spares": "0x40", "healthd_spares_unfit": "0x40", "healthd_spares_claimed": "0x40"}

    assert promtool.fires("HealthdNoSpare", series, in_minutes=[], of=30) == ""


def test_a_change_of_the_leader_is_no_end_of_the_spares(promtool: Promtool) -> None:
    series = {
        'healthd_spares{instance="a"}': "1x10 0x30",
        'healthd_spares{instance="b"}': "0x11 1x30",
        'healthd_spares_unfit{instance="a"}': "0x40",
        'healthd_spares_claimed{instance="a"}': "1x10 0x30",
        'healthd_spares_claimed{instance="b"}': "0x11 1x30",
    }

    assert promtool.fires("HealthdNoSpare", series, in_minutes=[], of=30) == ""
