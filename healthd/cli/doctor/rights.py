"""What the API server says of the controller's rights, and which image would verify a gang's checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from healthd.cluster.port import Cluster, Forbidden, Invalid, NotFound, Reader
from healthd.core.api import (
    AccessReviewSpec,
    LocalSubjectAccessReview,
    ObjectMeta,
    Pod,
    ResourceAttributes,
    SubjectAccessReview,
)
from healthd.core.api.names import SYSTEM_NAMESPACE
from healthd.core.config import CheckpointsPolicy
from healthd.core.report.doctor import Right, VerifierPod
from healthd.core.report.doctor.rights import ACCOUNT, CONTROLLER, GROUPS, verifiers_of


async def ask_about(cluster: Cluster, rights: Iterable[Right]) -> Mapping[Right, bool | None]:
    """Whether the controller's account has each of *rights*; None where that may not be asked. Raises ClusterError."""
    return {right: await _has(cluster, right) for right in rights}


async def _has(cluster: Cluster, right: Right) -> bool | None:
    resource, _, subresource = right.resource.partition("/")
    what = ResourceAttributes(
        verb=right.verb,
        group=right.group,
        resource=resource,
        subresource=subresource,
        namespace=right.namespace,
        name=right.name,
    )
    spec = AccessReviewSpec(user=ACCOUNT, groups=list(GROUPS), resource_attributes=what)
    kind = LocalSubjectAccessReview if right.namespace else SubjectAccessReview
    try:
        return (await cluster.create(kind(metadata=ObjectMeta(namespace=right.namespace), spec=spec))).status.allowed
    except (Forbidden, NotFound, Invalid):
        return None


async def find_verifiers(
    cluster: Reader, location: str, namespace: str, policy: CheckpointsPolicy | None
) -> tuple[VerifierPod, ...] | None:
    """As `core.report.doctor.rights.verifiers_of`, with the controller's pods that are there. Raises ClusterError."""
    try:
        pods = (await cluster.list(Pod, namespace=SYSTEM_NAMESPACE, labels=CONTROLLER)).items
    except (NotFound, Forbidden):
        pods = []
    there = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
    return verifiers_of(location, namespace, there, policy)
