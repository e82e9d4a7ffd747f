"""
Rules about the memory of GPUs, as NVML reports it. Data.

A row that waits to be remapped is not urgent. A row that can not be remapped is a broken part. Corrected errors are
weak evidence, so only a storm of them is reported.
"""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api.model import Blame
from healthd.core.diagnosis.signals.rule import AtLeast, Grows, Is, Rule

_HOUR = timedelta(hours=1)

_HEADER = "nvml.h"
_DCGM = "DCGM 4.6 health watches"
_MEMORY = "NVIDIA GPU memory error management"

MEMORY = (
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
        same_as="rows-used-up",
        source=f"{_HEADER}: nvmlRowRemapperHistogramValues; {_MEMORY}",
    ),
    Rule(
        name="nvml-row-remaps",
        reads="nvml.row_remap.uncorrected",
        test=AtLeast(512),
        tier="ticket",
        blame=Blame.DEVICE,
        summary="as many memory rows as there can be were remapped after uncorrected errors",
        same_as="rows-used-up",
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
