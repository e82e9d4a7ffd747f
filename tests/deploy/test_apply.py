"""The manifests at a real API server: every one is valid, known field by field, and accepted without a warning."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import quick_yaml
from tests.deploy.kustomized import rendered as rendered_for
from tests.deploy.kustomized import with_component
from tests.deploy.manifests import DEPLOY, ROOT
from tests.deploy.schemas import write_schemas
from tests.lab.build import program
from tests.lab.control_plane import ControlPlane
from tests.lab.fixtures import get
from tests.lab.kubernetes import HAS_MUTATING_POLICIES
from tests.lab.modules import KUBECONFORM
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

OVERLAYS = [DEPLOY, ROOT / "tests" / "lab" / "deploy"]
MONITORING = "monitoring.coreos.com/v1"
COMPONENTS = sorted(path.name for path in (DEPLOY / "components").iterdir())


@pytest.fixture(scope="module", params=[*OVERLAYS, *COMPONENTS], ids=lambda what: getattr(what, "name", what))
def rendered(request: pytest.FixtureRequest, control_plane: ControlPlane) -> str:
    """
    What a person would apply: the base, an overlay, or an overlay of theirs with one of our components.

    Without kinds of the Prometheus operator, which the lab does not have (`test_monitoring.py` is about these).
    """
    if isinstance(request.param, Path):
        return rendered_for(control_plane, request.param)
    objects = objects_of(rendered_for(control_plane, component=request.param))
    return quick_yaml.dump_all(one for one in objects if one["apiVersion"] != MONITORING)


@pytest.fixture(scope="module")
def base(control_plane: ControlPlane) -> list[Any]:
    """The objects of the base, which every overlay and component changes a few of."""
    return objects_of(rendered_for(control_plane))


@pytest.fixture(scope="module")
def changed(rendered: str, base: list[Any]) -> str:
    """What is not as it is in the base; of the base itself, all: to send all of it for each component takes minutes."""
    objects = objects_of(rendered)
    return quick_yaml.dump_all([one for one in objects if one not in base] or objects)


def objects_of(text: str) -> list[Any]:
    """Of a text with several documents, of which some may be empty."""
    return [one for one in quick_yaml.load_all(text) if one]


def test_an_overlay_sets_the_links_to_runbooks_and_the_label_of_the_operator_as_the_page_says(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "monitoring" / "README.md").read_text()
    blocks = [quick_yaml.load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    wanted = [block for block in blocks if {"patches", "configMapGenerator"} & set(block)]
    own = with_component("monitoring", tmp_path)
    lines = quick_yaml.load((own / "kustomization.yaml").read_text())
    (own / "kustomization.yaml").write_text(yaml.safe_dump(lines | wanted[0] | wanted[1]))

    made = objects_of(control_plane.kubectl("kustomize", str(own)))
    watched = [one for one in made if one["apiVersion"] == MONITORING]
    (rules,) = (one for one in watched if one["kind"] == "PrometheusRule")
    alerts = [rule for group in rules["spec"]["groups"] for rule in group["rules"] if "alert" in rule]
    links = [alert["annotations"]["runbook_url"] for alert in alerts]

    assert [one["metadata"]["labels"]["release"] for one in watched] == ["kube-prometheus-stack"] * 3
    assert all(
        link.startswith("https://git.example.com/ops/healthd/blob/main/docs/monitoring/runbooks/Healthd")
        for link in links
    )
    assert "runbooks" not in [one["metadata"]["name"] for one in made]


@pytest.fixture(scope="module")
def kubeconform(request: pytest.FixtureRequest) -> Path:
    """The program, from the lab."""
    get(KUBECONFORM, request)
    return program(KUBECONFORM)


@pytest.fixture(scope="module")
def schemas(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where kubeconform finds those of this API server."""
    return write_schemas(control_plane, tmp_path_factory.mktemp("schemas"))


def test_kubeconform_knows_every_field(changed: str, kubeconform: Path, schemas: str) -> None:
    done = subprocess.run(
        [str(kubeconform), "-strict", "-summary", "-verbose", "-schema-location", schemas, "-"],
        input=changed,
        capture_output=True,
        text=True,
        check=False,
    )

    count = len(objects_of(changed))
    assert done.returncode == 0, done.stdout
    assert f"Valid: {count}, Invalid: 0, Errors: 0, Skipped: 0" in done.stdout


def test_kubeconform_finds_a_field_that_is_misspelt(kubeconform: Path, schemas: str) -> None:
    wrong = (DEPLOY / "daemonset.yaml").read_text().replace("tolerations:", "toleration:")

    done = subprocess.run(
        [str(kubeconform), "-strict", "-schema-location", schemas, "-"],
        input=wrong,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "toleration" in done.stdout


def test_the_api_server_accepts_everything_as_it_is_written(changed: str, installed: ControlPlane) -> None:
    for one in objects_of(changed):
        if one["kind"] == "Namespace":  # a dry run makes none, and refuses what would be in it
            installed.ensure_namespace(one["metadata"]["name"])

    answer = installed.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", input=changed
    )

    assert len(answer.splitlines()) == len(objects_of(changed))


def test_a_pod_that_verifies_may_run_the_image_of_the_controller(rendered: str) -> None:
    objects = {(one["kind"], one["metadata"]["name"]): one for one in objects_of(rendered)}
    (container,) = objects["Deployment", "healthd-controller"]["spec"]["template"]["spec"]["containers"]
    rules = objects["ClusterRole", "healthd-controller-verifier"]["rules"]

    (allowed,) = [rule["resourceNames"] for rule in rules if rule["resources"] == ["verifierimages"]]
    assert allowed == [container["image"]]


_SERVED = ["validatingadmissionpolicies", *(["mutatingadmissionpolicies"] if HAS_MUTATING_POLICIES else [])]


@pytest.mark.parametrize("kind", _SERVED)
def test_the_types_of_every_policy_are_right(installed: ControlPlane, kind: str) -> None:
    def policies() -> list[dict[str, object]]:
        items: list[dict[str, object]] = installed.api.get(f"/apis/admissionregistration.k8s.io/v1/{kind}")["items"]
        return items

    if kind == "validatingadmissionpolicies":  # the API server checks the types of these, in its own time
        wait_until("checked policies", lambda: all("typeChecking" in _status(one) for one in policies()), limit=30)

    found = policies()
    assert found
    assert [_status(one).get("typeChecking", {}) for one in found] == [{}] * len(found)


def test_installing_twice_changes_nothing(installed: ControlPlane) -> None:
    again = installed.kubectl("diff", "--server-side", "-f", "-", input=rendered_for(installed))

    assert again == ""


def _status(policy: dict[str, object]) -> dict[str, object]:
    status = policy.get("status")
    return status if isinstance(status, dict) else {}
