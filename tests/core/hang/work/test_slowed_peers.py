"""By how much the peers of a rank compute less than before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from healthd.core.hang.work.slowed_peers import lasting_less, mean_less
from healthd.core.hang.work.work_share import ShareWindow, WorkShare
from tests.fakes import START

PEERS = ["1", "2", "3", "4"]
BEFORE = [0.36] * 30


def windows(*ran: float, others: float | None = None) -> Sequence[ShareWindow]:
    """In each window the peers compute so much; *others*: but the first two of them."""
    shares = [{"1": others or each, "2": others or each, "3": each, "4": each} for each in ran]
    return [ShareWindow(START, START, {peer: WorkShare(each) for peer, each in of.items()}) for of in shares]


def test_peers_that_compute_less_in_every_window_do_so_in_the_mean_and_lastingly() -> None:
    newest = windows(*[0.30] * 9)

    assert mean_less(windows(*BEFORE), newest, PEERS) == pytest.approx(1 / 6)
    assert lasting_less(windows(*BEFORE), newest, PEERS) == pytest.approx(1 / 6)


@pytest.mark.parametrize("ran", [[0.36] * 4 + [0.30] * 5, [0.30] * 5 + [0.36] * 4], ids=["later", "before"])
def test_what_a_rank_that_is_late_for_a_while_takes_from_its_peers_does_not_last(ran: list[float]) -> None:
    """In the most of the windows they compute less, and in one half of them as before."""
    assert lasting_less(windows(*BEFORE), windows(*ran), PEERS) < 0.01


def test_half_of_it_in_a_half_of_the_windows_is_enough() -> None:
    """Windows are short, and a step more or less is in each."""
    assert lasting_less(windows(*BEFORE), windows(*[0.33] * 4, *[0.30] * 5), PEERS) == pytest.approx(1 / 6)


@pytest.mark.parametrize("pause", [0.6, 0.0], ids=["an evaluation", "late data"])
def test_a_pause_before_or_now_does_not_change_what_lasts(pause: float) -> None:
    before, newest = windows(*BEFORE, *[pause] * 8), windows(0.36, pause, 0.36, 0.36, 0.36, 0.36, pause, 0.36)

    assert lasting_less(before, newest, PEERS) == pytest.approx(0.0)


def test_all_but_a_quarter_of_the_peers_have_to() -> None:
    assert lasting_less(windows(*BEFORE), windows(*[0.30] * 9, others=0.36), PEERS) == pytest.approx(0.0)
    assert mean_less(windows(*BEFORE), windows(*[0.30] * 9, others=0.36), PEERS) > 0.05


@pytest.mark.parametrize(("waits", "less"), [(0.02, 1 / 6), (0.1, 0.0)], ids=["in a kernel", "without one"])
def test_peers_that_have_nothing_to_do_for_longer_wait_for_no_gpu_in_a_kernel(waits: float, less: float) -> None:
    before = [ShareWindow(START, START, dict.fromkeys(PEERS, WorkShare(0.36, own_waits=0.02)))] * 30
    newest = [ShareWindow(START, START, dict.fromkeys(PEERS, WorkShare(0.30, own_waits=waits)))] * 9

    assert lasting_less(before, newest, PEERS) == pytest.approx(less)


def test_peers_that_never_computed_compute_no_less() -> None:
    assert lasting_less(windows(*[0.0] * 9), windows(*[0.0] * 9), PEERS) == 0.0
