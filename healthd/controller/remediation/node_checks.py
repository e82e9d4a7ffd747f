"""
The pods that check repaired nodes: created once for each check, deleted when it is over.

The name of a pod follows from the attempt and the number of the check, so a second creation, by this controller or
another one, is refused and changes nothing. Its Node owns it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from healthd.cluster.port import AlreadyExists, Cluster, NotFound
from healthd.controller.remediation.requests import CannotAsk
from healthd.core.api import Node, Pod
from healthd.core.config.remediation import RemediationPolicy
from healthd.core.node.check_pods import LABEL_CHECK, NAMESPACE
from healthd.core.remediation.actions import DeleteCheck, StartCheck
from healthd.core.remediation.node_check import CheckOrder, check_pod
from healthd.core.remediation.situation import CheckPlan

log = structlog.get_logger()


class NodeChecks:
    """Check pods in *cluster*. *own_image* returns the image that this program runs from; empty where it has none."""

    def __init__(self, cluster: Cluster, policy: RemediationPolicy, own_image: Callable[[], Awaitable[str]]) -> None:
        self._cluster = cluster
        self._policy = policy
        self._own_image = own_image

    async def start(self, node: Node, action: StartCheck, plan: CheckPlan) -> str:
        """Create the pod. Returns what it waits for; empty where it was created. Raises CannotAsk, ClusterError."""
        if not plan.gpus or plan.waits_for:
            return f"the check waits for {plan.waits_for or plan.lacks or 'the Node'}"
        image = self._policy.check_image or await self._own_image()
        if not image:
            raise CannotAsk("which image checks the node is not known: name it in remediation.check_image")
        pod = check_pod(
            CheckOrder(
                node=node,
                attempt=action.attempt,
                check=action.check,
                gpus=plan.gpus,
                image=image,
                policy=self._policy,
            )
        )
        try:
            await self._cluster.create(pod)
        except AlreadyExists:  # another controller was faster; it is the same pod
            return ""
        except NotFound:
            raise CannotAsk(f"there is no namespace {NAMESPACE}: apply deploy/components/node-check") from None
        log.info("remediation.check_made", node=node.metadata.name, pod=pod.metadata.name, gpus=plan.gpus)
        return ""

    async def delete(self, action: DeleteCheck) -> None:
        """Delete the pod. Raises ClusterError."""
        with suppress(NotFound):
            await self._cluster.delete(Pod, action.name, namespace=NAMESPACE, uid=action.uid)

    async def nodes(self) -> set[str]:
        """The nodes on which there is such a pod. Raises ClusterError."""
        pods = (await self._cluster.list(Pod, namespace=NAMESPACE, labels={LABEL_CHECK: None})).items
        return {pod.spec.node_name for pod in pods if pod.spec.node_name}
