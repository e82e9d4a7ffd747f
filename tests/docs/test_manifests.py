"""The manifests of the pages about Kubernetes, at a real API server and under the eyes of the doctor."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from healthd.cli.commands.cluster.doctor import parse_target, read_chart
from healthd.core.report.doctor import HintPolicy, RemarkLevel, examine
from tests import quick_yaml
from tests.docs.page import MY_CLUSTER, ROOT, kubernetes_page, manifests
from tests.lab.control_plane import ControlPlane
from tests.lab.fleet import connected

pytestmark = [pytest.mark.lab]

GANGS = {"job.yaml": "job/llama", "jobset.yaml": "jobset/mixtral", "statefulset.yaml": "statefulset/gemma"}
GANGS["pods.yaml"] = "pods/phi"
OWN = [
    fragment
    for name in ("install", "operate")
    for fragment in kubernetes_page(name).fragments("in my-cluster/kustomization.yaml")
]
"""What the pages add to one's own kustomization."""


@pytest.fixture(scope="module")
def kinds(control_plane: ControlPlane, jobset_controller: None) -> ControlPlane:
    """A control plane that knows every kind of the examples."""
    del jobset_controller
    return control_plane


@pytest.mark.parametrize("name", sorted({*GANGS, "trainer.yaml"} | set(manifests())))
def test_a_manifest_is_taken_as_it_stands(kinds: ControlPlane, name: str) -> None:
    said = kinds.kubectl("apply", "--dry-run=server", "-f", "-", input=manifests()[name])

    assert "created (server dry run)" in said


@pytest.mark.parametrize("name", GANGS)
async def test_the_doctor_has_nothing_against_it(kinds: ControlPlane, name: str) -> None:
    namespace = kinds.new_namespace()
    kinds.kubectl("apply", "-n", namespace, "-f", "-", input=manifests()[name])
    async with connected(kinds) as cluster:
        chart = await read_chart(cluster, parse_target(GANGS[name], namespace), None)

    # There is no healthd here.
    installed = dataclasses.replace(chart, is_installed=True, leases=None, hint_policy=HintPolicy.INSTALLED, rights={})
    remarks = examine(installed)

    assert [remark.what for remark in remarks if remark.level is not RemarkLevel.NOTE] == []


@pytest.mark.parametrize("own", [{}, *OWN])
def test_a_kustomization_of_the_page_is_good(control_plane: ControlPlane, tmp_path: Path, own: dict[str, Any]) -> None:
    rendered = render(control_plane, tmp_path, own)

    assert {"DaemonSet", "Deployment", "ClusterRole"} <= {manifest["kind"] for manifest in rendered}


def test_the_image_and_the_volume_of_the_page_arrive(control_plane: ControlPlane, tmp_path: Path) -> None:
    rendered = render(control_plane, tmp_path, {})

    (controller,) = [each["spec"]["template"]["spec"] for each in rendered if each["kind"] == "Deployment"]
    (container,) = controller["containers"]
    roles = {each["metadata"]["name"]: each for each in rendered if each["kind"] == "ClusterRole"}
    allowed = roles["healthd-controller-verifier"]["rules"][0]
    assert container["image"] == "registry.example.com/healthd:0.1.0"
    assert allowed["resourceNames"] == [container["image"]]
    assert "/checkpoints/default/runs" in [mount["mountPath"] for mount in container["volumeMounts"]]
    assert "runs" in [volume["name"] for volume in controller["volumes"]]


def test_without_mutating_policies_none_is_applied(control_plane: ControlPlane, tmp_path: Path) -> None:
    rendered = render(control_plane, tmp_path, own_with("components", "before-1.36"))

    assert not [manifest for manifest in rendered if manifest["kind"].startswith("MutatingAdmissionPolicy")]


def test_a_component_of_gang_kinds_grants_the_controller_what_it_needs_of_them(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    rendered = render(control_plane, tmp_path, own_with("components", "components/ray"))

    roles = [each for each in rendered if each["kind"] == "ClusterRole"]
    assert any("rayjobs" in rule["resources"] for role in roles for rule in role["rules"])


def test_a_configuration_of_ones_own_takes_the_place_of_the_shipped_one(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    rendered = render(control_plane, tmp_path, own_with("configMapGenerator"))

    (configuration,) = [manifest for manifest in rendered if manifest["kind"] == "ConfigMap"]
    assert configuration["data"] == {"healthd.yaml": "quarantine: {cordon: false}\n"}


def test_the_environment_for_older_clusters_is_good(control_plane: ControlPlane) -> None:
    (in_a_container,) = kubernetes_page("install").fragments("in a container")
    container = {"name": "trainer", "image": "none", **in_a_container}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "old"}, "spec": {"containers": [container]}}

    said = control_plane.kubectl("apply", "--dry-run=server", "-f", "-", input=yaml.safe_dump(pod))

    assert "created (server dry run)" in said


def own_with(key: str, word: str = "") -> dict[str, Any]:
    """What the page adds to one's own kustomization under *key*, the one block with *word*."""
    (found,) = [own for own in OWN if word in str(own.get(key, "")) and key in own]
    return found


def render(control_plane: ControlPlane, folder: Path, own: dict[str, Any]) -> list[dict[str, Any]]:
    """What kubectl makes of a copy of the example beside deploy/, with *own* added."""
    (folder / "deploy").symlink_to(ROOT / "deploy")
    copy = folder / "my-cluster"
    copy.mkdir()
    kustomization = quick_yaml.load(MY_CLUSTER.read_text())
    lists = {key: [*kustomization.get(key, []), *value] for key, value in own.items()}
    (copy / "kustomization.yaml").write_text(yaml.safe_dump({**kustomization, **lists}))
    (copy / "healthd.yaml").write_text("quarantine: {cordon: false}\n")
    return [each for each in quick_yaml.load_all(control_plane.kubectl("kustomize", str(copy))) if each]
