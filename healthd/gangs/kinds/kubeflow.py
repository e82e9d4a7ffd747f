"""The jobs of the Kubeflow training operator, and of the MPI operator, which share a group and its labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from healthd.core.config.gang_kinds import ElasticDescription, KindDescription, PodsDescription, Trap

LABEL = "training.kubeflow.org/"

_SPECS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}
_NEVER_BY_DEFAULT = frozenset({"TFJob", "XGBoostJob", "JAXJob"})
"""Kinds whose operator takes Never for a restartPolicy that is left out; for the others, OnFailure."""
_LEAST_BAD = {"TFJob": "ExitCode", "XGBoostJob": "ExitCode"}
"""The restartPolicy with which the fewest things end such a job; OnFailure for the others."""
_ENDED_BY: Sequence[tuple[str, str, str]] = (
    ("TFJob", "OnFailure", "is deleted, as a drain does"),
    ("TFJob", "ExitCode", "is deleted, as a drain does, or exits with 1 to 127"),
    ("XGBoostJob", "OnFailure", "fails or is deleted"),
    ("XGBoostJob", "ExitCode", "exits with 1 to 127"),
    ("PyTorchJob", "ExitCode", "exits with 1 to 127, as after an error of NCCL"),
    ("PaddleJob", "ExitCode", "exits with 1 to 127"),
    ("JAXJob", "ExitCode", "exits with 1 to 127"),
)
"""What one pod does that is the end of such a job: its kind, its restartPolicy. For Never see below."""


_ELASTIC = {
    "PyTorchJob": ElasticDescription(
        names=("Worker",),
        least="spec.elasticPolicy.minReplicas",
        most="spec.elasticPolicy.maxReplicas",
        unless=("spec.elasticPolicy.metrics!=",),
    )
}
"""Whose workers may be fewer, by kind."""


def _managed_by(operator: str) -> Trap:
    return Trap(
        when=f"spec.runPolicy.managedBy!=|kubeflow.org/{operator}",
        prevents=True,
        why="another controller than its operator runs it, such as MultiKueue in another cluster",
        remedy="leave runPolicy.managedBy out",
    )


def _ends_it(kind: str, policy: str, when: str) -> Trap:
    return Trap(
        when=f"spec.{_SPECS[kind]}.*.restartPolicy={policy}",
        why=f"such a {kind} is failed for good when one of its pods {when}, often before healthd has stopped it",
        remedy=_remedy(kind, policy),
    )


def _remedy(kind: str, policy: str) -> str:
    best = _LEAST_BAD.get(kind, "OnFailure")
    advice = f"restartPolicy: {best}" if policy != best else "exit with 128 or more after what a restart can repair"
    return f"{advice}, and let no drain delete its pods one by one" if kind == "TFJob" else advice


def _restart_policies(kind: str) -> Iterator[Trap]:
    never = "Never|" if kind in _NEVER_BY_DEFAULT else "Never"
    yield _ends_it(kind, never, "fails or is deleted")
    yield from (_ends_it(kind, policy, when) for each, policy, when in _ENDED_BY if each == kind)


def _autoscaled(kind: str) -> Iterator[Trap]:
    if kind == "PyTorchJob":
        yield Trap(
            when="spec.elasticPolicy.metrics!=",
            why="an autoscaler changes how many workers there are, also while healthd waits for all of them",
            remedy="leave elasticPolicy.metrics out",
        )


def _training_job(kind: str) -> KindDescription:
    """
    One of kubeflow.org/v1: all are alike. A suspend deletes every pod, also the failed ones.

    A pod that is still there when the job resumes counts as failed, also one that only waits for its kubelet to remove
    it. That is the end of an XGBoostJob, and of every job whose restartPolicy is Never.
    """
    return KindDescription(
        api_version="kubeflow.org/v1",
        kind=kind,
        plural=f"{kind.lower()}s",
        suspend="spec.runPolicy.suspend",
        pods=(PodsDescription(at=f"spec.{_SPECS[kind]}.*", elastic=_ELASTIC.get(kind)),),
        name_label=f"{LABEL}job-name",
        part_label=f"{LABEL}replica-type",
        index_labels=(f"{LABEL}replica-index",),
        stopped="Suspended",
        succeeded=("Succeeded",),
        failed=("Failed",),
        started="status.startTime",
        counts_ended_pods=True,
        traps=(
            _managed_by("training-operator"),
            *_restart_policies(kind),
            *_autoscaled(kind),
        ),
    )


TRAINING_JOBS: Sequence[KindDescription] = tuple(map(_training_job, _SPECS))

MPIJOB = KindDescription(
    api_version="kubeflow.org/v2beta1",
    kind="MPIJob",
    plural="mpijobs",
    suspend="spec.runPolicy.suspend",
    pods=(
        PodsDescription(at="spec.mpiReplicaSpecs.Worker", elastic=ElasticDescription()),
        PodsDescription(at="spec.mpiReplicaSpecs.Launcher", numbered=False),
    ),
    owners=("MPIJob", "Job"),
    name_label=f"{LABEL}job-name",
    index_labels=(f"{LABEL}replica-index",),
    stopped="Suspended",
    succeeded=("Succeeded",),
    failed=("Failed",),
    started="status.startTime",
    kept_job="{name}-launcher",
    leaves_ended_pods=True,
    traps=(
        _managed_by("mpi-operator"),
        Trap(
            when="spec.runLauncherAsWorker=true",
            prevents=True,
            why="its launcher is a worker, too, and takes the number of the first one",
            remedy="leave runLauncherAsWorker out",
        ),
    ),
)
"""The operator keeps the launcher's Job while it is stopped, and never replaces a worker that has failed."""
