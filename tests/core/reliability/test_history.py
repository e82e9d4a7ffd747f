"""The history of a machine: what it keeps, and what it survives."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from healthd.core.api import Absence, Device, MachineHistory, Node, NodeHealthStatus, RepairSeen
from healthd.core.api.histories import MOST_GPU_STAYS, MOST_OUTAGES
from healthd.core.reliability.history import (
    NO_STATUS,
    hours_in_service,
    is_away,
    is_out,
    left,
    machine_of,
    object_name,
    observed,
)
from tests.builders import a_finding
from tests.core.reliability.histories import (
    DAY,
    H100,
    HOUR,
    SLOTS,
    a_history,
    a_machine,
    a_quarantine,
    an_outage,
    inventory,
    uuid_of,
)
from tests.fakes import START


def a_report(**fields: Any) -> NodeHealthStatus:
    return NodeHealthStatus(**{"inventory": inventory(), "boot_id": "boot-1", **fields})


def look(known: MachineHistory | None, node: Node, status: NodeHealthStatus, at: datetime) -> MachineHistory:
    return observed(known, machine_of(node), node, status, at)


def test_a_machine_is_known_by_its_own_uuid() -> None:
    assert machine_of(a_machine(7, "gpu-07")) == machine_of(a_machine(7, "renamed")) == uuid_of(7)


@pytest.mark.parametrize(
    "uuid", ["", "Not Settable", "00000000-0000-0000-0000-000000000000", "03000200-0400-0500-0006-000700080009"]
)
def test_a_machine_without_a_uuid_of_its_own_is_known_by_its_node(uuid: str) -> None:
    assert machine_of(a_machine(name="gpu-07", uuid=uuid)) == "node/gpu-07"


def test_a_uuid_that_several_nodes_report_identifies_none() -> None:
    assert machine_of(a_machine(7), shared={uuid_of(7)}) == "node/gpu-07"


@pytest.mark.parametrize("machine", [uuid_of(7), "node/gpu-07.rack-1.example.com"])
def test_the_object_has_a_name_that_an_api_server_takes(machine: str) -> None:
    assert object_name(machine).replace("-", "").replace(".", "").isalnum()


def test_a_new_machine_begins_with_its_gpus_and_no_outage() -> None:
    history = look(None, a_machine(), a_report(), START)

    assert (history.machine, history.node, history.model, history.since) == (uuid_of(1), "gpu-01", f"8 x {H100}", START)
    assert [(stay.id, stay.slot) for stay in history.gpus] == [(f"0001{at}", slot) for at, slot in enumerate(SLOTS)]
    assert history.outages == []


def test_a_look_at_which_nothing_changed_changes_nothing() -> None:
    history = look(None, a_machine(), a_report(), START)

    assert look(history, a_machine(), a_report(), START + DAY) == history


def test_a_quarantine_is_an_outage_of_the_gpu_that_it_names() -> None:
    history = look(None, a_machine(), a_report(), START)

    history = look(history, a_machine(quarantined=a_quarantine(since=START + DAY)), a_report(), START + DAY + HOUR)

    (outage,) = history.outages
    assert (outage.began, outage.ended, outage.rule) == (START + DAY, None, "xid-79")
    assert (outage.slot, outage.gpu, outage.node) == (SLOTS[3], "00013", "gpu-01")
    assert is_out(history)


def test_a_quarantine_that_goes_on_is_one_outage() -> None:
    node = a_machine(quarantined=a_quarantine())

    first = look(None, node, a_report(), START)

    assert look(first, node, a_report(), START + HOUR) == first


def test_the_fault_of_a_gpu_that_is_missing_is_blamed_on_it() -> None:
    history = look(None, a_machine(), a_report(), START)

    lost = a_report(inventory=inventory(at3=""))
    history = look(history, a_machine(quarantined=a_quarantine()), lost, START + DAY)

    assert history.outages[0].gpu == "00013"
    assert len([stay for stay in history.gpus if stay.until is None]) == 8


REPAIRED = RepairSeen(stamp=START + HOUR, at=START + HOUR)


@pytest.mark.parametrize(
    ("cleared_by", "fields", "tried"),
    [
        ("reset", {}, ["reset"]),
        ("reboot", {"boot_id": "boot-2"}, ["reboot"]),
        (
            "repair",
            {"boot_id": "boot-2", "repair_seen": REPAIRED},
            ["reboot", "repair"],
        ),
        ("recovered", {}, []),
    ],
)
def test_the_end_of_an_outage_says_what_was_tried_and_what_helped(
    cleared_by: str, fields: dict[str, Any], tried: list[str]
) -> None:
    history = look(None, a_machine(quarantined=a_quarantine()), a_report(), START)

    ended = a_finding(device=SLOTS[3], cleared_at=START + HOUR, cleared_by=cleared_by)
    history = look(history, a_machine(), a_report(findings=[ended], **fields), START + HOUR)

    (outage,) = history.outages
    assert (outage.ended, outage.helped, outage.tried) == (START + HOUR, cleared_by, tried)


def test_what_helped_may_be_reported_a_little_later() -> None:
    history = look(None, a_machine(quarantined=a_quarantine()), a_report(), START)
    history = look(history, a_machine(), a_report(), START + HOUR)

    ended = a_finding(device=SLOTS[3], cleared_at=START + HOUR, cleared_by="reset")
    later = look(history, a_machine(), a_report(findings=[ended]), START + HOUR + timedelta(minutes=2))

    assert (later.outages[0].ended, later.outages[0].helped) == (START + HOUR, "reset")


def test_a_reboot_weeks_after_an_outage_was_no_remedy_of_it() -> None:
    history = look(None, a_machine(quarantined=a_quarantine()), a_report(), START)
    history = look(history, a_machine(), a_report(), START + HOUR)

    assert look(history, a_machine(), a_report(boot_id="boot-9"), START + 20 * DAY) == history


def test_a_second_quarantine_ends_the_first_outage_though_nothing_was_seen_between() -> None:
    history = look(None, a_machine(quarantined=a_quarantine()), a_report(), START)

    history = look(history, a_machine(quarantined=a_quarantine(since=START + DAY)), a_report(), START + 2 * DAY)

    assert [(each.began, each.ended) for each in history.outages] == [(START, START + DAY), (START + DAY, None)]


def test_a_history_survives_a_deleted_and_renamed_node() -> None:
    known = a_history(outages=[an_outage(1)])

    away = left(known, START + 3 * DAY)
    back = look(away, a_machine(name="other-name"), a_report(), START + 5 * DAY)

    assert is_away(away)
    assert left(away, START + 4 * DAY) == away
    assert (back.node, back.outages, back.since) == ("other-name", known.outages, START)
    assert back.absences == [Absence(began=START + 3 * DAY, ended=START + 5 * DAY)]


def test_a_node_that_comes_back_without_its_quarantine_is_back_in_service() -> None:
    known = look(None, a_machine(quarantined=a_quarantine()), a_report(), START)

    back = look(left(known, START + HOUR), a_machine(), NO_STATUS, START + DAY)

    assert not is_out(back)


def test_a_gpu_in_the_place_of_another_ends_the_stay_of_the_other() -> None:
    known = look(None, a_machine(), a_report(), START)

    history = look(known, a_machine(), a_report(inventory=inventory(at3="77777")), START + DAY)

    stays = [(stay.id, stay.since, stay.until) for stay in history.gpus if stay.slot == SLOTS[3]]
    assert stays == [("00013", START, START + DAY), ("77777", START + DAY, None)]


def test_gpus_that_changed_places_stay_themselves() -> None:
    known = look(None, a_machine(), a_report(), START)

    history = look(known, a_machine(), a_report(inventory=inventory(at3="00014", at4="00013")), START + DAY)

    now = {stay.slot: stay.id for stay in history.gpus if stay.until is None}
    assert (now[SLOTS[3]], now[SLOTS[4]]) == ("00014", "00013")


def test_a_gpu_is_the_same_when_its_serial_number_is_read_later() -> None:
    without = [msgspec.structs.replace(gpu, serial="") for gpu in inventory()]
    known = look(None, a_machine(), a_report(inventory=without), START)

    assert look(known, a_machine(), a_report(), START + DAY) == known


def test_a_device_without_any_number_is_no_gpu_that_can_be_followed() -> None:
    nameless = [Device(pci=SLOTS[0], name=H100)]

    assert look(None, a_machine(), a_report(inventory=nameless), START).gpus == []


def test_a_history_keeps_the_newest_outages_and_counts_the_others() -> None:
    known = a_history(outages=[an_outage(day) for day in range(MOST_OUTAGES)])

    history = look(known, a_machine(quarantined=a_quarantine(since=START + 70 * DAY)), a_report(), START + 70 * DAY)

    assert (len(history.outages), history.earlier_outages) == (MOST_OUTAGES, 1)
    assert history.outages[-1].began == START + 70 * DAY


def test_a_history_stays_small_however_often_its_gpus_are_changed() -> None:
    history = look(None, a_machine(), a_report(), START)

    for day in range(40):
        swapped = inventory(1, **{f"at{at}": f"{day}-{at}" for at in range(8)})
        history = look(history, a_machine(), a_report(inventory=swapped), START + (day + 1) * DAY)

    assert len(history.gpus) == MOST_GPU_STAYS
    assert sorted(stay.id for stay in history.gpus if stay.until is None) == [f"39-{at}" for at in range(8)]


def test_the_largest_history_is_a_small_object() -> None:
    outages = [an_outage(day, gpu="1" * 24, node="n" * 253, tried=["reset", "reboot", "repair"]) for day in range(64)]

    assert len(msgspec.json.encode(a_history(outages=outages))) < 40_000


def test_hours_in_service_are_those_with_a_node_and_without_a_quarantine() -> None:
    history = a_history(outages=[an_outage(1, hours=24), an_outage(1.5, hours=24)])
    history = replace(history, absences=[Absence(began=START + 2 * DAY, ended=START + 4 * DAY)])

    assert hours_in_service(history, START, START + 10 * DAY) == pytest.approx((10 - 3) * 24)
    assert hours_in_service(history, START - 5 * DAY, START + DAY) == pytest.approx(24)
    assert hours_in_service(history, START + 2 * DAY, START + 3 * DAY) == 0
    assert hours_in_service(left(history, START + 9 * DAY), START, START + 20 * DAY) == pytest.approx((9 - 3) * 24)
