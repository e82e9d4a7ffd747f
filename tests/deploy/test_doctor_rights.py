"""What `healthd doctor` says of the controller's rights, at a real API server with the manifests that are shipped."""

from __future__ import annotations

import json

import pytest

from healthd.cli.main import main
from tests.deploy.accounts import SYSTEM
from tests.deploy.kinds import KINDS, define, grant, manifest, path_of
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

OF_PLAIN_PODS = "the controller may not guard plain pods in {}"
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/healthd-controller-verifier"


def make_pod(installed: ControlPlane, namespace: str) -> None:
    """A gang of one plain pod that saves on a claim."""
    notes = {"healthd.dev/restart": "enabled", "healthd.dev/checkpoint": "pvc://runs/x"}
    meta = {"name": "rank-0", "labels": {"healthd.dev/gang": "train"}, "annotations": notes}
    pod: Json = {"metadata": meta, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    installed.api.create(f"/api/v1/namespaces/{namespace}/pods", pod)


def said(
    installed: ControlPlane, namespace: str, capsys: pytest.CaptureFixture[str], gang: str = "pods/train"
) -> dict[str, str]:
    """The remarks about rights, as an administrator gets them."""
    main(["doctor", gang, "-n", namespace, "--kubeconfig", str(installed.kubeconfig), "--json"])
    remarks = json.loads(capsys.readouterr().out)["remarks"]
    return {each["what"]: each["level"] for each in remarks if "the controller may" in each["what"]}


def await_controller(installed: ControlPlane) -> None:
    """Return when there is a pod of it, whose image would verify."""
    pods = f"/api/v1/namespaces/{SYSTEM}/pods?labelSelector=app.kubernetes.io/component=controller"
    wait_until("a controller", lambda: installed.api.get(pods)["items"], limit=30)


def test_plain_pods_are_missed_until_their_role_is_bound(
    installed: ControlPlane, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await_controller(installed)
    make_pod(installed, namespace)

    unbound = said(installed, namespace, capsys)
    role, account = "healthd-controller-plain-pods", f"{SYSTEM}:healthd-controller"
    where = ("-n", namespace, "--clusterrole", role, "--serviceaccount", account)
    installed.kubectl("create", "rolebinding", "healthd-plain-pods", *where)
    wait_until("the role bound", lambda: not said(installed, namespace, capsys), limit=30)

    assert unbound == {OF_PLAIN_PODS.format(namespace): "prevents"}


def test_a_kind_of_another_operator_is_missed_until_its_component_is_applied(
    installed: ControlPlane, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    define(installed, [KINDS["RayJob"]])
    installed.api.create(path_of(KINDS["RayJob"], namespace), manifest(KINDS["RayJob"], "train"))

    unbound = said(installed, namespace, capsys, "rayjob/train")
    grant(installed, "ray")
    wait_until("the role bound", lambda: not said(installed, namespace, capsys, "rayjob/train"), limit=30)

    assert unbound == {"the controller may not guard gangs of the kind RayJob": "prevents"}


def test_an_image_that_the_role_does_not_name_is_reported(
    installed: ControlPlane, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await_controller(installed)
    make_pod(installed, namespace)
    rules = installed.api.get(ROLE)["rules"]
    other = [{**rules[0], "resourceNames": ["registry.example/other"]}, *rules[1:]]
    image = rules[0]["resourceNames"][0]

    installed.api.patch(ROLE, {"rules": other})
    expected = f"the controller may not run {image} to verify pvc://runs/x"
    wait_until("it is said", lambda: expected in said(installed, namespace, capsys), limit=30)
    installed.api.patch(ROLE, {"rules": rules})
    wait_until("it is not", lambda: expected not in said(installed, namespace, capsys), limit=30)
