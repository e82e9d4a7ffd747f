"""The manifests of the page about Kubernetes, at a real API server and under the eyes of the doctor."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from healthd.cli.doctor import parse_target, read_chart
from healthd.core.report.doctor import HintPolicy, Level, examine
from tests.docs.page import ROOT, files, fragment, kustomizations
from tests.lab.control_plane import ControlPlane
from tests.lab.fleet import connected

pytestmark = [pytest.mark.lab]

GANGS = {"job.yaml": "job/llama", "jobset.yaml": "jobset/mixtral", "statefulset.yaml": "statefulset/gemma"}
GANGS["pods.yaml"] = "pods/phi"


@pytest.fixture(scope="module")
def kinds(control_plane: ControlPlane, jobset_controller: None) -> ControlPlane:
    """A control plane that knows every kind on the page."""
    del jobset_controller
    return control_plane


@pytest.mark.parametrize("name", sorted({*GANGS, "trainer.yaml"} | set(files())))
def test_a_manifest_is_taken_as_it_stands(kinds: ControlPlane, name: str) -> None:
    said = kinds.kubectl("apply", "--dry-run=server", "-f", "-", input=files()[name])

    assert "created (server dry run)" in said


@pytest.mark.parametrize("name", GANGS)
async def test_the_doctor_has_nothing_against_it(kinds: ControlPlane, name: str) -> None:
    namespace = kinds.new_namespace()
    kinds.kubectl("apply", "-n", namespace, "-f", "-", input=files()[name])
    async with connected(kinds) as cluster:
        chart = await read_chart(cluster, parse_target(GANGS[name], namespace), None)

    installed = dataclasses.replace(chart, hint_policy=HintPolicy.INSTALLED, rights={})  # there is no healthd here
    remarks = examine(installed)

    assert [remark.what for remark in remarks if remark.level is not Level.NOTE] == []


@pytest.mark.parametrize("text", kustomizations(), ids=["newest", "before-1.36"])
def test_a_kustomization_of_the_page_is_good(control_plane: ControlPlane, tmp_path: Path, text: str) -> None:
    rendered = render(control_plane, tmp_path, yaml.safe_load(text))

    assert {"DaemonSet", "Deployment", "ClusterRole"} <= {manifest["kind"] for manifest in rendered}


def test_the_image_and_the_volume_of_the_page_arrive(control_plane: ControlPlane, tmp_path: Path) -> None:
    rendered = render(control_plane, tmp_path, yaml.safe_load(kustomizations()[0]))

    (controller,) = [each["spec"]["template"]["spec"] for each in rendered if each["kind"] == "Deployment"]
    (container,) = controller["containers"]
    roles = {each["metadata"]["name"]: each for each in rendered if each["kind"] == "ClusterRole"}
    allowed = roles["healthd-controller-verifier"]["rules"][0]
    assert container["image"] == "registry.example.com/healthd:0.1.0"
    assert allowed["resourceNames"] == [container["image"]]
    assert "/checkpoints/default/runs" in [mount["mountPath"] for mount in container["volumeMounts"]]
    assert "runs" in [volume["name"] for volume in controller["volumes"]]


def test_without_mutating_policies_none_is_applied(control_plane: ControlPlane, tmp_path: Path) -> None:
    rendered = render(control_plane, tmp_path, yaml.safe_load(kustomizations()[1]))

    assert not [manifest for manifest in rendered if manifest["kind"].startswith("MutatingAdmissionPolicy")]


def test_a_configuration_of_ones_own_takes_the_place_of_the_shipped_one(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    both = {**yaml.safe_load(kustomizations()[0]), **fragment("in my-cluster/kustomization.yaml")}

    rendered = render(control_plane, tmp_path, both)

    (configuration,) = [manifest for manifest in rendered if manifest["kind"] == "ConfigMap"]
    assert configuration["data"] == {"healthd.yaml": "quarantine: {cordon: false}\n"}


def test_the_environment_for_older_clusters_is_good(control_plane: ControlPlane) -> None:
    container = {"name": "trainer", "image": "none", **fragment("in a container")}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "old"}, "spec": {"containers": [container]}}

    said = control_plane.kubectl("apply", "--dry-run=server", "-f", "-", input=yaml.safe_dump(pod))

    assert "created (server dry run)" in said


def render(control_plane: ControlPlane, folder: Path, kustomization: dict[str, Any]) -> list[dict[str, Any]]:
    """What kubectl makes of somebody's own folder beside deploy/."""
    (folder / "deploy").symlink_to(ROOT / "deploy")
    own = folder / "my-cluster"
    own.mkdir()
    (own / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    (own / "healthd.yaml").write_text("quarantine: {cordon: false}\n")
    return [each for each in yaml.safe_load_all(control_plane.kubectl("kustomize", str(own))) if each]
