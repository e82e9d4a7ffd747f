"""The ranking: what counts for which machine and GPU, and how it reads."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from healthd.core.api import GpuStay, MachineHistory, Outage
from healthd.core.reliability.history import left
from healthd.core.reliability.ranking import CROWD, WINDOW, Standing, Subject, lemon_nodes, rank
from tests.core.reliability.histories import DAY, H100, NOW, SLOTS, a_history, an_outage
from tests.fakes import START


def a_hall(*others: MachineHistory, nodes: int = 60) -> list[MachineHistory]:
    """Sixty nodes, ten of them with one outage, and *others*."""
    calm = [
        a_history(number, outages=[an_outage(number % 60, node=f"gpu-{number}")] if number % 6 == 0 else [])
        for number in range(100, 100 + nodes)
    ]
    return [*calm, *others]


def faults(*days: float, slot: str = SLOTS[3], gpu: str = "00013", node: str = "gpu-01") -> list[Outage]:
    return [an_outage(day, slot=slot, gpu=gpu, node=node, helped="reset") for day in days]


def standing_of(found: list[Standing], node: str, subject: Subject = Subject.NODE) -> Standing:
    (one,) = [each for each in found if each.node == node and each.subject is subject]
    return one


def test_a_machine_that_fails_again_and_again_is_a_lemon_and_comes_first() -> None:
    found = rank(a_hall(a_history(1, outages=faults(3, 17, 31, 45, 62))), NOW)

    assert found[0].is_lemon
    assert {each.node for each in found if each.is_lemon} == {"gpu-01"}
    assert standing_of(found, "gpu-01").low > 3 * standing_of(found, "gpu-01").usual


def test_the_reason_is_in_plain_words() -> None:
    found = rank(a_hall(a_history(1, outages=faults(3, 17, 31, 45, 62))), NOW)

    assert standing_of(found, "gpu-01").reason == (
        "5 outages in 72 days of service; usual for 61 of its kind: 0.2 in that time; "
        f"5 of them in slot {SLOTS[3]} (GPU 00013); 5 times xid-79; ended by reset (5)"
    )


def test_a_machine_that_never_failed_says_so() -> None:
    assert standing_of(rank(a_hall(a_history(1)), NOW), "gpu-01").reason == "no outage in 73 days of service"


@pytest.mark.parametrize("days", [(3,), (3, 40)])
def test_one_or_two_outages_are_no_lemon(days: tuple[float, ...]) -> None:
    assert not any(each.is_lemon for each in rank(a_hall(a_history(1, outages=faults(*days))), NOW))


def test_a_fleet_in_which_all_fail_often_has_no_lemon() -> None:
    days = (3.0, 17.0, 31.0, 45.0, 62.0)
    fleet = [a_history(n, outages=faults(*(d + n / 50 for d in days), gpu="")) for n in range(60)]

    assert not any(each.is_lemon for each in rank(fleet, NOW))


def test_outages_of_long_ago_do_not_count() -> None:
    old = a_history(1, outages=faults(3, 17, 31, 45, 62))

    found = rank(a_hall(old), NOW + WINDOW)

    assert standing_of(found, "gpu-01").outages == 0


def test_outages_of_many_machines_at_once_blame_none_of_them() -> None:
    days = (3.0, 17.0, 31.0, 45.0, 62.0)
    rack = [a_history(n, outages=faults(*days, gpu="", slot="node"), node=f"gpu-{n:02}") for n in range(CROWD)]

    found = rank(a_hall(*rack), NOW)

    assert standing_of(found, "gpu-01").outages == 0


def test_outages_of_few_machines_at_once_count() -> None:
    rack = [a_history(n, outages=faults(3, gpu=""), node=f"gpu-{n:02}") for n in range(CROWD - 1)]

    assert standing_of(rank(a_hall(*rack), NOW), "gpu-01").outages == 1


def moved(history: MachineHistory, gpu: str, slot: str, at: timedelta) -> MachineHistory:
    """*history* after *gpu* was put into *slot*."""
    stays = [replace(stay, until=START + at) if stay.slot == slot else stay for stay in history.gpus]
    return replace(history, gpus=[*stays, GpuStay(id=gpu, slot=slot, model=H100, since=START + at)])


def test_a_gpu_that_moved_takes_its_history_along() -> None:
    old = moved(a_history(1, outages=faults(3, 17, 31)), "99999", SLOTS[3], 40 * DAY)
    new = moved(a_history(2, outages=faults(45, 62, node="gpu-02")), "00013", SLOTS[3], 40 * DAY)

    found = rank(a_hall(old, new), NOW)

    gpu = standing_of(found, "gpu-02", Subject.GPU)
    assert (gpu.gpu, gpu.outages, gpu.is_lemon) == ("00013", 5, True)
    assert "3 outages of it in gpu-01" in gpu.reason
    assert lemon_nodes(found).keys() == {"gpu-02"}


def test_a_machine_is_not_blamed_for_a_gpu_that_was_taken_out() -> None:
    bad = a_history(1, outages=faults(3, 17, 31, 45, 62))

    found = rank(a_hall(moved(bad, "99999", SLOTS[3], 65 * DAY)), NOW)

    assert standing_of(found, "gpu-01").outages == 0
    assert lemon_nodes(found) == {}


def test_a_gpu_that_is_seen_elsewhere_has_left_though_its_old_place_is_empty() -> None:
    new = moved(a_history(2), "00013", SLOTS[3], 65 * DAY)

    found = rank(a_hall(a_history(1, outages=faults(3, 17, 31, 45, 62)), new), NOW)

    assert lemon_nodes(found).keys() == {"gpu-02"}


def test_a_slot_in_which_one_gpu_after_the_other_fails_blames_the_machine() -> None:
    history = a_history(1, outages=[*faults(3, 17), *faults(31, 45, 62, gpu="99999")])
    history = moved(history, "99999", SLOTS[3], 20 * DAY)

    found = rank(a_hall(history), NOW)

    assert standing_of(found, "gpu-01").outages == 3


def test_a_renamed_machine_keeps_its_place_in_the_ranking() -> None:
    found = rank(a_hall(a_history(1, node="new-name", outages=faults(3, 17, 31, 45, 62))), NOW)

    assert found[0].node == "new-name"


def test_a_machine_that_is_away_is_a_peer_and_is_not_listed() -> None:
    away = left(a_history(1, outages=faults(3, 17, 31, 45, 62)), NOW - DAY)

    assert all(each.node != "gpu-01" for each in rank(a_hall(away), NOW))


def test_machines_are_compared_with_those_of_the_same_gpus() -> None:
    days = (3.0, 17.0, 31.0, 45.0)
    often = [
        a_history(n, model="8 x old", outages=faults(*(d + n / 50 for d in days), gpu=""), node=f"old-{n}")
        for n in range(40)
    ]

    found = rank(a_hall(*often, a_history(1, outages=faults(*days, gpu=""))), NOW)

    assert {each.node for each in found if each.is_lemon} == {"gpu-01"}
    assert standing_of(found, "old-1").usual > 5 * standing_of(found, "gpu-01").usual


def test_an_empty_fleet_has_no_ranking() -> None:
    assert rank([], NOW) == []
