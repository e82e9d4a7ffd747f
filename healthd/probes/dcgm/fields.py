"""
Which of dcgm-exporter's metrics are read, and what each becomes. Pure.

Names and labels are those of dcgm-exporter 3 and 4 with its default and its example lists of counters; DCGM 4 renamed
some. A value that DCGM has not read yet, or that the GPU lacks, is a *blank*: a huge number of a few known forms.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

NUMBERS = {
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "dcgm.ecc_uncorrectable",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": "dcgm.ecc_correctable",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "dcgm.remapped_uncorrectable",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "dcgm.remapped_correctable",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "dcgm.row_remap_failure",
    "DCGM_FI_DEV_ROW_REMAP_PENDING": "dcgm.row_remap_pending",
    "DCGM_FI_DEV_RETIRED_PENDING": "dcgm.retired_pending",
    "DCGM_FI_DEV_PAGE_RETIRED_PENDING": "dcgm.retired_pending",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "dcgm.pcie_replays",
    "DCGM_FI_DEV_PCIE_REPLAY_TOTAL": "dcgm.pcie_replays",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "dcgm.nvlink_crc",
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": "dcgm.nvlink_crc_data",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": "dcgm.nvlink_replays",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "dcgm.nvlink_recoveries",
    "DCGM_FI_DEV_THERMAL_VIOLATION": "dcgm.thermal_violation",
    "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION": "dcgm.recovery_action",
    "DCGM_FI_DEV_FABRIC_MANAGER_STATUS": "dcgm.fabric_manager",
}
"""Metrics whose value is a reading as it is."""

REASONS = frozenset({"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"})
_HW_THERMAL, _POWER_BRAKE = 0x40, 0x80
"""Bits of that mask, as in nvml.h."""

HEALTH = "DCGM_EXP_GPU_HEALTH_STATUS"
_RESULTS = {0: "pass", 10: "warn", 20: "fail"}
_KEPT = frozenset({"DCGM_FR_XID_ERROR", "DCGM_FR_UNCONTAINED_ERROR"})
"""Verdicts about an Xid remain until DCGM restarts, whatever was repaired. The Xids themselves are counted."""

XIDS_EVER = "DCGM_EXP_XID_ERRORS_TOTAL"
XIDS_LATELY = "DCGM_EXP_XID_ERRORS_COUNT"
LAST_XID = frozenset({"DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"})

PULSE = ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_POWER_USAGE")
"""These always change while DCGM reads a GPU."""

WANTED = frozenset({*NUMBERS, *REASONS, HEALTH, XIDS_EVER, XIDS_LATELY, *LAST_XID})

LONGEST_LINE = 2048
"""Characters. The parser's time grows with the square of the length of a hostile line."""

_BLANKS = ((2**31 - 16, 2**31 - 1), (2**47, 2**47 + 15), (2**63 - 1024, math.inf))
"""Of 32-bit numbers, of fractions and of 64-bit numbers, as dcgm_structs.h and its arithmetic make them."""
_ADDRESS = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7])")
_CODE = re.compile(r"[A-Z0-9_]{1,64}")


class DcgmValue(NamedTuple):
    """One line of the page: a value of one GPU or of a part of it."""

    metric: str
    gpu: str
    """The GPU's UUID."""
    device: str
    """Its PCI address. Empty where an old exporter does not report it."""
    host: str
    part: str
    value: float
    xid: int
    """0: the metric is not about an Xid."""
    watch: str
    code: str
    """Of DCGM's own health check: what it watches, and its name for the fault."""


def parse_line(line: str) -> DcgmValue | None:
    """One line of the exposition format. None: the line has no value of use, whatever the reason."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        (sample,) = (sample for family in text_string_to_metric_families(line) for sample in family.samples)
        labels, value = sample.labels, float(sample.value)
    except (ValueError, IndexError, KeyError, OverflowError):
        return None
    if not math.isfinite(value) or any(least <= value <= most for least, most in _BLANKS):
        return None
    return DcgmValue(
        metric=sample.name,
        gpu=_first(labels, "UUID", "uuid", "gpu_uuid"),
        device=parse_address(labels.get("pci_bus_id", "")),
        host=_first(labels, "hostname", "Hostname"),
        part=_part(labels),
        value=value,
        xid=_xid(sample.name, labels, value),
        watch=labels.get("health_watch", "").lower(),
        code=labels.get("health_error_code", ""),
    )


def parse_address(bus_id: str) -> str:
    """`00000000:3B:00.0` as `0000:3b:00.0`; empty for anything else."""
    match = _ADDRESS.fullmatch(bus_id)
    if match is None:
        return ""
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def readings_of(value: DcgmValue) -> Iterator[tuple[str, str, float | str]]:
    """Name, part and value of each reading of one line. Xids are not among them: they are counted."""
    if name := NUMBERS.get(value.metric):
        yield name, value.part, value.value
    elif value.metric in REASONS:
        mask = int(value.value)
        yield "dcgm.hw_thermal", value.part, "yes" if mask & _HW_THERMAL else "no"
        yield "dcgm.power_brake", value.part, "yes" if mask & _POWER_BRAKE else "no"
    elif value.metric == HEALTH and _CODE.fullmatch(value.watch.upper()):
        result = "history" if value.code in _KEPT else _RESULTS.get(int(value.value), "unknown")
        has_code = result != "pass" and _CODE.fullmatch(value.code)
        yield f"dcgm.health.{value.watch}", value.code if has_code else "", result


def _first(labels: dict[str, str], *names: str) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _part(labels: dict[str, str]) -> str:
    if link := labels.get("nvlink"):
        return f"nvlink {link[:8]}"
    instance = labels.get("GPU_I_ID")
    return f"MIG {instance[:8]}" if instance else ""


def _xid(metric: str, labels: dict[str, str], value: float) -> int:
    if metric in LAST_XID:
        return int(value)
    code = labels.get("xid", "")
    return int(code) if code.isascii() and code.isdigit() and len(code) < 6 else 0
