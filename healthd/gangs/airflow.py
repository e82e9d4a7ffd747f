"""
Pods that Airflow makes: why healthd does not make them again. Pure.

A task of Airflow watches its pod by name. When the pod is gone the task fails, and its next try makes another pod under
another name. A pod that healthd had made again would run beside that one, with the same checkpoints.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from healthd.core.api import ANNOTATION_RECREATE

LABELS = ("kubernetes_pod_operator", "kubernetes_executor")
"""On the pods of a KubernetesPodOperator, and on those in which the KubernetesExecutor runs the tasks themselves."""


def airflow_trouble(labels: Mapping[str, str]) -> Collection[str]:
    """Why the gang of a pod with these *labels* is left alone, where healthd would make its pods again."""
    if not any(label in labels for label in LABELS):
        return ()
    why = "Airflow makes its pods, and makes them again when a task is tried again"
    return (f"{why}: add the annotation {ANNOTATION_RECREATE}: owner, and retries to the task",)
