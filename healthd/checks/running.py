"""The list of checks, and how they run one after the other until their time is up."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from healthd.checks import devices
from healthd.checks.check import Check, CheckContext, CheckResult, Expected, InUse, failed
from healthd.checks.cuda import GpuMemory, PcieBandwidth
from healthd.checks.dcgm_diag import DcgmDiag
from healthd.checks.inventory import InventoryCheck
from healthd.checks.links import NvLinks, PcieWidth
from healthd.checks.memory import Ecc
from healthd.checks.nccl import Nccl
from healthd.checks.ports import Nics
from healthd.checks.rdma import RdmaLoopback
from healthd.checks.report import FinishedCheck
from healthd.core.api import Nic
from healthd.core.diagnosis.blindness import blind_now
from healthd.core.diagnosis.readings import Sample


def all_checks(dcgm_level: int = 1) -> tuple[Check, ...]:
    """In the order in which they run: the cheapest first."""
    passive = (InventoryCheck(), NvLinks(), Ecc(), PcieWidth(), Nics())
    return (*passive, PcieBandwidth(), GpuMemory(), RdmaLoopback(), Nccl(), DcgmDiag(dcgm_level))


def context_of(
    samples: Iterable[Sample],
    nics: Sequence[Nic],
    *,
    expected: Expected,
    sys: Path,
    environ: Mapping[str, str],
    ends: float,
) -> CheckContext:
    """What one sample shows of the machine."""
    samples = list(samples)
    places = devices.by_name(samples)
    return CheckContext(
        gpus=devices.gpus(places),
        ports=devices.ports(nics, places),
        places=places,
        unread=blind_now(samples, {"nvml": f"{gpus} GPUs are expected"} if (gpus := _gpus_of(expected)) else {}),
        expected=expected,
        sys=sys,
        environ=environ,
        ends=ends,
    )


def _gpus_of(expected: Expected) -> int:
    if expected.gpus is not None:
        return expected.gpus
    return expected.known.gpus.count if expected.known.gpus else 0


def run_all(checks: Iterable[Check], context: CheckContext) -> Iterator[FinishedCheck]:
    """Run *checks* in order. Each is returned when it is done. Raises InUse."""
    for check in checks:
        began = time.monotonic()
        result = _run(check, context)
        yield FinishedCheck(
            name=check.name,
            status=result.status,
            why=result.why,
            seconds=round(time.monotonic() - began, 2),
            figures=result.figures,
        )


def _run(check: Check, context: CheckContext) -> CheckResult:
    if not context.seconds_left:
        return failed("there was no time left for it")
    try:
        return check.run(context)
    except InUse:
        raise
    except Exception as error:  # a bug must neither count as health nor stop the other checks
        return failed(f"the check itself failed: {error!r}")
