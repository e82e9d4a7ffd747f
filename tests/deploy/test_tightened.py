"""What docs/security.md says an operator can tighten, at a real API server."""

from __future__ import annotations

import itertools
import re

import pytest
import yaml

from tests.deploy.accounts import SYSTEM, Request, answer, refuser, token_of_agent
from tests.deploy.manifests import DEPLOY, ROOT
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane, Options
from tests.lab.programs import wait_until
from tests.lab.simulated import SimulatedNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NODE = "/api/v1/nodes/real-1"
SPARE: Json = {"metadata": {"labels": {"healthd.dev/spare": "true"}}}
BLOCKS = re.findall(r"  ```yaml\n(.*?)  ```", (ROOT / "docs" / "security.md").read_text(), flags=re.DOTALL)
QUOTAS: dict[str, Json] = {quota["metadata"]["name"]: quota for quota in map(yaml.safe_load, BLOCKS)}


@pytest.fixture(scope="module")
def control_plane_options() -> Options:
    return Options(nodes=("real-1",))


def enforce(control_plane: ControlPlane, namespace: str, quota: Json) -> None:
    """Return when the quota is counted."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    made = control_plane.api.create(path, quota)["metadata"]["name"]
    wait_until("a quota", lambda: control_plane.api.get(f"{path}/{made}").get("status", {}).get("used"), limit=30)


def test_a_kubelet_offers_its_node_as_no_spare_and_reports_on(control_plane: ControlPlane) -> None:
    control_plane.api.create("/api/v1/nodes", {"metadata": {"name": "real-1"}})
    control_plane.apply(DEPLOY / "components" / "strict-kubelets" / "policy.yaml")
    kubelet = control_plane.identity("system:node:real-1")
    spare: Request = ("PATCH", f"{NODE}?dryRun=All", SPARE)
    off: Request = ("PATCH", NODE, {"metadata": {"annotations": {"healthd.dev/powered-off": "2026-01-01T00:00:00Z"}}})
    label: Request = ("PATCH", NODE, {"metadata": {"labels": {"pool": "x"}}})
    ready: Request = ("PATCH", f"{NODE}/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})

    wait_until("the policy at work", lambda: answer(control_plane, kubelet, spare)[0] == 403, limit=30)
    refused = [refuser(answer(control_plane, kubelet, request)[1]) for request in (spare, off)]
    allowed = [answer(control_plane, kubelet, request)[0] for request in (label, ready)]
    by_person = control_plane.api.patch(NODE, SPARE)

    assert refused == ["healthd-kubelets"] * 2
    assert allowed == [200, 200]
    assert by_person["metadata"]["labels"]["healthd.dev/spare"] == "true"


@pytest.mark.parametrize("priority", ["healthd", "system-node-critical"])
def test_a_quota_keeps_tenants_from_the_priority_of_healthd(
    installed: ControlPlane, namespace: str, priority: str
) -> None:
    enforce(installed, namespace, QUOTAS["no-high-priority"])
    pods = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    pod: Json = {"metadata": {"name": "any"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}

    usual = answer(installed, installed.token, ("POST", pods, pod))
    high = answer(
        installed, installed.token, ("POST", pods, {**pod, "spec": {**pod["spec"], "priorityClassName": priority}})
    )

    assert (usual[0], high[0]) == (201, 403)
    assert "exceeded quota: no-high-priority" in high[1]


def test_a_quota_bounds_the_leases_of_an_agent(installed: ControlPlane, simulated_nodes: SimulatedNodes) -> None:
    (node,) = simulated_nodes.add(1)
    token = token_of_agent(installed, node)
    limit = {**QUOTAS["leases"], "spec": {"hard": dict.fromkeys(QUOTAS["leases"]["spec"]["hard"], "2")}}
    enforce(installed, SYSTEM, limit)
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"

    numbers = itertools.count()

    def take() -> tuple[int, str]:
        meta = {"name": f"healthd-quarantine-cluster-{next(numbers)}", "labels": {"healthd.dev/node": node}}
        return answer(installed, token, ("POST", leases, {"metadata": meta, "spec": {"holderIdentity": node}}))

    # The admission plugin counts by its own cache, which may not have seen the quota yet.
    wait_until("the quota at work", lambda: take()[0] == 403, limit=30)
    refused = [take() for _ in range(3)]

    assert [status for status, _ in refused] == [403] * 3
    assert all("exceeded quota" in why for _, why in refused)
