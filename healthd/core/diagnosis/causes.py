"""
Faults that several kinds of sources show: the kernel log, NVML, DCGM, counters. Pure; a table of data.

Each of these sources is a witness of the fault. All witnesses share one finding: what the others see becomes evidence
of it. The rules about readings name their fault themselves (`Rule.same_as`); this table is for the rules of the kernel
log.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache

import msgspec

from healthd.core.diagnosis.judgement import Judgement
from healthd.core.diagnosis.xid import fades_after_hours
from healthd.core.diagnosis.xid.words import WordingEffect, wordings

KERNEL_REPORTED = {
    "gpu-lost": frozenset({"xid-79", "gpu-lost"}),
    "gpu-without-driver": frozenset({"gpu-probe-failed", "gpu-other-driver", "gpu-not-supported"}),
    "recovery-action": frozenset({"xid-154"}),
    "row-remap-failure": frozenset({"xid-64"}),
    "row-remap-pending": frozenset({"xid-63"}),
    "ecc-uncorrectable": frozenset({"xid-48", "xid-94", "xid-95", "xid-171", "xid-172"}),
    "nvlink-down": frozenset({"xid-74", *(f"xid-{code}" for code in range(144, 151))}),
    "gsp-timeout": frozenset({"xid-119", "xid-120"}),
    # Faults that NVML and DCGM report by the number alone.
    **{
        f"xid-{code}": frozenset({f"xid-{code}"})
        for code in (46, 54, 62, 110, 136, 140, 143, 151, 155, 156, 158, 167, 169)
    },
    "pcie-error": frozenset({"aer-fatal"}),
    "pcie-errors": frozenset({"aer-storm", "aer-nonfatal"}),
    "memory-uncorrectable": frozenset({"mce-fatal", "edac-ue", "memory-failure", "memory-page-lost"}),
    "memory-correctable": frozenset({"edac-ce-storm"}),
    "kernel-oops": frozenset({"kernel-oops", "kernel-bug"}),
    "soft-lockup": frozenset({"soft-lockup"}),
    "cpu-throttled": frozenset({"cpu-throttled"}),
    "filesystem-read-only": frozenset({"fs-read-only"}),
    "disk-lost": frozenset({"nvme-lost"}),
    "nic-port-down": frozenset({"mlx5-link-down", "net-link-down"}),
    "nic-module": frozenset({"mlx5-cable"}),
    "nic-module-hot": frozenset({"mlx5-module-hot"}),
    "efa-timeout": frozenset({"efa-timeout", "efa-dead"}),
}
"""By fault: the rules of the kernel log that report it."""

_CAUSE_OF = {rule: cause for cause, rules in KERNEL_REPORTED.items() for rule in rules}


def with_cause(judgement: Judgement) -> Judgement:
    """A judgement of the kernel log with its fault added, where other sources can see that fault too."""
    cause = cause_of(judgement.rule)
    return msgspec.structs.replace(judgement, cause=cause) if cause else judgement


def cause_of(rule: str) -> str:
    """The fault that a rule of the kernel log reports. Empty where no other source can see it."""
    return _CAUSE_OF.get(rule, "")


def is_the_kernels(rule: str) -> bool:
    """Whether *rule* is a rule of the kernel log about a fault that other sources can see too."""
    return rule in _CAUSE_OF


@cache
def stands_for(rule: str) -> timedelta | None:
    """
    How long the kernel's last record counts where another source watches the same fault. None: until a repair.

    It does not count at all where the kernel also reports the end of the fault: then the watching source knows as much.
    """
    if not is_the_kernels(rule):
        return None
    if any(row.rule == rule and row.says is WordingEffect.ENDS for row in wordings()):
        return timedelta(0)
    return timedelta(hours=fades_after_hours(rule)) or None
