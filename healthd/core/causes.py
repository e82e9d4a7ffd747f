"""
Faults that several kinds of witnesses tell of: the kernel log, NVML, DCGM, counters. Pure; a table of data.

A finding of one witness is the finding of all: what the others see becomes evidence of it. The rules about readings
name their fault themselves (`Rule.same_as`); here stand the rules of the kernel log.
"""

from __future__ import annotations

import msgspec

from healthd.core.judgement import Judgement

TOLD_BY_THE_KERNEL = {
    "gpu-lost": frozenset({"xid-79", "gpu-lost"}),
    "recovery-action": frozenset({"xid-154"}),
    "row-remap-failure": frozenset({"xid-64"}),
    "row-remap-pending": frozenset({"xid-63"}),
    "ecc-uncorrectable": frozenset({"xid-48", "xid-94", "xid-95", "xid-171", "xid-172"}),
    "nvlink-down": frozenset({"xid-74", *(f"xid-{code}" for code in range(144, 151))}),
    "gsp-timeout": frozenset({"xid-119", "xid-120"}),
    "pcie-error": frozenset({"aer-fatal"}),
    "memory-uncorrectable": frozenset({"mce-fatal", "edac-ue"}),
    "nic-health": frozenset({"mlx5-health"}),
    "nic-port-down": frozenset({"mlx5-link-down", "net-link-down"}),
    "pcie-errors": frozenset({"aer-storm", "aer-nonfatal"}),
}
"""By fault: the rules of the kernel log that tell of it."""

_CAUSE_OF = {rule: cause for cause, rules in TOLD_BY_THE_KERNEL.items() for rule in rules}


def with_cause(judgement: Judgement) -> Judgement:
    """A judgement of the kernel log with the fault that it tells of, where others can see that, too."""
    cause = _CAUSE_OF.get(judgement.rule, "")
    return msgspec.structs.replace(judgement, cause=cause) if cause else judgement
