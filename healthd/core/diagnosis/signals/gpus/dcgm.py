"""
Rules about what DCGM reports of GPUs, as dcgm-exporter shows it: a second witness.

None of them takes a node out of service. The page comes from another program over HTTP without proof of its writer.
What is certain is also reported by the kernel or by NVML; there it is the same fault, with this as more evidence.
"""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api.model import Blame
from healthd.core.diagnosis.signals.gpus import nvml
from healthd.core.diagnosis.signals.rule import AtLeast, Grows, Is, Rule

_MINUTE = timedelta(minutes=1)
_TEN_MINUTES = timedelta(minutes=10)
_HOUR = timedelta(hours=1)
_WATCHES = "DCGM 4.6, health watches (modules/health)"
_MEMORY = "NVIDIA GPU memory error management; DCGM 4.6, health watches"
_REASONS = "nvml.h: clocks event reasons; the time is that of gpud's hw-slowdown check"

_PRESENCE = (
    Rule(
        name="dcgm-gpu-missing",
        reads="dcgm.listed",
        test=Is(frozenset({"no"})),
        tier="suspect",
        blame=Blame.DEVICE,
        summary="DCGM no longer reports the GPU, but others",
        holds=2 * _MINUTE,
        same_as="gpu-lost",
        source="dcgm-exporter issue 348: a GPU that falls off the bus disappears from its page",
    ),
)

_MEMORY_RULES = (
    Rule(
        name="dcgm-row-remap-failure",
        reads="dcgm.row_remap_failure",
        test=AtLeast(1),
        tier="serious",
        blame=Blame.DEVICE,
        summary="a row of the GPU's memory could not be replaced",
        clears_after=None,
        same_as="row-remap-failure",
        source=_MEMORY,
    ),
    Rule(
        name="dcgm-row-remap-pending",
        reads="dcgm.row_remap_pending",
        test=AtLeast(1),
        tier="pending",
        blame=Blame.DEVICE,
        summary="a row of the GPU's memory is replaced at the next reset",
        same_as="row-remap-pending",
        source=_MEMORY,
    ),
    Rule(
        name="dcgm-pages-pending",
        reads="dcgm.retired_pending",
        test=AtLeast(1),
        tier="pending",
        blame=Blame.DEVICE,
        summary="a page of the GPU's memory is retired at the next reset",
        same_as="row-remap-pending",
        source=_MEMORY,
    ),
    Rule(
        name="dcgm-remapped-uncorrectable",
        reads="dcgm.remapped_uncorrectable",
        test=Grows(1, 24 * _HOUR),
        tier="ticket",
        blame=Blame.DEVICE,
        summary="a row of the GPU's memory was replaced after an uncorrectable error",
        same_as="row-remap-pending",
        source=_MEMORY,
    ),
    Rule(
        name="dcgm-many-remapped-rows",
        reads="dcgm.remapped_uncorrectable",
        test=AtLeast(512),
        tier="ticket",
        blame=Blame.DEVICE,
        summary="the GPU has used up most of its spare rows of memory",
        advice="Plan to replace it.",
        same_as="rows-used-up",
        source=f"{_WATCHES}: warns at 512 uncorrectable remaps",
    ),
    Rule(
        name="dcgm-ecc-uncorrectable",
        reads="dcgm.ecc_uncorrectable",
        test=Grows(1, _HOUR),
        tier="serious",
        blame=Blame.DEVICE,
        summary="an uncorrectable error in the GPU's memory",
        same_as="ecc-uncorrectable",
        source=f"{_WATCHES}: fails at the first one since the driver was loaded",
    ),
    Rule(
        name="dcgm-ecc-correctable",
        reads="dcgm.ecc_correctable",
        test=Grows(1000, _HOUR),
        tier="ticket",
        blame=Blame.DEVICE,
        summary="the GPU's memory corrects many errors",
        same_as="ecc-correctable",
        source="own choice: a few a day are usual, and one bad row makes thousands an hour",
    ),
)

_LINKS = (
    Rule(
        name="dcgm-pcie-replays",
        reads="dcgm.pcie_replays",
        test=Grows(310, _TEN_MINUTES),
        tier="ticket",
        blame=Blame.LINK,
        summary="the GPU's PCIe link repeats packets all the time, and is slower for it",
        advice="Look at seat, riser and cable when the node is idle.",
        same_as="pcie-errors",
        source=f"{_WATCHES}: 31 a minute on a x16 link of generation 5",
    ),
    *(
        Rule(
            name=f"dcgm-nvlink-{what}",
            reads=f"dcgm.nvlink_{what}",
            # A fraction of the rate of one a minute at which DCGM fails: links are retrained now and then, also at a
            # reset.
            test=Grows(10, _TEN_MINUTES),
            tier="suspect",
            blame=Blame.LINK,
            summary=f"an NVLink of the GPU has {what} all the time",
            same_as="nvlink-errors",
            source=f"{_WATCHES}: one a minute",
        )
        for what in ("replays", "recoveries")
    ),
    *(
        Rule(
            name=f"dcgm-nvlink-{what.replace('_', '-')}",
            reads=f"dcgm.nvlink_{what}",
            test=Grows(60_000, _TEN_MINUTES),
            tier="suspect",
            blame=Blame.LINK,
            summary="an NVLink of the GPU drops damaged packets all the time",
            same_as="nvlink-errors",
            source=f"{_WATCHES}: 100 a second",
        )
        for what in ("crc", "crc_data")
    ),
)

_HEAT = (
    Rule(
        name="dcgm-thermal-slowdown",
        reads="dcgm.hw_thermal",
        test=Is(frozenset({"yes"})),
        tier="ticket",
        blame=Blame.DEVICE,
        summary="the GPU slows down because it is too hot",
        advice="See to fans, airflow or coolant.",
        holds=6 * _MINUTE,
        same_as="thermal",
        source=_REASONS,
    ),
    Rule(
        name="dcgm-power-brake",
        reads="dcgm.power_brake",
        test=Is(frozenset({"yes"})),
        tier="ticket",
        blame=Blame.NODE,
        summary="the machine's power supply makes the GPU slow down",
        holds=6 * _MINUTE,
        same_as="power-brake",
        source=_REASONS,
    ),
    Rule(
        name="dcgm-thermal-violation",
        reads="dcgm.thermal_violation",
        test=Grows(3e8, _TEN_MINUTES),
        tier="ticket",
        blame=Blame.DEVICE,
        summary="the GPU was slowed down because it is too hot",
        advice="See to fans, airflow or coolant.",
        same_as="thermal",
        # Versions disagree about the unit: this is half the time in microseconds, and 0.3 s in nanoseconds.
        source=f"{_WATCHES}: warns at the first",
    ),
)

_STATE = (
    Rule(
        name="dcgm-recovery-action",
        reads="dcgm.recovery_action",
        test=Is(frozenset({"1", "2", "4", "6", "7"})),
        tier="serious",
        blame=Blame.DEVICE,
        summary="the driver asks for a reset or a reboot",
        advice="1, 4 and 6: reset the GPU; 2 and 7: reboot the node.",
        same_as="recovery-action",
        source="nvml.h: nvmlDeviceGpuRecoveryAction_t",
    ),
    Rule(
        name="dcgm-fabric-manager",
        reads="dcgm.fabric_manager",
        test=Is(frozenset({"4"})),
        tier="serious",
        blame=Blame.NODE,
        summary="the GPU could not join the NVLink fabric",
        advice="Look at the log of the fabric manager.",
        holds=_MINUTE,
        same_as="fabric",
        source="dcgm_structs.h: dcgmFabricManagerStatus_t, failure",
    ),
    Rule(
        name="dcgm-fabric-manager-absent",
        reads="dcgm.fabric_manager",
        test=Is(frozenset({"1", "2"})),
        tier="ticket",
        blame=Blame.NODE,
        summary="the GPU waits to join the NVLink fabric",
        advice="See that the fabric manager runs.",
        # It starts after the driver, and takes minutes for a whole rack.
        holds=timedelta(minutes=15),
        same_as="fabric",
        source="dcgm_structs.h: dcgmFabricManagerStatus_t, not started and in progress",
    ),
)

_WATCHED = (
    ("pcie", "its PCIe link", Blame.LINK),
    ("nvlink", "its NVLinks", Blame.LINK),
    ("pmu", "its power management unit", Blame.DEVICE),
    ("mcu", "its microcontroller", Blame.DEVICE),
    ("mem", "its memory", Blame.DEVICE),
    ("sm", "its processors", Blame.DEVICE),
    ("inforom", "its InfoROM", Blame.DEVICE),
    ("thermal", "its temperature", Blame.DEVICE),
    ("power", "its power", Blame.NODE),
    ("driver", "the driver", Blame.NODE),
    ("nvswitch_fatal", "the NVSwitches", Blame.PEER),
    ("nvswitch_nonfatal", "the NVSwitches", Blame.PEER),
    ("connectx", "the network devices", Blame.UNKNOWN),
    ("all", "all of it", Blame.UNKNOWN),
)
"""What DCGM's own health check watches. No fault is named: one watch covers several, and the part names which one."""


def _health(watch: str, what: str, blame: Blame) -> tuple[Rule, Rule]:
    rule_name = f"dcgm-health-{watch.replace('_', '-')}"
    failed = Rule(
        name=rule_name,
        reads=f"dcgm.health.{watch}",
        test=Is(frozenset({"fail"})),
        tier="serious",
        blame=blame,
        summary=f"DCGM's health check of {what} fails",
        advice="Run `dcgmi health -c` for the whole verdict.",
        holds=_MINUTE,
        source=_WATCHES,
    )
    warned = Rule(
        name=f"{rule_name}-warns",
        reads=f"dcgm.health.{watch}",
        test=Is(frozenset({"warn"})),
        tier="record" if watch in {"thermal", "power"} else "ticket",
        blame=blame,
        summary=f"DCGM's health check of {what} warns",
        advice="Run `dcgmi health -c` for the whole verdict.",
        holds=_MINUTE,
        source=f"{_WATCHES}; for temperature and power it warns at the first moment of throttling",
    )
    return failed, warned


_HEALTH = tuple(rule for watched in _WATCHED for rule in _health(*watched))

_XIDS = tuple(
    Rule(
        name=f"dcgm-xid-{rule.reads.rpartition('.')[2]}",
        reads=rule.reads.replace("nvml.", "dcgm."),
        test=Grows(1, _HOUR),
        tier="serious",
        blame=rule.blame,
        summary=f"DCGM reports Xid {rule.reads.rpartition('.')[2]}",
        clears_after=_HOUR,
        same_as=rule.same_as,
        source="NVIDIA Xid catalog; DCGM learns of Xids from NVML's events",
    )
    for rule in nvml.RULES
    if rule.reads.startswith("nvml.xid.")
)
"""The Xids that NVML's rules cover."""

RULES: tuple[Rule, ...] = (
    *_PRESENCE,
    *_MEMORY_RULES,
    *_LINKS,
    *_HEAT,
    *_STATE,
    *_HEALTH,
    *_XIDS,
)
