"""The components of `deploy/` that grant the controller its rights to the kinds that healthd ships."""

from __future__ import annotations

from collections.abc import Mapping

COMPONENTS: Mapping[str, str] = {
    "PyTorchJob": "kubeflow-training",
    "TFJob": "kubeflow-training",
    "XGBoostJob": "kubeflow-training",
    "PaddleJob": "kubeflow-training",
    "JAXJob": "kubeflow-training",
    "MPIJob": "kubeflow-mpi",
    "TrainJob": "kubeflow-trainer",
    "RayCluster": "ray",
    "RayJob": "ray",
    "LeaderWorkerSet": "leaderworkerset",
    "AppWrapper": "appwrapper",
    "VolcanoJob": "volcano",
    "Workload": "kueue",
}
"""By kind; each is a folder of `deploy/components`. Kinds that need none are not in it."""
