"""
Rules about what NVML reports of GPUs. Data.

Only what the driver itself calls lost, broken or in need of a reset takes a node out of service. Everything that can
have another reason (a board with fewer links, a link that rests, a probe that hangs) is for a person, or for a second
witness. Memory has its rules in `nvml_memory`, and everything with a far end in `nvml_links`.
"""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api.model import Blame
from healthd.core.diagnosis.signals.gpus.flapping import comes_and_goes
from healthd.core.diagnosis.signals.gpus.nvml_links import FABRIC, NVLINK, PCIE
from healthd.core.diagnosis.signals.gpus.nvml_memory import MEMORY
from healthd.core.diagnosis.signals.rule import AtLeast, Below, Grows, Is, IsNot, Rule

_MINUTE = timedelta(minutes=1)
_TEN_MINUTES = timedelta(minutes=10)
_HOUR = timedelta(hours=1)

_HEADER = "nvml.h"
_CATALOGUE = "NVIDIA Xid catalog, by the event that NVML reports; tiers as for the kernel's line"

_STATE = (
    Rule(
        name="nvml-gpu-lost",
        reads="nvml.state",
        test=Is(frozenset({"lost"})),
        tier="reboot",
        blame=Blame.DEVICE,
        summary="the driver has lost the GPU: it does not answer on the bus",
        holds=timedelta(seconds=30),
        same_as="gpu-lost",
        source=f"{_HEADER}: NVML_ERROR_GPU_IS_LOST; half a minute, because a reset by hand looks the same for a moment",
    ),
    Rule(
        name="nvml-reset-required",
        reads="nvml.state",
        test=Is(frozenset({"reset-required"})),
        tier="reset",
        blame=Blame.DEVICE,
        summary="the driver refuses to use the GPU before it is reset",
        holds=timedelta(seconds=30),
        same_as="recovery-action",
        source=f"{_HEADER}: NVML_ERROR_RESET_REQUIRED",
    ),
    Rule(
        name="nvml-gpu-error",
        reads="nvml.state",
        test=Is(frozenset({"error"})),
        tier="serious",
        blame=Blame.DEVICE,
        summary="NVML can not read the GPU's temperature, which every driver can",
        holds=_MINUTE,
        source=f"{_HEADER}: time-out, interrupt, operating system or unknown error",
    ),
    Rule(
        name="nvml-gpu-missing",
        reads="nvml.listed",
        test=Is(frozenset({"no"})),
        tier="serious",
        blame=Blame.DEVICE,
        summary="NVML does not list a GPU that it listed before, or that the driver has taken",
        advice="See whether somebody took it away on purpose (nvidia-smi drain, passthrough); if not, reboot the node.",
        holds=_MINUTE,
        same_as="gpu-lost",
        source="own choice: what the kernel's driver lists (/proc/driver/nvidia/gpus) is compared with NVML's list",
    ),
    Rule(
        name="nvml-gpu-unreadable",
        reads="nvml.gpus.unreadable",
        test=AtLeast(1),
        tier="serious",
        blame=Blame.NODE,
        summary="NVML counts a GPU that it can not name",
        holds=_MINUTE,
        source="own choice",
    ),
    Rule(
        name="nvml-too-few-gpus",
        reads="nvml.gpus",
        test=Below(other="nvml.gpus.expected"),
        tier="serious",
        blame=Blame.NODE,
        summary="NVML finds fewer GPUs than the configuration expects",
        holds=_MINUTE,
        source="own choice, as gpud's gpu-counts and Google's cluster health scanner",
    ),
    Rule(
        name="nvml-inforom-corrupted",
        reads="nvml.inforom",
        test=Is(frozenset({"corrupted"})),
        tier="ticket",
        blame=Blame.DEVICE,
        summary="the GPU's InfoROM is corrupted: its error history can not be trusted",
        source=f"{_HEADER}: NVML_ERROR_CORRUPTED_INFOROM",
    ),
)

_FLAPS = (
    comes_and_goes("nvml-gpu-flaps", "nvml.state"),
    comes_and_goes("nvml-gpu-listing-flaps", "nvml.listed"),
)

_PULSE = (
    Rule(
        name="nvml-hangs",
        reads="nvml.responds",
        test=Is(frozenset({"no"})),
        tier="serious",
        blame=Blame.NODE,
        summary="NVML does not answer within its deadline: the driver may hang",
        advice="Look for Xid 119, 120 or 79 and for processes in state D; a driver that hangs needs a reboot.",
        clears_after=_MINUTE,
        source="own choice: a hang proves nothing about the hardware, so it never takes a node out by itself",
    ),
)

_RECOVERY_SOURCE = f"{_HEADER}: NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, the driver's own advice (as Xid 154)"


def _recovery(name: str, tier: str, test: Is | IsNot, summary: str) -> Rule:
    return Rule(
        name=name,
        reads="nvml.recovery_action",
        test=test,
        tier=tier,
        blame=Blame.DEVICE,
        summary=summary,
        clears_after=timedelta(0),
        same_as="recovery-action",
        source=_RECOVERY_SOURCE,
    )


_RECOVERY = (
    _recovery("nvml-wants-reset", "reset", Is(frozenset("146")), "the driver asks for a reset of the GPU"),
    _recovery("nvml-wants-reboot", "reboot", Is(frozenset("27")), "the driver asks for a reboot of the node"),
    _recovery(
        "nvml-wants-drain",
        "reset",
        Is(frozenset("3")),
        "the driver asks to drain peer-to-peer work before it says what comes next",
    ),
    _recovery(
        "nvml-wants-imex", "ticket", Is(frozenset("5")), "the driver asks to recover the IMEX domain, which spans nodes"
    ),
    _recovery(
        "nvml-wants-unknown",
        "unknown",
        IsNot(frozenset("01234567")),
        "the driver asks for an action that this version of healthd does not know",
    ),
)


_SIX_MINUTES = 360
_THROTTLE_SOURCE = "gpud's hw-slowdown check: bad when it is seen in 60 % of ten minutes"


def _throttle(name: str, reading: str, blame: Blame, summary: str, cause: str) -> tuple[Rule, Rule]:
    """By the time that newer drivers count, and by the state that all drivers report."""
    counted = Rule(
        name=name,
        reads=f"nvml.throttled.{reading}",
        test=Grows(_SIX_MINUTES, _TEN_MINUTES),
        tier="ticket",
        blame=blame,
        summary=summary,
        same_as=cause,
        source=_THROTTLE_SOURCE,
    )
    seen = Rule(
        name=f"{name}-now",
        reads=f"nvml.throttle.{reading}",
        test=Is(frozenset({"yes"})),
        tier="ticket",
        blame=blame,
        summary=summary,
        holds=timedelta(minutes=6),
        same_as=cause,
        source=f"{_THROTTLE_SOURCE}; for drivers that do not count the time",
    )
    return counted, seen


_HEAT = (
    *_throttle(
        "nvml-thermal-slowdown", "hw-thermal", Blame.DEVICE, "the GPU slows down because it is too hot", "thermal"
    ),
    *_throttle(
        "nvml-power-brake",
        "power-brake",
        Blame.NODE,
        "the machine's power supply makes the GPU slow down",
        "power-brake",
    ),
    Rule(
        name="nvml-temperature",
        reads="nvml.temperature",
        test=AtLeast(94),
        tier="ticket",
        blame=Blame.DEVICE,
        summary="the GPU is too hot",
        advice="See to fans, airflow or coolant.",
        holds=_MINUTE,
        same_as="thermal",
        source="Azure's healthagent: warning above 93 degrees Celsius",
    ),
    Rule(
        name="nvml-no-thermal-margin",
        reads="nvml.temperature.margin",
        test=Below(1),
        tier="ticket",
        blame=Blame.DEVICE,
        summary="the GPU is as hot as it may be before it slows down",
        advice="See to fans, airflow or coolant.",
        holds=_MINUTE,
        same_as="thermal",
        source=f"{_HEADER}: nvmlDeviceGetMarginTemperature; as NVSentinel's monitor of the margin",
    ),
)

_XID_TIERS = (
    (46, "reset", "xid-46"),
    (48, "reset", "ecc-uncorrectable"),
    (54, "mechanics", "xid-54"),
    (62, "reset", "xid-62"),
    (64, "reset", "row-remap-failure"),
    (74, "serious", "nvlink-down"),
    (79, "reboot", "gpu-lost"),
    (95, "reset", "ecc-uncorrectable"),
    (110, "reset", "xid-110"),
    (119, "reset", "gsp-timeout"),
    (120, "reset", "gsp-timeout"),
    (136, "reset", "xid-136"),
    (140, "reset", "xid-140"),
    (143, "reset", "xid-143"),
    *((code, "serious", "nvlink-down") for code in range(144, 151)),
    (151, "reboot", "xid-151"),
    (155, "reset", "xid-155"),
    (156, "reset", "xid-156"),
    (158, "reset", "xid-158"),
    (167, "reboot", "xid-167"),
    (169, "reset", "xid-169"),
    (171, "reset", "ecc-uncorrectable"),
    (172, "reset", "ecc-uncorrectable"),
)
"""Xids that take a node out, and Xids of NVLinks, which NVML reports by number only. The kernel log covers the rest."""

_XIDS = tuple(
    Rule(
        name=f"nvml-xid-{code}",
        reads=f"nvml.xid.{code}",
        test=Grows(1, _HOUR),
        tier=tier,
        blame=Blame.DEVICE,
        summary=f"NVML reports Xid {code}",
        clears_after=_HOUR if tier == "serious" else None,
        same_as=cause,
        source=_CATALOGUE,
    )
    for code, tier, cause in _XID_TIERS
)

XIDS = tuple(code for code, _, _ in _XID_TIERS)
"""The Xids that have rules."""

RULES: tuple[Rule, ...] = (
    *_STATE,
    *_FLAPS,
    *_PULSE,
    *MEMORY,
    *_RECOVERY,
    *NVLINK,
    *FABRIC,
    *PCIE,
    *_HEAT,
    *_XIDS,
)
