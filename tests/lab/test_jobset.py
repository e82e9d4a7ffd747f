"""
The JobSet controller of the lab is the real one, with its webhooks.
"""

from __future__ import annotations

import pytest
import yaml

from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.pods import Pods, a_pod
from tests.lab.programs import LabError, wait_until
from tests.lab.simulated import SimulatedNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.usefixtures("jobset_controller")]


def a_jobset(namespace: str, size: int) -> str:
    """A gang that starts again as a whole when one of its pods fails."""
    job = {"completions": size, "parallelism": size, "completionMode": "Indexed", "backoffLimit": 0}
    template = {"spec": {**job, "template": {"spec": a_pod()}}}
    jobset: Json = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {
            "failurePolicy": {"maxRestarts": 3},
            "replicatedJobs": [{"name": "ranks", "replicas": 1, "template": template}],
        },
    }
    return yaml.safe_dump(jobset)


def test_one_failed_pod_starts_the_whole_set_again(
    control_plane: ControlPlane, simulated_nodes: SimulatedNodes, namespace: str
) -> None:
    simulated_nodes.add(2)
    pods = Pods(control_plane, namespace)
    control_plane.apply(a_jobset(namespace, 2))
    pods.await_count(2, "Running")
    before = set(pods.names())

    simulated_nodes.end_containers(namespace, min(before), exit_code=1)
    wait_until("other pods", lambda: before.isdisjoint(pods.names()), limit=30)
    pods.await_count(2, "Running")

    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/train"
    assert control_plane.api.get(path)["status"]["restarts"] == 1


def test_its_webhook_keeps_a_running_template_from_being_edited(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.apply(a_jobset(namespace, 1))
    edited = a_jobset(namespace, 1).replace("image: none", "image: other")

    with pytest.raises(LabError, match=r"vjobset\.kb\.io"):
        control_plane.apply(edited)
