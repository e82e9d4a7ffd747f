"""
The lab's control plane is a real one, and leaves nothing behind.
"""

from __future__ import annotations

import pytest

from tests.lab.build import KUBERNETES
from tests.lab.control_plane import ControlPlane

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def test_it_says_the_version_that_it_was_built_from(control_plane: ControlPlane) -> None:
    assert f"Server Version: {KUBERNETES}" in control_plane.kubectl("version")


def test_objects_outlive_the_api_server(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.kubectl("create", "configmap", "kept", "-n", namespace)

    control_plane.stop_api_server()
    control_plane.start_api_server()

    assert control_plane.has(f"/api/v1/namespaces/{namespace}/configmaps/kept")
