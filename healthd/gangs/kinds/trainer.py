"""The TrainJob of Kubeflow Trainer, which makes a JobSet of its own name, which makes the pods."""

from __future__ import annotations

from healthd.core.config.gang_kinds import KindDescription, Trap

TRAINJOB = KindDescription(
    api_version="trainer.kubeflow.org/v1alpha1",
    kind="TrainJob",
    plural="trainjobs",
    suspend="spec.suspend",
    below="JobSet",
    owners=("Job",),
    name_label="jobset.sigs.k8s.io/jobset-name",
    stopped="Suspended",
    succeeded=("Complete",),
    failed=("Failed",),
    traps=(
        Trap(
            when="spec.managedBy!=|trainer.kubeflow.org/trainjob-controller",
            prevents=True,
            why="another controller than Kubeflow Trainer runs it, such as MultiKueue in another cluster",
            remedy="leave managedBy out",
        ),
    ),
)
"""Its pod template is that of a runtime that many share, and most of what it may override wedges the resume."""
