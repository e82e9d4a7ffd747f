"""
Objects for tests: valid for a real API server as they stand, and every field that matters can be overridden.

*meta* are further fields of `ObjectMeta`. Status is set for tests of pure code; a cluster drops it at creation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from healthd.core.api import (
    ANNOTATION_COMPLETION_INDEX,
    LABEL_GANG,
    LABEL_SPARE,
    RESOURCES,
    AnyObject,
    Cause,
    Condition,
    Container,
    GangRef,
    Job,
    JobSpec,
    JobStatus,
    Lease,
    LeaseSpec,
    Node,
    NodeHealth,
    NodeHealthStatus,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    PodTemplate,
    Recovery,
    RecoverySpec,
    RecoveryStatus,
    Taint,
    Toleration,
)
from healthd.core.api.model import Blame, CauseKind, Finding, RepairAction, Severity, Verdict
from healthd.core.config import SinkPolicy
from tests.fakes import START

A_CONTAINER = Container(name="main", image="busybox:1.36", command=["sleep", "3600"])
"""What pods run unless a test says otherwise."""


def a_node(
    name: str = "node-a",
    *,
    spare: bool = False,
    unschedulable: bool = False,
    taints: Sequence[Taint] = (),
    conditions: Sequence[Condition] | None = None,
    boot_id: str = "boot-1",
    labels: Mapping[str, str] | None = None,
    **meta: Any,
) -> Node:
    """A ready node."""
    ready = Condition(type="Ready", status="True", reason="KubeletReady", last_transition_time=START)
    all_labels = {**(labels or {}), **({LABEL_SPARE: "true"} if spare else {})}
    return Node(
        metadata=ObjectMeta(name=name, labels=all_labels, **meta),
        spec=NodeSpec(unschedulable=unschedulable, taints=list(taints)),
        status=NodeStatus(
            conditions=[ready] if conditions is None else list(conditions), node_info=NodeSystemInfo(boot_id=boot_id)
        ),
    )


def a_pod(
    name: str = "pod-a",
    *,
    namespace: str = "default",
    node: str = "",
    gang: str = "",
    index: int | None = None,
    owner: AnyObject | None = None,
    container: Container = A_CONTAINER,
    tolerations: Sequence[Toleration] = (),
    grace_seconds: int = 30,
    status: PodStatus | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **meta: Any,
) -> Pod:
    """A pending pod; with *node* it is bound, with *index* it is that rank of an Indexed Job, *owner* controls it."""
    all_labels = {**(labels or {}), **({LABEL_GANG: gang} if gang else {})}
    all_annotations = {**(annotations or {}), **({} if index is None else {ANNOTATION_COMPLETION_INDEX: str(index)})}
    owners = [owned_by(owner)] if owner else meta.pop("owner_references", [])
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            labels=all_labels,
            annotations=all_annotations,
            owner_references=owners,
            **meta,
        ),
        spec=PodSpec(
            node_name=node,
            containers=[container],
            tolerations=list(tolerations),
            restart_policy="Never",
            termination_grace_period_seconds=grace_seconds,
        ),
        status=status or PodStatus(),
    )


def a_job(
    name: str = "train",
    *,
    namespace: str = "default",
    ranks: int = 2,
    suspend: bool = False,
    backoff_limit: int = 0,
    container: Container = A_CONTAINER,
    template_annotations: Mapping[str, str] | None = None,
    status: JobStatus | None = None,
    **meta: Any,
) -> Job:
    """An Indexed Job of *ranks* pods, each labelled with the gang's name."""
    template = PodTemplate(
        metadata=ObjectMeta(labels={LABEL_GANG: name}, annotations=dict(template_annotations or {})),
        spec=PodSpec(containers=[container], restart_policy="Never"),
    )
    return Job(
        metadata=ObjectMeta(name=name, namespace=namespace, **meta),
        spec=JobSpec(
            suspend=suspend,
            parallelism=ranks,
            completions=ranks,
            completion_mode="Indexed",
            backoff_limit=backoff_limit,
            template=template,
        ),
        status=status or JobStatus(),
    )


def a_lease(
    name: str = "slot-0",
    *,
    namespace: str = "default",
    holder: str = "",
    renewed: datetime | None = None,
    seconds: int | None = None,
    **meta: Any,
) -> Lease:
    """A lease, without a holder unless *holder* is given."""
    return Lease(
        metadata=ObjectMeta(name=name, namespace=namespace, **meta),
        spec=LeaseSpec(holder_identity=holder, renew_time=renewed, lease_duration_seconds=seconds),
    )


def a_nodehealth(
    name: str = "node-a",
    *,
    verdict: Verdict = Verdict.HEALTHY,
    findings: Sequence[Finding] = (),
    status: NodeHealthStatus | None = None,
    **meta: Any,
) -> NodeHealth:
    """What an agent reports of node *name*."""
    known = status or NodeHealthStatus(verdict=verdict, findings=list(findings), boot_id="boot-1")
    return NodeHealth(metadata=ObjectMeta(name=name, **meta), status=known)


def a_finding(
    rule: str = "xid-79",
    *,
    device: str = "0000:3b:00.0",
    severity: Severity = Severity.FATAL,
    action: RepairAction = RepairAction.RESET_GPU,
    blame: Blame = Blame.DEVICE,
    message: str = "GPU has fallen off the bus",
    at: datetime = START,
    quarantines: bool = True,
    **fields: Any,
) -> Finding:
    """A finding that takes its node out of service."""
    return Finding(
        id=f"{device}/{rule}",
        device=device,
        rule=rule,
        severity=severity,
        action=action,
        blame=blame,
        message=message,
        raised_at=at,
        last_at=at,
        quarantines=quarantines,
        **fields,
    )


def a_cause(
    kind: CauseKind = CauseKind.HARDWARE,
    *,
    message: str = "node-a: GPU 0000:3b:00.0 has fallen off the bus",
    at: datetime = START,
    node: str = "",
    finding: str = "",
) -> Cause:
    """Why a recovery began."""
    return Cause(kind=kind, message=message, at=at, node=node, finding=finding)


def a_recovery(
    name: str = "train-1",
    *,
    namespace: str = "default",
    gang: AnyObject | None = None,
    first_attempt: int = 1,
    cause: Cause | None = None,
    gang_started_at: datetime | None = None,
    status: RecoveryStatus | None = None,
    **meta: Any,
) -> Recovery:
    """The first recovery of *gang* (default: a Job `train` that is nowhere stored)."""
    reference = GangRef(kind="Job", name="train", namespace=namespace, uid="uid-train")
    return Recovery(
        metadata=ObjectMeta(name=name, namespace=namespace, **meta),
        spec=RecoverySpec(
            gang=gang_ref(gang) if gang else reference,
            first_attempt=first_attempt,
            cause=cause or a_cause(),
            gang_started_at=gang_started_at,
        ),
        status=status or RecoveryStatus(),
    )


def gang_ref(root: AnyObject) -> GangRef:
    """How a recovery names the root of its gang."""
    metadata = root.metadata
    return GangRef(kind=RESOURCES[type(root)].kind, name=metadata.name, namespace=metadata.namespace, uid=metadata.uid)


def owned_by(owner: AnyObject) -> OwnerReference:
    """A reference to a stored object that controls another."""
    resource = RESOURCES[type(owner)]
    return OwnerReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
    )


def a_sink_policy(name: str, **fields: Any) -> SinkPolicy:
    """An alert service that gets every incident, by a webhook."""
    return SinkPolicy(name=name, urls=("https://alerts.example.com/",), **fields)
