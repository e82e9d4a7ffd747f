"""The chart on a real kubelet: an upgrade to a bad configuration is taken back, and `helm test` sees what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.manifests import DEPLOY
from tests.lab.control_plane import ControlPlane
from tests.lab.fixtures import get
from tests.lab.helm import Helm
from tests.lab.modules import HELM
from tests.lab.programs import LabError
from tests.lab.real.nodes import RealNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

HERE = ("--namespace", "healthd-system")
IMAGE = {"repository": "localhost/healthd", "tag": "lab", "pullPolicy": "Never"}
"""There is no registry: the node has the image already."""
PATIENCE = ("--wait", "--timeout", "120s")


@pytest.fixture(scope="module")
def real_node_count() -> int:
    """What is shown here, one node shows."""
    return 1


@pytest.fixture
def helm(request: pytest.FixtureRequest, control_plane: ControlPlane, real_nodes: RealNodes, tmp_path: Path) -> Helm:
    """At a control plane with one real node."""
    del real_nodes
    get(HELM, request)
    return Helm(HELM, tmp_path, control_plane)


def test_what_helm_calls_ready_passes_its_test_and_what_cannot_start_is_taken_back(
    helm: Helm, control_plane: ControlPlane
) -> None:
    helm.run("uninstall", "healthd", *HERE, "--ignore-not-found", "--wait")  # what an earlier try left behind
    helm.run("install", "healthd", str(DEPLOY), *HERE, "--create-namespace", *PATIENCE, values={"image": IMAGE})
    said = helm.run("test", "healthd", *HERE, "--logs")
    assert "Phase:          Succeeded" in said

    with pytest.raises(LabError, match=r"upgrade.*failed"):
        helm.run(
            *("upgrade", "healthd", str(DEPLOY), *HERE, "--reuse-values", "--rollback-on-failure", "--timeout", "30s"),
            values={"config": {"quarantine": {"budget": -3}}},
        )

    control_plane.kubectl("rollout", "status", "deployment/healthd-controller", *HERE, "--timeout=60s")
    assert "Phase:          Succeeded" in helm.run("test", "healthd", *HERE)
