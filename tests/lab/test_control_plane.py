"""
The lab's control plane is a real one, keeps what it must, and leaves nothing behind.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.api import ApiError
from tests.lab.control_plane import STRANGER, ControlPlane, sweep
from tests.lab.kubernetes import HAS_MUTATING_POLICIES, RELEASE
from tests.lab.programs import LabError, started_at

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.usefixtures("built_control_plane")]

_NAMESPACED = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\n"


def test_it_says_the_version_that_it_was_built_from(control_plane: ControlPlane) -> None:
    assert f"Server Version: {RELEASE}" in control_plane.kubectl("version")


@pytest.mark.skipif(not HAS_MUTATING_POLICIES, reason="Kubernetes before 1.36 serves none")
def test_pods_can_be_mutated_without_a_webhook(control_plane: ControlPlane) -> None:
    served = control_plane.kubectl("api-resources", "--api-group=admissionregistration.k8s.io", "-o", "name")

    assert "mutatingadmissionpolicies.admissionregistration.k8s.io" in served


def test_a_namespace_is_ready_for_pods_at_once(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.kubectl("run", "first", "--image=none", "-n", namespace)

    assert control_plane.has(f"/api/v1/namespaces/{namespace}/pods/first")


def test_objects_outlive_the_api_server(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.apply(_NAMESPACED.format(name="kept", namespace=namespace))

    control_plane.stop_api_server()
    control_plane.start_api_server()

    assert control_plane.has(f"/api/v1/namespaces/{namespace}/configmaps/kept")


def test_during_an_outage_connections_are_refused(control_plane: ControlPlane) -> None:
    control_plane.stop_api_server()

    try:
        with pytest.raises(ConnectionRefusedError):
            control_plane.api.get("/api/v1/nodes")
    finally:
        control_plane.start_api_server()


def test_a_stranger_is_known_and_may_do_nothing(control_plane: ControlPlane) -> None:
    stranger = control_plane.api_as(control_plane.identity(STRANGER))

    with pytest.raises(ApiError, match=f'User "{STRANGER}" cannot list resource "nodes"'):
        stranger.get("/api/v1/nodes")


def test_a_node_may_not_touch_another(control_plane: ControlPlane) -> None:
    node = control_plane.api_as(control_plane.identity("system:node:real-1"))

    with pytest.raises(ApiError, match="not allowed to modify node"):
        node.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "real-2"}})


def test_a_service_account_gets_a_token_of_its_own(control_plane: ControlPlane, namespace: str) -> None:
    account = control_plane.api_as(control_plane.service_account_token(namespace, "default"))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}

    said = account.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)

    assert said["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:default"


def test_nothing_is_left_of_a_control_plane_that_was_stopped() -> None:
    with ControlPlane() as stopped:
        pids = [program.pid for program in stopped.programs.values()]

    assert [pid for pid in pids if pid is not None and started_at(pid)] == []
    assert not stopped.directory.exists()


def test_what_was_started_to_stay_is_found_again_and_ended(tmp_path: Path) -> None:
    forgotten = ControlPlane(stays=True, at=tmp_path)
    forgotten.start()

    assert sweep(tmp_path) == []
    assert set(sweep(tmp_path, kept=True)) == {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
    assert [name for name, program in forgotten.programs.items() if program.pid] == []
    assert list(tmp_path.iterdir()) == []
    forgotten.stop()


def test_an_error_of_kubectl_says_what_was_asked_and_why_it_failed(control_plane: ControlPlane) -> None:
    with pytest.raises(LabError, match=r"kubectl get nothing: .*doesn't have a resource type"):
        control_plane.kubectl("get", "nothing")
