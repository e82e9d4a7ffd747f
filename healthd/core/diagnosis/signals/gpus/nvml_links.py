"""
Rules about the links of a GPU, as NVML reports them: NVLink, its fabric, and PCIe. Data.

A link has two ends and a cable, so none of these takes a node out of service. The Xids do, because they show more. The
generation of a PCIe link falls while a GPU is idle, so no rule reads it; its width does not.
"""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api.model import Blame
from healthd.core.diagnosis.signals.rule import AtLeast, Below, FellBelowBest, Grows, Is, Rule

_MINUTE = timedelta(minutes=1)
_TEN_MINUTES = timedelta(minutes=10)
_HOUR = timedelta(hours=1)

_HEADER = "nvml.h"
_DCGM = "DCGM 4.6 health watches"


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


NVLINK = (
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

FABRIC = (
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

PCIE = (
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
        source="own choice, for systems whose maximum is not reported",
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
        same_as="pcie-error",
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
