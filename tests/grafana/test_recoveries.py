"""When the rules about recoveries and spares fire, and when they are silent."""

from __future__ import annotations

import pytest

from healthd.core.api.model import ENDED, Hold, Phase
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


STUCK = "healthd_gang_recovery_since_timestamp_seconds"
MOVING = [phase for phase in Phase if phase not in ENDED | {Phase.HELD}]


@pytest.mark.parametrize("phase", [phase for phase in MOVING if phase is not Phase.CONFIRMING])
def test_a_recovery_that_stays_in_a_phase_pages_after_45_minutes_until_it_moves(
    promtool: Promtool, phase: Phase
) -> None:
    series = {f'{STUCK}{{{GANG},phase="{phase}"}}': "60x54 stale"}

    alert = f'HealthdRecoveryStuck{{{GANG},phase="{phase}",severity="page"}}'
    assert promtool.fires(alert, series, in_minutes=range(47, 57), of=62) == ""


def test_a_recovery_that_moves_from_phase_to_phase_is_not_reported(promtool: Promtool) -> None:
    series = {
        f'{STUCK}{{{GANG},phase="Choosing"}}': "0x40 stale",
        f'{STUCK}{{{GANG},phase="Starting"}}': "_x41 2460x40 stale",
    }

    assert promtool.fires("HealthdRecoveryStuck", series, in_minutes=[], of=85) == ""


def test_a_recovery_that_waits_before_a_start_is_not_reported(promtool: Promtool) -> None:
    series = {f'{STUCK}{{{GANG},phase="Reserving"}}': "3600x90"}

    assert promtool.fires("HealthdRecoveryStuck", series, in_minutes=[], of=90) == ""


@pytest.mark.parametrize(("interval", "after"), [(600, 46), (3600, 181)])
def test_a_gang_that_is_not_seen_to_save_pages_after_three_of_its_intervals(
    promtool: Promtool, interval: int, after: int
) -> None:
    series = {
        f'{STUCK}{{{GANG},phase="Confirming",instance="a"}}': "0x200",
        f'healthd_checkpoint_interval_seconds{{{GANG},instance="a"}}': f"{interval}x200",
    }

    assert promtool.fires("HealthdRecoveryStuck", series, in_minutes=range(after, 200), of=200) == ""


def test_a_gang_of_which_no_interval_is_known_has_six_hours_to_save(promtool: Promtool) -> None:
    half_an_hour_less = -5.5 * 3600
    series = {f'{STUCK}{{{GANG},phase="Confirming"}}': f"{half_an_hour_less}x40"}

    assert promtool.fires("HealthdRecoveryStuck", series, in_minutes=range(31, 40), of=40) == ""


def test_a_recovery_that_is_stuck_stays_so_over_a_change_of_the_leader(promtool: Promtool) -> None:
    series = {
        f'{STUCK}{{{GANG},phase="Stopping",instance="a"}}': "0x49 stale",
        f'{STUCK}{{{GANG},phase="Stopping",instance="b"}}': "_x51 0x20",
    }

    assert promtool.fires("HealthdRecoveryStuck", series, in_minutes=range(46, 65), of=65) == ""


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


LONG = 30
"""Minutes."""


def test_a_pool_that_is_too_small_for_half_an_hour_is_reported_until_it_is_large_enough(promtool: Promtool) -> None:
    series = {
        "healthd_spares": f"1x{LONG + 9} 3x20",
        "healthd_spares_claimed": f"1x{LONG + 29}",
        "healthd_spares_wanted": f"3x{LONG + 29}",
    }

    fires = promtool.fires("HealthdSparesShort", series, in_minutes=range(LONG, LONG + 10), of=LONG + 20)
    assert fires == ""


def test_a_spare_that_failed_its_check_is_noticed_while_it_is_still_a_spare(promtool: Promtool) -> None:
    series = {'healthd_spare_check_failed{node="gpu-1"}': "1x90 _x20"}
    alert = 'HealthdSpareCheckFailed{node="gpu-1",severity="notice"}'

    assert promtool.fires(alert, series, in_minutes=range(60, 100)) == ""


def test_a_spare_whose_failure_was_confirmed_within_the_hour_needs_no_person(promtool: Promtool) -> None:
    series = {'healthd_spare_check_failed{node="gpu-1"}': "1x30 _x60"}

    assert promtool.fires("HealthdSpareCheckFailed", series, in_minutes=[]) == ""


@pytest.mark.parametrize(("free", "claimed", "wanted"), [(1, 2, 3), (0, 0, 3), (2, 2, 0)])
def test_a_pool_is_large_enough_with_spares_in_use_and_a_cluster_without_spares_has_no_pool(
    promtool: Promtool, free: int, claimed: int, wanted: int
) -> None:
    series = {
        "healthd_spares": f"{free}x{LONG + 20}",
        "healthd_spares_claimed": f"{claimed}x{LONG + 20}",
        "healthd_spares_wanted": f"{wanted}x{LONG + 20}",
    }

    assert promtool.fires("HealthdSparesShort", series, in_minutes=[], of=LONG + 20) == ""
