"""
Rules about what NVML tells of GPUs. Data.

Only what the driver itself calls lost, broken or in need of a reset takes a node out of service. Everything that can
have another reason (a board with fewer links, a link that rests, a probe that hangs) is for a person, or for a second
witness. The generation of a PCIe link falls while a GPU is idle, so no rule reads it.
"""

from __future__ import annotations

from datetime import timedelta

from healthd.core.model import Blame
from healthd.core.signals.rule import AtLeast, Below, FellBelowBest, Grows, Is, Rule

_MINUTE = timedelta(minutes=1)
_TEN_MINUTES = timedelta(minutes=10)
_HOUR = timedelta(hours=1)

_HEADER = "nvml.h"
_DCGM = "DCGM 4.6 health watches"
_CATALOGUE = "NVIDIA Xid catalog, by the event that NVML tells; tiers as for the kernel's line"
_MEMORY = "NVIDIA GPU memory error management"

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
        source="own choice: the kernel's list of devices of the driver is compared with NVML's",
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

_MEMORY_RULES = (
    Rule(
        name="nvml-row-remap-failure",
        reads="nvml.row_remap.failure",
        test=Is(frozenset({"1"})),
        tier="hardware",
        blame=Blame.DEVICE,
        summary="a memory row could not be remapped: no spare is left",
        clears_after=None,
        same_as="row-remap-failure",
        source=f"{_MEMORY}: a failed remap makes a GPU eligible for return; {_DCGM}: fail",
    ),
    Rule(
        name="nvml-row-remap-pending",
        reads="nvml.row_remap.pending",
        test=Is(frozenset({"1"})),
        tier="pending",
        blame=Blame.DEVICE,
        summary="a memory row waits to be remapped at the next reset",
        clears_after=timedelta(0),
        same_as="row-remap-pending",
        source=f"{_MEMORY}; {_DCGM}: warning",
    ),
    Rule(
        name="nvml-bank-remap-pending",
        reads="nvml.bank_remap.pending",
        test=Is(frozenset({"1"})),
        tier="pending",
        blame=Blame.DEVICE,
        summary="a memory bank waits to be remapped at the next reset",
        clears_after=timedelta(0),
        same_as="row-remap-pending",
        source=f"{_HEADER}: NVML_FI_DEV_PENDING_BANK_REMAPPING",
    ),
    Rule(
        name="nvml-row-remap-exhausted",
        reads="nvml.row_remap.banks.none",
        test=AtLeast(1),
        tier="ticket",
        blame=Blame.DEVICE,
        summary="a memory bank has no spare rows left: the next bad row can not be remapped",
        source=f"{_HEADER}: nvmlRowRemapperHistogramValues; {_MEMORY}",
    ),
    Rule(
        name="nvml-row-remaps",
        reads="nvml.row_remap.uncorrected",
        test=AtLeast(512),
        tier="ticket",
        blame=Blame.DEVICE,
        summary="as many memory rows as there can be were remapped after uncorrected errors",
        source=f"{_DCGM}: warning from 512 on",
    ),
    Rule(
        name="nvml-page-retirement-pending",
        reads="nvml.retired.pending",
        test=Is(frozenset({"1"})),
        tier="pending",
        blame=Blame.DEVICE,
        summary="a memory page waits to be retired at the next reset",
        clears_after=timedelta(0),
        same_as="row-remap-pending",
        source=f"{_DCGM}: warning; GPUs before Ampere",
    ),
    Rule(
        name="nvml-pages-retired",
        reads="nvml.retired.uncorrected",
        test=AtLeast(60),
        tier="ticket",
        blame=Blame.DEVICE,
        summary="nearly as many memory pages as there can be were retired",
        source=f"NVIDIA dynamic page retirement: 60 and more qualify for return; {_DCGM}: fail from 63 on",
    ),
    Rule(
        name="nvml-channel-repair-pending",
        reads="nvml.repair.channel_pending",
        test=Is(frozenset({"1"})),
        tier="pending",
        blame=Blame.DEVICE,
        summary="a memory channel waits to be repaired at the next reset",
        clears_after=timedelta(0),
        source=f"{_HEADER}: nvmlRepairStatus; as Xid 160",
    ),
    Rule(
        name="nvml-tpc-repair-pending",
        reads="nvml.repair.tpc_pending",
        test=Is(frozenset({"1"})),
        tier="pending",
        blame=Blame.DEVICE,
        summary="a part of the GPU's cores waits to be repaired at the next reset",
        clears_after=timedelta(0),
        source=f"{_HEADER}: nvmlRepairStatus; as Xid 156",
    ),
    Rule(
        name="nvml-ecc-uncorrected",
        reads="nvml.ecc.uncorrected",
        test=Grows(1, _HOUR),
        tier="serious",
        blame=Blame.DEVICE,
        summary="uncorrected memory errors",
        advice="An Xid says which work was hit and what to do (48, 94 or 95).",
        same_as="ecc-uncorrectable",
        source=f"{_DCGM}: fail on any; degraded here, because contained errors (Xid 94) need no more than a restart",
    ),
    Rule(
        name="nvml-ecc-uncorrected-before",
        reads="nvml.ecc.uncorrected",
        test=AtLeast(1),
        tier="pending",
        blame=Blame.DEVICE,
        summary="uncorrected memory errors since the last reset of the GPU",
        clears_after=timedelta(0),
        same_as="ecc-uncorrectable",
        source="Google's cluster health scanner: reset or reboot when the volatile counter is not zero",
    ),
    Rule(
        name="nvml-sram-threshold",
        reads="nvml.ecc.sram.threshold",
        test=Is(frozenset({"1"})),
        tier="serious",
        blame=Blame.DEVICE,
        summary="the GPU's SRAM has had more uncorrected errors than NVIDIA allows",
        advice="Take the GPU out of service and run NVIDIA's field diagnostics: it may qualify for return.",
        clears_after=None,
        source=f"{_HEADER}: nvmlEccSramErrorStatus, bThresholdExceeded; {_MEMORY}",
    ),
    Rule(
        name="nvml-ecc-corrected",
        reads="nvml.ecc.corrected",
        test=Grows(1_000_000, _HOUR),
        tier="suspect",
        blame=Blame.DEVICE,
        summary="a storm of corrected memory errors",
        same_as="ecc-correctable",
        source="own choice: far below the 50 million in all at which Meta's GCM gives up, far above what a row causes",
    ),
)

_RECOVERY_SOURCE = f"{_HEADER}: NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, the driver's own advice (as Xid 154)"


def _recovery(name: str, tier: str, numbers: str, summary: str) -> Rule:
    return Rule(
        name=name,
        reads="nvml.recovery_action",
        test=Is(frozenset(numbers.split())),
        tier=tier,
        blame=Blame.DEVICE,
        summary=summary,
        clears_after=timedelta(0),
        same_as="recovery-action",
        source=_RECOVERY_SOURCE,
    )


_RECOVERY = (
    _recovery("nvml-wants-reset", "reset", "1 4 6", "the driver asks for a reset of the GPU"),
    _recovery("nvml-wants-reboot", "reboot", "2 7", "the driver asks for a reboot of the node"),
    _recovery(
        "nvml-wants-drain", "reset", "3", "the driver asks to drain peer-to-peer work before it says what comes next"
    ),
    _recovery("nvml-wants-imex", "ticket", "5", "the driver asks to recover the IMEX domain, which spans nodes"),
)


def _link(name: str, reads: str, test: AtLeast | Grows, summary: str, source: str) -> Rule:
    return Rule(
        name=name,
        reads=reads,
        test=test,
        tier="suspect",
        blame=Blame.LINK,
        summary=summary,
        same_as="nvlink-errors",
        source=source,
    )


_NVLINK = (
    Rule(
        name="nvml-nvlink-down",
        reads="nvml.nvlink.up",
        test=FellBelowBest(),
        tier="serious",
        blame=Blame.LINK,
        summary="an NVLink that was up is down",
        advice="MIG turns NVLinks off on purpose; otherwise reset all GPUs and switches of this fabric together.",
        holds=_MINUTE,
        same_as="nvlink-down",
        source="Meta's GCM: critical; a minute, because links train slowly after a start (NVSentinel issue 1701)",
    ),
    Rule(
        name="nvml-nvlink-fewer-than-peers",
        reads="nvml.nvlink.active",
        test=Below(other="nvml.nvlink.active.peers"),
        tier="ticket",
        blame=Blame.LINK,
        summary="fewer NVLinks are up than on another GPU of the node",
        advice="Fine where bridges join only some of the GPUs.",
        holds=_TEN_MINUTES,
        same_as="nvlink-down",
        source="own choice: boards with NVSwitch have as many on every GPU",
    ),
    _link(
        "nvml-nvlink-replays",
        "nvml.nvlink.replay",
        Grows(10, _TEN_MINUTES),
        "an NVLink sends data again and again",
        f"{_DCGM}: fail from 1 a minute on",
    ),
    _link(
        "nvml-nvlink-recoveries",
        "nvml.nvlink.recovery",
        Grows(10, _TEN_MINUTES),
        "an NVLink trains again and again",
        f"{_DCGM}: fail from 1 a minute on",
    ),
    _link(
        "nvml-nvlink-crc",
        "nvml.nvlink.crc",
        Grows(60_000, _TEN_MINUTES),
        "an NVLink receives damaged data",
        f"{_DCGM}: fail from 100 a second on",
    ),
    _link(
        "nvml-nvlink-recovery-failed",
        "nvml.nvlink.recovery_failed",
        Grows(1, _HOUR),
        "an NVLink could not be recovered",
        f"{_HEADER}: NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS (NVLink 5)",
    ),
    _link(
        "nvml-nvlink-recovery-events",
        "nvml.nvlink.recovery_events",
        Grows(10, _TEN_MINUTES),
        "an NVLink recovers again and again",
        f"as for recoveries of older links, {_DCGM}",
    ),
    _link(
        "nvml-nvlink-ber",
        "nvml.nvlink.effective_ber",
        AtLeast(1e-6),
        "an NVLink's bit error rate after correction is too high",
        "Azure's healthagent: warning above 1e-6",
    ),
    _link(
        "nvml-nvlink-integrity",
        "nvml.nvlink.integrity_error",
        Grows(10, _HOUR),
        "an NVLink has integrity errors",
        f"own choice; {_HEADER}: NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS",
    ),
)

_FABRIC = (
    Rule(
        name="nvml-fabric-not-ready",
        reads="nvml.fabric.state",
        test=Is(frozenset({"not-started", "in-progress"})),
        tier="serious",
        blame=Blame.NODE,
        summary="the GPU does not get into its NVLink fabric, so CUDA will not start",
        advice="See whether the fabric manager runs and fits the driver's version.",
        holds=timedelta(minutes=5),
        same_as="fabric",
        source=f"{_HEADER}: nvmlGpuFabricState_t; as gpud's fabric-manager check",
    ),
    Rule(
        name="nvml-fabric-failed",
        reads="nvml.fabric.status",
        test=AtLeast(1),
        tier="serious",
        blame=Blame.NODE,
        summary="the GPU was not let into its NVLink fabric",
        holds=_MINUTE,
        same_as="fabric",
        source=f"{_HEADER}: nvmlGpuFabricInfo, status after state completed",
    ),
    Rule(
        name="nvml-fabric-unhealthy",
        reads="nvml.fabric.health",
        test=Is(frozenset({"unhealthy"})),
        tier="serious",
        blame=Blame.LINK,
        summary="the NVLink fabric calls this GPU unhealthy",
        holds=_MINUTE,
        same_as="fabric",
        source=f"{_HEADER}: nvmlGpuFabricInfo, healthSummary",
    ),
    Rule(
        name="nvml-fabric-limited",
        reads="nvml.fabric.health",
        test=Is(frozenset({"limited-capacity"})),
        tier="ticket",
        blame=Blame.LINK,
        summary="the NVLink fabric serves this GPU with limited capacity",
        holds=_MINUTE,
        same_as="fabric",
        source=f"{_HEADER}: nvmlGpuFabricInfo, healthSummary",
    ),
    Rule(
        name="nvml-fabric-bandwidth",
        reads="nvml.fabric.degraded_bandwidth",
        test=Is(frozenset({"yes"})),
        tier="ticket",
        blame=Blame.LINK,
        summary="the NVLink fabric gives this GPU less bandwidth than it should",
        holds=_MINUTE,
        same_as="fabric",
        source=f"{_HEADER}: NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW",
    ),
    Rule(
        name="nvml-fabric-route",
        reads="nvml.fabric.route_unhealthy",
        test=Is(frozenset({"yes"})),
        tier="serious",
        blame=Blame.LINK,
        summary="a route of the NVLink fabric to this GPU is unhealthy",
        holds=_MINUTE,
        same_as="fabric",
        source=f"{_HEADER}: NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY",
    ),
    Rule(
        name="nvml-fabric-timeout",
        reads="nvml.fabric.access_timeout_recovery",
        test=Is(frozenset({"yes"})),
        tier="ticket",
        blame=Blame.LINK,
        summary="the NVLink fabric recovers from an access that timed out",
        holds=_TEN_MINUTES,
        same_as="fabric",
        source=f"{_HEADER}: NVML_GPU_FABRIC_HEALTH_MASK_ACCESS_TIMEOUT_RECOVERY",
    ),
    Rule(
        name="nvml-fabric-configuration",
        reads="nvml.fabric.configuration",
        test=Is(
            frozenset(
                {
                    "wrong-system-guid",
                    "wrong-chassis-serial",
                    "too-few-nvlinks",
                    "incompatible-firmware",
                    "invalid-location",
                    "invalid-gpu-state",
                }
            )
        ),
        tier="ticket",
        blame=Blame.NODE,
        summary="the NVLink fabric is configured wrongly for this GPU",
        holds=_MINUTE,
        same_as="fabric",
        source=f"{_HEADER}: NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION; no partition is an operator's choice",
    ),
)

_PCIE = (
    Rule(
        name="nvml-pcie-width",
        reads="nvml.pcie.width",
        test=Below(other="nvml.pcie.width.most"),
        tier="ticket",
        blame=Blame.LINK,
        summary="the PCIe link has fewer lanes than board and slot can do",
        advice="Drain the node and seat the board or its riser anew.",
        holds=timedelta(minutes=5),
        same_as="pcie-width",
        source=f"{_HEADER}: the most that is possible with this GPU and system",
    ),
    Rule(
        name="nvml-pcie-width-fell",
        reads="nvml.pcie.width",
        test=FellBelowBest(),
        tier="ticket",
        blame=Blame.LINK,
        summary="the PCIe link has lost lanes",
        advice="Drain the node and seat the board or its riser anew.",
        holds=timedelta(minutes=5),
        same_as="pcie-width",
        source="own choice, for systems whose most is not told",
    ),
    Rule(
        name="nvml-pcie-replays",
        reads="nvml.pcie.replay",
        test=Grows(310, _TEN_MINUTES),
        tier="suspect",
        blame=Blame.LINK,
        summary="the PCIe link sends data again and again",
        same_as="pcie-errors",
        source=f"{_DCGM}: warning above 31 a minute for 16 lanes of generation 5 (16 for generation 4)",
    ),
    Rule(
        name="nvml-pcie-fatal",
        reads="nvml.pcie.fatal",
        test=Grows(1, _HOUR),
        tier="serious",
        blame=Blame.LINK,
        summary="a fatal error on the PCIe link",
        same_as="pcie-errors",
        source=f"{_HEADER}: NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR",
    ),
    Rule(
        name="nvml-pcie-non-fatal",
        reads="nvml.pcie.non_fatal",
        test=Grows(10, _HOUR),
        tier="suspect",
        blame=Blame.LINK,
        summary="uncorrected errors on the PCIe link",
        same_as="pcie-errors",
        source=f"own choice; {_HEADER}: NVML_FI_DEV_PCIE_COUNT_NON_FATAL_ERROR",
    ),
)

_SIX_MINUTES = 360
_THROTTLE_SOURCE = "gpud's hw-slowdown check: bad when it is seen in 60 % of ten minutes"


def _throttle(name: str, reading: str, blame: Blame, summary: str, cause: str) -> tuple[Rule, Rule]:
    """By the time that newer drivers count, and by the state that all drivers tell."""
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
        "the machine's power supply tells the GPU to slow down",
        "power-brake",
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
    (119, "reset", "gsp"),
    (120, "reset", "gsp"),
    (136, "reset", "nvlink-down"),
    (140, "reset", "ecc-uncorrectable"),
    (143, "reset", "xid-143"),
    *((code, "serious", "nvlink-down") for code in range(144, 151)),
    (151, "reboot", "xid-151"),
    (155, "reset", "nvlink-down"),
    (156, "reset", "xid-156"),
    (158, "reset", "xid-158"),
    (167, "reboot", "xid-167"),
    (169, "reset", "xid-169"),
    (171, "reset", "ecc-uncorrectable"),
    (172, "reset", "ecc-uncorrectable"),
)
"""Those that take a node out, and those of NVLinks, of which NVML tells the number only. The rest is the kernel's."""

_XIDS = tuple(
    Rule(
        name=f"nvml-xid-{code}",
        reads=f"nvml.xid.{code}",
        test=Grows(1, _HOUR),
        tier=tier,
        blame=Blame.DEVICE,
        summary=f"NVML tells of Xid {code}",
        clears_after=_HOUR if tier == "serious" else None,
        same_as=cause,
        source=_CATALOGUE,
    )
    for code, tier, cause in _XID_TIERS
)

XIDS = tuple(code for code, _, _ in _XID_TIERS)
"""The Xids that rules are about."""

RULES: tuple[Rule, ...] = (
    *_STATE,
    *_PULSE,
    *_MEMORY_RULES,
    *_RECOVERY,
    *_NVLINK,
    *_FABRIC,
    *_PCIE,
    *_HEAT,
    *_XIDS,
)
