"""`NodeHealth`: what an agent knows about its node and must not forget."""

from __future__ import annotations

from datetime import datetime

from healthd.core.model import Finding, Verdict
from healthd.core.objects.meta import ObjectMeta, Slim


class Device(Slim, frozen=True, kw_only=True):
    """One GPU of a node's inventory. `pci` is `dddd:bb:dd.f`, lower case."""

    pci: str
    uuid: str = ""
    name: str = ""
    index: int | None = None


class KernelLogCursor(Slim, frozen=True, kw_only=True):
    """
    Where reading stopped: *sequence* is the last kernel record that was judged in boot *boot_id*.

    Every *source* (`kmsg`, `journal`, `file`) numbers in its own way, so the number means nothing to another one.
    """

    boot_id: str = ""
    sequence: int = -1
    source: str = ""


class PodEnd(Slim, frozen=True, kw_only=True):
    """The agent saw processes of pod *uid* and later, at *at*, saw that none was left: proof for a fence."""

    uid: str
    at: datetime


class NodeHealthStatus(Slim, frozen=True, kw_only=True):
    """Everything that an agent knows and must not forget."""

    verdict: Verdict = Verdict.UNKNOWN
    message: str = ""
    findings: list[Finding] = []
    inventory: list[Device] = []
    boot_id: str = ""
    cursor: KernelLogCursor = KernelLogCursor()
    lost_records: int = 0
    live_pods: list[str] = []
    """Uids of the pods that have processes on the node, sorted."""
    gone_pods: list[PodEnd] = []
    """Pods whose processes ended lately, oldest first. A pod that is in neither list is not known to be gone."""


class NodeHealth(Slim, frozen=True, kw_only=True):
    """healthd.dev/v1alpha1, cluster scope, named as its node."""

    metadata: ObjectMeta
    status: NodeHealthStatus = NodeHealthStatus()
