"""The RayCluster and the RayJob of KubeRay. A RayJob makes a RayCluster, with a new name at each start."""

from __future__ import annotations

from healthd.core.config.gang_kinds import ElasticDescription, KindDescription, PodsDescription, Trap

LABEL = "ray.io/cluster"


def _pods(spec: str) -> tuple[PodsDescription, ...]:
    return (
        PodsDescription(at=f"{spec}.headGroupSpec", count=()),
        PodsDescription(
            at=f"{spec}.workerGroupSpecs.*",
            count=("replicas", "numOfHosts"),
            elastic=ElasticDescription(
                least="minReplicas", most="maxReplicas", unless=(f"{spec}.enableInTreeAutoscaling=true",)
            ),
        ),
    )


def _autoscaler(spec: str) -> Trap:
    return Trap(
        when=f"{spec}.enableInTreeAutoscaling=true",
        why="the autoscaler changes how many workers there are, also while healthd waits for all of them",
        remedy="a fixed number of replicas in each worker group",
    )


RAYCLUSTER = KindDescription(
    api_version="ray.io/v1",
    kind="RayCluster",
    plural="rayclusters",
    suspend="spec.suspend",
    pods=_pods("spec"),
    name_label=LABEL,
    stopped="RayClusterSuspended",
    started="RayClusterSuspended",
    noticed_stop="RayClusterSuspending",
    traps=(
        _autoscaler("spec"),
        Trap(
            when="spec.headGroupSpec!=",
            why="a program that was submitted to it ends with it, and healthd cannot submit it again",
            remedy="a RayJob, or a submitter that waits for the cluster and submits again",
        ),
    ),
)
"""
KubeRay deletes no pod in the look that notices a stop, and makes none in the one that notices a start: it writes its
condition, and looks again two seconds later or when the spec, a label or an annotation changes. A change that comes
before it has written the condition may be part of the same look and wake it no more, so healthd waits for that first.
"""
RAYJOB = KindDescription(
    api_version="ray.io/v1",
    kind="RayJob",
    plural="rayjobs",
    suspend="spec.suspend",
    pods=_pods("spec.rayClusterSpec"),
    owners=("RayCluster",),
    name_label=LABEL,
    name_suffix="(-raycluster)?-[bcdfghjklmnpqrstvwxz2456789]{5}",
    stopped="status.jobDeploymentStatus=Suspended",
    succeeded=("status.jobDeploymentStatus=Complete",),
    failed=("status.jobDeploymentStatus=Failed",),
    started="status.startTime",
    traps=(
        Trap(
            when="spec.shutdownAfterJobFinishes!=true",
            prevents=True,
            why="KubeRay refuses to suspend it, and its pods run on",
            remedy="shutdownAfterJobFinishes: true",
        ),
        Trap(
            when="spec.clusterSelector.*!=",
            prevents=True,
            why="it runs on a RayCluster that others share, and KubeRay does not suspend that",
            remedy="rayClusterSpec instead of clusterSelector, or restarts of the RayCluster",
        ),
        Trap(
            when="spec.backoffLimit=0",
            why="it is failed for good when its program ends with an error, often before healthd has stopped it",
            remedy="backoffLimit: 3; healthd's own restarts do not count",
        ),
        _autoscaler("spec.rayClusterSpec"),
    ),
)
"""The pod that submits the job is none of its members: KubeRay deletes it at each stop, and it writes no checkpoint."""
