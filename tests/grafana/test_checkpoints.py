"""When the rules about checkpoints fire, and when they are silent."""

from __future__ import annotations

import pytest

from healthd.core.api.save_stats import Concern
from tests.grafana.promtool import Promtool

pytestmark = pytest.mark.lab

GANG = 'namespace="ml",gang="llama"'
SAVED = f"healthd_checkpoint_saved_timestamp_seconds{{{GANG}}}"
AFTER_TWO_CHECKS = {
    "late": "HealthdCheckpointLate",
    "full": "HealthdCheckpointFull",
    "slower": "HealthdCheckpointSlower",
}


def concern(name: str, **labels: str) -> str:
    """The series of a concern about the gang."""
    further = "".join(f',{label}="{value}"' for label, value in labels.items())
    return f'healthd_checkpoint_concern{{{GANG},concern="{name}"{further}}}'


def test_every_concern_has_a_rule() -> None:
    assert {*AFTER_TWO_CHECKS, "refused"} == set(Concern)


@pytest.mark.parametrize("name", AFTER_TWO_CHECKS)
def test_a_concern_that_stands_for_two_checks_is_reported_until_it_is_over(promtool: Promtool, name: str) -> None:
    alert = f'{AFTER_TWO_CHECKS[name]}{{{GANG},severity="notice"}}'

    assert promtool.fires(alert, {concern(name): "_ 1x9 stale"}, in_minutes=range(7, 12)) == ""


@pytest.mark.parametrize("name", AFTER_TWO_CHECKS)
def test_a_concern_that_the_next_check_takes_back_is_not_reported(promtool: Promtool, name: str) -> None:
    assert promtool.fires(AFTER_TWO_CHECKS[name], {concern(name): "1x4 stale"}, in_minutes=[]) == ""


@pytest.mark.parametrize("name", AFTER_TWO_CHECKS)
def test_a_concern_that_another_leader_shows_does_not_begin_anew(promtool: Promtool, name: str) -> None:
    series = {concern(name, pod="a"): "1x9 stale", concern(name, pod="b"): "_x11 1x20"}

    assert promtool.fires(AFTER_TWO_CHECKS[name], series, in_minutes=range(6, 20)) == ""


def test_a_refused_checkpoint_is_a_notice_while_an_older_one_is_good(promtool: Promtool) -> None:
    series = {concern("refused"): "_ 1x9 stale", SAVED: "0x40"}

    alert = f'HealthdCheckpointRefused{{{GANG},severity="notice"}}'
    assert promtool.fires(alert, series, in_minutes=range(2, 12)) == ""
    assert promtool.fires("HealthdNothingToResumeFrom", series, in_minutes=[]) == ""


def test_a_gang_without_any_good_checkpoint_pages(promtool: Promtool) -> None:
    other = SAVED.replace("llama", "other")
    series = {concern("refused"): "_ 1x9 stale", other: "0x40"}

    alert = f'HealthdNothingToResumeFrom{{{GANG},severity="page"}}'
    assert promtool.fires(alert, series, in_minutes=range(2, 12)) == ""
    assert promtool.fires("HealthdCheckpointRefused", series, in_minutes=[]) == ""


def test_nothing_to_resume_from_does_not_begin_anew_with_another_leader(promtool: Promtool) -> None:
    series = {concern("refused", pod="a"): "1x9 stale", concern("refused", pod="b"): "_x11 1x20"}

    assert promtool.fires("HealthdNothingToResumeFrom", series, in_minutes=range(1, 20)) == ""


def test_a_gang_that_has_not_saved_yet_is_not_reported(promtool: Promtool) -> None:
    series = {
        f"healthd_checkpoint_valid{{{GANG}}}": "0x60",
        f"healthd_checkpoint_lost_work_seconds{{{GANG}}}": "0+60x60",
    }

    assert promtool.fires("HealthdNothingToResumeFrom", series, in_minutes=[], of=60) == ""
    assert promtool.fires("HealthdCheckpointLate", series, in_minutes=[], of=60) == ""
