"""What a loss is due to, from the causes of a recovery."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from healthd.core.api import Cause
from healthd.core.api.gpu_time import LossCause
from healthd.core.api.model import CauseKind

FAMILIES: Mapping[str, LossCause] = {
    "xid-": LossCause.XID,
    "sxid-": LossCause.SXID,
    "nvml-": LossCause.NVML,
    "dcgm-": LossCause.DCGM,
    "pcie-": LossCause.PCIE,
    "ib-": LossCause.INFINIBAND,
    "roce-": LossCause.ROCE,
    "efa-": LossCause.EFA,
    "eth-": LossCause.ETHERNET,
}
"""What the names of rules begin with -> their family. All other rules are `hardware`."""

_BY_WEIGHT = (
    CauseKind.HARDWARE,
    CauseKind.INTERRUPTED,
    CauseKind.SOFTWARE,
    CauseKind.HANG,
    CauseKind.MAINTENANCE,
    CauseKind.STRAGGLER,
    CauseKind.CAPACITY,
)
"""Of the causes of one stop, the first of these counts: ranks that fail beside a broken GPU are a consequence."""


def loss_cause(causes: Iterable[Cause]) -> LossCause:
    """What the loss of one stop is due to, when these are its *causes*."""
    found = sorted(causes, key=lambda cause: (_BY_WEIGHT.index(cause.kind), cause.at))
    if not found:
        return LossCause.UNKNOWN
    return family(found[0].finding) if found[0].kind is CauseKind.HARDWARE else LossCause(found[0].kind.value)


def family(finding: str) -> LossCause:
    """The family of the rule of a finding, `<device>/<rule>`."""
    rule = finding.rpartition("/")[2]
    return next((found for prefix, found in FAMILIES.items() if rule.startswith(prefix)), LossCause.HARDWARE)
