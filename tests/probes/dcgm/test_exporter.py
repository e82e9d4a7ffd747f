"""What a page of dcgm-exporter says, and what follows when it says nothing, too much, or of other machines."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta

import pytest

from healthd.core.diagnosis.readings import Sample
from healthd.probes.dcgm.exporter import MOST_LINES, STALE, Dcgm
from healthd.probes.dcgm.fields import LONGEST_LINE, parse_address, parse_line
from healthd.probes.errors import CannotRead
from tests.fakes import START

URL = "http://dcgm.example:9400/metrics"
GPUS = {"GPU-aaaa": "0000:53:00.0", "GPU-bbbb": "0000:64:00.0"}
FIRST, SECOND = GPUS.values()
REPLAYS = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
LAST_XID = "DCGM_FI_DEV_XID_ERRORS"
XIDS_LATELY = "DCGM_EXP_XID_ERRORS_COUNT"
XIDS_EVER = "DCGM_EXP_XID_ERRORS_TOTAL"
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


def row(metric: str, value: object, uuid: str = "GPU-aaaa", *, host: str = "node-1", **labels: str) -> str:
    """A line as dcgm-exporter writes it."""
    bus = "0000" + GPUS.get(uuid, "0000:99:00.0").upper()
    given = {
        "gpu": "0",
        "UUID": uuid,
        "pci_bus_id": bus,
        "device": "nvidia0",
        "modelName": "NVIDIA H100 80GB HBM3",
        "hostname": host,
        **labels,
    }
    reported = ",".join(f'{key}="{text}"' for key, text in given.items())
    return f"{metric}{{{reported}}} {value}"


class Exporter:
    """A page that can be changed; None: no server answers."""

    def __init__(self, *rows: str) -> None:
        self.rows: Sequence[str] | None = rows

    def fetch(self, url: str) -> str:
        """Stands in for the network."""
        if self.rows is None:
            raise CannotRead(url, "connection refused", "start it")
        return "\n".join(["# HELP X of no use", "# TYPE X gauge", *self.rows, ""])

    def probe(self, *, node: str = "", xids: Sequence[int] = (79,)) -> Dcgm:
        """Of a machine with two GPUs."""
        return Dcgm(URL, node=node, gpus=lambda: GPUS, xids=xids, fetch=self.fetch)


def readings_in(sample: Sample) -> dict[tuple[str, str, str], float | str]:
    """What a sample says without Xids and presence, by device, name and part."""
    assert sample.trouble == ""
    return {
        (reading.device, reading.name, reading.part): reading.value
        for reading in sample.readings
        if not reading.name.startswith(("dcgm.xid.", "dcgm.listed"))
    }


def seen(*rows: str) -> dict[tuple[str, str, str], float | str]:
    """What one page says."""
    return readings_in(Exporter(*rows).probe().sample(START))


@pytest.mark.parametrize(
    ("metric", "reading"),
    [
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "dcgm.ecc_uncorrectable"),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "dcgm.row_remap_failure"),
        ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "dcgm.pcie_replays"),
        ("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", "dcgm.pcie_replays"),
        ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "dcgm.nvlink_replays"),
    ],
)
def test_number_of_a_gpu(metric: str, reading: str) -> None:
    assert seen(row(metric, 12)) == {(FIRST, reading, ""): 12}


def test_metrics_of_no_interest_are_passed_over() -> None:
    assert seen(row("DCGM_FI_DEV_GPU_UTIL", 99), row(REPLAYS, 0)) == {(FIRST, "dcgm.pcie_replays", ""): 0}


@pytest.mark.parametrize("blank", ["9223372036854775794", "2147483632", "140737488355328", "NaN", "+Inf", "-Inf"])
def test_value_that_dcgm_does_not_have_is_left_out(blank: str) -> None:
    assert seen(row(REPLAYS, blank), row(REPLAYS, 3, "GPU-bbbb")) == {(SECOND, "dcgm.pcie_replays", ""): 3}


def test_reasons_for_a_low_clock_are_distinguished() -> None:
    masks = {0x1: ("no", "no"), 0x40 | 0x8: ("yes", "no"), 0x80: ("no", "yes"), 0x24: ("no", "no")}

    for mask, (thermal, brake) in masks.items():
        assert seen(row("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", mask)) == {
            (FIRST, "dcgm.hw_thermal", ""): thermal,
            (FIRST, "dcgm.power_brake", ""): brake,
        }


@pytest.mark.parametrize(("value", "result"), [(0, "pass"), (10, "warn"), (20, "fail"), (7, "unknown")])
def test_verdict_of_dcgms_own_health_check(value: int, result: str) -> None:
    code = "DCGM_FR_OK" if result == "pass" else "DCGM_FR_VOLATILE_DBE_DETECTED"
    line = row("DCGM_EXP_GPU_HEALTH_STATUS", value, health_watch="MEM", health_error_code=code)

    assert seen(line) == {(FIRST, "dcgm.health.mem", "" if result == "pass" else code): result}


def test_verdict_about_an_xid_is_history_because_dcgm_never_takes_it_back() -> None:
    line = row("DCGM_EXP_GPU_HEALTH_STATUS", 20, health_watch="ALL", health_error_code="DCGM_FR_XID_ERROR")

    assert seen(line) == {(FIRST, "dcgm.health.all", "DCGM_FR_XID_ERROR"): "history"}


def test_parts_of_a_gpu_are_distinguished() -> None:
    readings = seen(
        row(REPLAYS, 1, GPU_I_ID="3", GPU_I_PROFILE="1g.10gb"),
        row("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 4, nvlink="7"),
    )

    assert readings == {(FIRST, "dcgm.pcie_replays", "MIG 3"): 1, (FIRST, "dcgm.nvlink_replays", "nvlink 7"): 4}


def test_gpu_that_pods_share_is_reported_once_with_the_worst_value() -> None:
    readings = seen(
        row(REPLAYS, 5, pod="a"),
        row(REPLAYS, 6, pod="b"),
        row("DCGM_EXP_GPU_HEALTH_STATUS", 20, pod="a", health_watch="SM"),
        row("DCGM_EXP_GPU_HEALTH_STATUS", 0, pod="b", health_watch="SM"),
    )

    assert readings == {(FIRST, "dcgm.pcie_replays", ""): 6, (FIRST, "dcgm.health.sm", ""): "fail"}


def test_old_exporter_without_addresses_is_understood_by_uuid() -> None:
    line = f'{REPLAYS}{{gpu="0",uuid="GPU-bbbb",device="nvidia1"}} 2'

    assert seen(line) == {(SECOND, "dcgm.pcie_replays", ""): 2}


def test_page_of_another_machine_is_trouble() -> None:
    sample = Exporter(row(REPLAYS, 9, "GPU-cccc", host="node-2")).probe(node="node-1").sample(START)

    assert sample.readings == ()
    assert "GPUs of another machine (node-2)" in sample.trouble
    assert "internalTrafficPolicy" in sample.trouble


def test_row_of_another_machine_among_ours_is_passed_over() -> None:
    probe = Exporter(row(REPLAYS, 9, "GPU-cccc", host="node-2"), row(REPLAYS, 1)).probe(node="node-1")

    assert readings_in(probe.sample(START)) == {(FIRST, "dcgm.pcie_replays", ""): 1}


def test_host_name_reports_whose_gpus_they_are_when_nvml_cannot() -> None:
    probe = Exporter(row(REPLAYS, 9, "GPU-cccc")).probe(node="node-1")

    assert readings_in(probe.sample(START)) == {("0000:99:00.0", "dcgm.pcie_replays", ""): 9}


@pytest.mark.parametrize("rows", [(), ("garbage",), (row(REPLAYS, "many"),), (f"{REPLAYS}{{",)])
def test_page_without_a_gpu_is_trouble(rows: tuple[str, ...]) -> None:
    assert "reports no GPU" in Exporter(*rows).probe().sample(START).trouble


def test_exporter_that_is_gone_is_trouble_and_nothing_else() -> None:
    exporter = Exporter(row(REPLAYS, 0))
    probe = exporter.probe()
    probe.sample(START)
    exporter.rows = None

    sample = probe.sample(START)

    assert sample.readings == ()
    assert "connection refused" in sample.trouble


def test_page_that_never_changes_is_trouble_after_a_while() -> None:
    exporter = Exporter(row(REPLAYS, 0), row(ENERGY, 1000))
    probe = exporter.probe()

    assert probe.sample(START).trouble == ""
    assert probe.sample(START + STALE - timedelta(seconds=1)).trouble == ""
    assert "nothing has changed since" in probe.sample(START + STALE).trouble

    exporter.rows = (row(REPLAYS, 0), row(ENERGY, 1001))

    assert probe.sample(START + STALE).trouble == ""


def test_page_without_anything_that_must_change_is_believed() -> None:
    probe = Exporter(row(REPLAYS, 0)).probe()
    probe.sample(START)

    assert probe.sample(START + 10 * STALE).trouble == ""


def test_gpu_that_disappears_is_reported() -> None:
    exporter = Exporter(row(REPLAYS, 0), row(REPLAYS, 0, "GPU-bbbb"))
    probe = exporter.probe()
    probe.sample(START)
    exporter.rows = (row(REPLAYS, 0),)

    listed = {one.device: one.value for one in probe.sample(START).readings if one.name == "dcgm.listed"}

    assert listed == {FIRST: "yes", SECOND: "no"}


def test_page_with_too_many_lines_is_trouble() -> None:
    sample = Exporter(*[row(REPLAYS, number) for number in range(MOST_LINES + 1)]).probe().sample(START)

    assert "lines of GPU metrics" in sample.trouble


def xids(*pages: Sequence[str]) -> list[float | str]:
    """How many Xids 79 of the first GPU were counted after each page."""
    exporter = Exporter()
    probe = exporter.probe()
    counts: list[float | str] = []
    for page in pages:
        exporter.rows = (row(REPLAYS, 0), *page)
        readings = probe.sample(START).readings
        counts += [one.value for one in readings if (one.device, one.name) == (FIRST, "dcgm.xid.79")]
    return counts


def test_last_xid_counts_when_it_changes() -> None:
    pages = [[row(LAST_XID, xid, err_code=str(xid))] for xid in (0, 79, 79, 45, 79)]

    assert xids(*pages) == [0, 1, 1, 1, 2]


def test_last_xid_from_before_the_first_sample_does_not_count() -> None:
    assert xids([row(LAST_XID, 79)], [row(LAST_XID, 79)]) == [0, 0]


def test_xids_of_a_window_count_when_there_are_more_of_them() -> None:
    empty = row(XIDS_LATELY, 0, window_size_in_ms="300000")
    pages = [[row(XIDS_LATELY, times, xid="79")] for times in (1, 3, 2)]

    assert xids([empty], *pages, [empty], [row(XIDS_LATELY, 1, xid="79")]) == [0, 1, 3, 3, 3, 4]


def test_total_of_an_xid_counts_from_its_first_row() -> None:
    assert xids([], [row(XIDS_EVER, 1, xid="79")], [row(XIDS_EVER, 2, xid="79")]) == [0, 1, 2]


def test_xids_that_were_counted_before_the_first_sample_do_not_count() -> None:
    assert xids([row(XIDS_EVER, 4, xid="79")], [row(XIDS_EVER, 5, xid="79")]) == [0, 1]


def test_several_metrics_of_one_xid_count_it_once() -> None:
    quiet = [row(LAST_XID, 0), row(XIDS_LATELY, 0)]
    loud = [row(LAST_XID, 79), row(XIDS_LATELY, 1, xid="79"), row(XIDS_EVER, 1, xid="79")]

    assert xids(quiet, loud) == [0, 1]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:53:00.0", "0000:53:00.0"),
        ("0008:5B:00.1", "0008:5b:00.1"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("53:00.0", ""),
        ("", ""),
    ],
)
def test_address_in_our_own_form(text: str, address: str) -> None:
    assert parse_address(text) == address


def test_line_that_is_too_long_is_of_no_use() -> None:
    assert parse_line(row(REPLAYS, 1, pod="a" * LONGEST_LINE)) is None
    assert parse_line(row(REPLAYS, 1, pod="a" * 100)) is not None


def test_damaged_lines_never_raise() -> None:
    pick = random.Random(7)
    good = row(XIDS_LATELY, 1, xid="79", health_watch="MEM")
    noise = '{}",=\\\n# \t\x00_é0eE+-.N'

    for _ in range(3000):
        line = list(good)
        for _ in range(pick.randrange(1, 6)):
            line[pick.randrange(len(line))] = pick.choice(noise)
        Exporter("".join(line)).probe().sample(START)

    assert Exporter(good).probe().sample(START).trouble == ""
