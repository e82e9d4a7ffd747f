"""The LeaderWorkerSet: groups of pods, each of a leader and its workers. It never ends by itself."""

from __future__ import annotations

from healthd.core.config.gang_kinds import KindDescription, PodsDescription, Trap

LABEL = "leaderworkerset.sigs.k8s.io/"

LEADERWORKERSET = KindDescription(
    api_version="leaderworkerset.x-k8s.io/v1",
    kind="LeaderWorkerSet",
    plural="leaderworkersets",
    replicas="spec.replicas",
    pods=(
        PodsDescription(at="spec.leaderWorkerTemplate", count=("size",), template=("workerTemplate", "leaderTemplate")),
    ),
    owners=("StatefulSet",),
    name_label=f"{LABEL}name",
    index_labels=(f"{LABEL}group-index", f"{LABEL}worker-index"),
    stopped="status.replicas=0",
    traps=(
        Trap(
            when="spec.leaderWorkerTemplate.restartPolicy=None",
            why="a member that fails is replaced alone, while the others of its group wait for it",
            remedy="restartPolicy: RecreateGroupOnPodRestart",
        ),
        Trap(
            when="spec.replicas!=1|0",
            why="all its groups are one gang: a fault under one of them stops them all",
            remedy="a LeaderWorkerSet for each group that can go on alone",
        ),
    ),
)
"""All its groups are one gang: they share the number that stops them."""
