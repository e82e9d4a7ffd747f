"""The gangs of `tests.lab.kinds.gangs`, as scenarios of recoveries play them: marked, and on nodes of their own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from healthd.core.api import Pod
from healthd.core.patches import merged
from healthd.gangs.kinds import SHIPPED
from tests.kubernetes.gangs import ENABLED, Gang, Manifest
from tests.lab.kinds.gangs import KINDS, NAME, ray_cluster_spec

_IN_A_QUEUE = " in a queue"
_QUEUEABLE = ("Job", "JobSet", "PyTorchJob", "MPIJob", "TrainJob", "RayJob", "plain pods")
QUEUED = [kind + _IN_A_QUEUE for kind in _QUEUEABLE]
"""Under Kueue."""
PLAYED = ["Job", "JobSet", "StatefulSet", "plain pods", *(kind.name for kind in SHIPPED), *QUEUED]
"""Every kind of the table, as a user calls it."""
BY_LABELS = {"healthd.dev/gang": NAME}
"""Written on the pod template by the user of a kind whose template healthd cannot change while it is stopped."""
_KUBEFLOW = "training.kubeflow.org/replica-type"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What the scenarios need to know of a kind beside how it is written."""

    first: Mapping[str, str] | None = None
    """Labels of the pod that others depend on: a master, a head, a launcher. None: all members are alike."""
    is_labelled: bool = False
    """Whether its user has to put the label of the gang on the pods."""
    beside: int = 0
    """Members without GPUs."""
    is_member: Callable[[Pod], bool] = lambda pod: True
    is_queued: bool = False
    """Whether it is in a queue of Kueue, which has quota for it alone."""
    ends: bool = True
    """Whether it can complete."""
    root: str = ""
    """Its kind, by the name that a recovery gives it; empty: the first word of what a user calls it."""
    elastic: Manifest | None = None
    """What its user adds to its spec so that it may have fewer members; None: it may not."""
    counters: tuple[tuple[str, str], ...] = ()
    """What its owner limits: an object as kubectl names it, and the path in its status. All stay 0 or absent."""


def _of_no_job(pod: Pod) -> bool:
    """The pod that submits a RayJob is made by a Job, and trains nothing."""
    return not any(owner.kind == "Job" for owner in pod.metadata.owner_references)


def _kubeflow(kind: str, first: str, elastic: Manifest | None = None) -> Shape:
    labels = {_KUBEFLOW: first} if first else None
    return Shape(first=labels, elastic=elastic, counters=((f"{kind.lower()}/{NAME}", "replicaStatuses.*.failed"),))


_FEWER_WORKERS = {"workerGroupSpecs": [{**ray_cluster_spec()["workerGroupSpecs"][0], "minReplicas": 2}]}
"""Of a Ray: fewer than it has."""


SHAPES = {
    "PyTorchJob": _kubeflow("PyTorchJob", "master", {"elasticPolicy": {"minReplicas": 2, "maxReplicas": 4}}),
    "TFJob": _kubeflow("TFJob", "chief"),
    "XGBoostJob": _kubeflow("XGBoostJob", "master"),
    "PaddleJob": _kubeflow("PaddleJob", "master"),
    "JAXJob": _kubeflow("JAXJob", ""),
    "MPIJob": Shape(
        first={"training.kubeflow.org/job-role": "launcher"},
        beside=1,
        elastic={},
        counters=((f"job/{NAME}-launcher", "failed"), (f"mpijob/{NAME}", "replicaStatuses.*.failed")),
    ),
    "TrainJob": Shape(
        is_labelled=True, counters=((f"jobset/{NAME}", "restarts"), (f"jobset/{NAME}", "restartsCountTowardsMax"))
    ),
    "RayCluster": Shape(first={"ray.io/node-type": "head"}, ends=False, elastic=_FEWER_WORKERS),
    "RayJob": Shape(
        first={"ray.io/node-type": "head"},
        is_member=_of_no_job,
        ends=False,
        elastic={"rayClusterSpec": _FEWER_WORKERS},
        counters=((f"rayjob/{NAME}", "failed"),),
    ),
    "VolcanoJob": Shape(counters=((f"jobs.batch.volcano.sh/{NAME}", "retryCount"),)),
    "Job scheduled by Volcano": Shape(counters=((f"jobs.batch/{NAME}", "failed"),)),
    "LeaderWorkerSet": Shape(first={"leaderworkerset.sigs.k8s.io/worker-index": "0"}, ends=False),
    "AppWrapper": Shape(
        is_labelled=True,
        counters=(
            (f"appwrapper/{NAME}", "resettingCount"),
            (f"appwrapper/{NAME}", "retries"),
            (f"job/{NAME}", "failed"),
        ),
    ),
}

SHAPES["plain pods"] = Shape(root="PodGang")
SHAPES["StatefulSet"] = Shape(ends=False, elastic={})
SHAPES["Job"] = Shape(elastic={}, counters=((f"job/{NAME}", "failed"),))
SHAPES["JobSet"] = Shape(
    first={"jobset.sigs.k8s.io/replicatedjob-name": "leader"},
    counters=((f"jobset/{NAME}", "restarts"), (f"jobset/{NAME}", "restartsCountTowardsMax")),
)
SHAPES |= {
    kind: replace(SHAPES[kind.removesuffix(_IN_A_QUEUE)], is_labelled=True, is_queued=True, elastic=None)
    for kind in QUEUED
}


def gang_of(kind: str, notes: Mapping[str, str], spec: Mapping[str, Any] | None = None) -> Gang:
    """A gang of four of a *kind*; *notes* are annotations of its pods, *spec* is merged into its own."""
    shape = SHAPES[kind]

    def write(pod: Mapping[str, Any], annotations: Mapping[str, str], members: int) -> list[Manifest]:
        del members  # of each kind there are four
        made = [copy.deepcopy(each) for each in KINDS[kind].manifests]
        made[-1]["spec"] = copy.deepcopy(merged(made[-1]["spec"], spec or {}))
        for template in _templates(made):
            template["spec"].update(pod)
            metadata = template.setdefault("metadata", {})
            metadata["annotations"] = {**metadata.get("annotations", {}), **notes}
            metadata["labels"] = {**metadata.get("labels", {}), **(BY_LABELS if shape.is_labelled else {})}
        metadata = made[-1]["metadata"]
        metadata["annotations"] = {**metadata.get("annotations", {}), **ENABLED, **annotations}
        return made

    resource = KINDS[kind].deleted.partition("/")[0]
    return Gang(root_of(kind), resource, write, beside=shape.beside, is_member=shape.is_member)


def root_of(kind: str) -> str:
    """The kind of its root, as a recovery names it."""
    return SHAPES[kind].root or kind.split()[0]


def _templates(part: Any) -> Iterator[Manifest]:
    """Every pod template in a manifest, however deep."""
    children = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    for child in children:
        if isinstance(child, dict) and "containers" in child.get("spec", {}):
            yield child
        yield from _templates(child)
