"""
healthd half gone, gone, back, older and newer: what others do in the cluster goes on as if it had never been there.

The seed follows from the commit and is printed; `HEALTHD_SEED=… pytest` takes another.
"""

from __future__ import annotations

import json
import os
import random
import secrets
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from healthd.core.api import LABEL_GANG, LABEL_RESTARTED
from tests import quick_yaml
from tests.deploy.conftest import await_kinds
from tests.deploy.gang_pods import env_of
from tests.deploy.kinds import KINDS as DESCRIBED
from tests.deploy.kinds import define, manifest
from tests.deploy.kinds import path_of as kind_path
from tests.deploy.manifests import DEPLOY
from tests.deploy.test_installed import recover_a_job
from tests.lab.api import ApiError, Json
from tests.lab.control_plane import ControlPlane
from tests.lab.deletions import deleted_soon
from tests.lab.programs import wait_until
from tests.lab.simulated import SimulatedNodes
from tests.seeds import first_fresh_seed

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PATIENCE = 60
STRANGERS = ("batch.kubernetes.io/job-name", "statefulset.kubernetes.io/pod-name", "healthd.dev/verifier")
"""Labels of pods that have asked healthd for nothing."""
NOT_SYNCED = "not yet synced to use for admission"
OF_OPERATORS = list({kind.api_version: kind for kind in DESCRIBED.values()}.values())
"""A kind of each operator. Gangs of it ask healthd to restart them."""
CONTAINER = {"name": "c", "image": "localhost/none"}


class Part(NamedTuple):
    """One object of the installation."""

    path: str
    manifest: Json

    @property
    def kind(self) -> str:
        """Such as `Deployment`."""
        return str(self.manifest["kind"])

    def __str__(self) -> str:
        return f"{self.kind}/{self.manifest['metadata']['name']}"


@pytest.fixture(scope="module")
def parts(installed: ControlPlane) -> list[Part]:
    """All that `kubectl apply -k deploy/` makes."""
    manifests = [each for each in quick_yaml.load_all(installed.kubectl("kustomize", str(DEPLOY))) if each]
    return [Part(path_of(installed, manifest), manifest) for manifest in manifests]


def path_of(installed: ControlPlane, manifest: Json) -> str:
    """Where the API server keeps an object. kustomize gives a namespace to kinds that have none, too."""
    meta, version = manifest["metadata"], manifest["apiVersion"]
    group = f"/apis/{version}" if "/" in version else f"/api/{version}"
    kinds = installed.api.get(group)["resources"]
    (kind,) = [each for each in kinds if each["kind"] == manifest["kind"] and "/" not in each["name"]]
    within = ["namespaces", meta["namespace"]] if kind["namespaced"] else []
    path = "/".join([group, *within, kind["name"], meta["name"]])
    assert installed.has(path)
    return path


@pytest.fixture
def whole(installed: ControlPlane, parts: list[Part]) -> Iterator[ControlPlane]:
    """healthd, of which nothing is missing; and so it is again afterwards."""
    yield installed
    install(installed, parts)


def install(installed: ControlPlane, parts: list[Part]) -> None:
    """`kubectl apply -k deploy/`, also while what was deleted before is still on its way."""
    wait_until("nothing is on its way", lambda: not any(is_going(installed, part) for part in parts), limit=PATIENCE)
    installed.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(DEPLOY))
    await_kinds(installed)


def is_going(installed: ControlPlane, part: Part) -> bool:
    try:
        return "deletionTimestamp" in installed.api.get(part.path)["metadata"]
    except ApiError as error:
        if error.status != 404:
            raise
        return False


def delete(installed: ControlPlane, part: Part) -> None:
    try:
        installed.api.delete(part.path)
    except ApiError as error:
        if error.status != 404:  # it went with its namespace
            raise


@pytest.fixture(params=[int(os.environ.get("HEALTHD_SEED", "0")) or first_fresh_seed()], ids="seed={}".format)
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Another order for each commit; its seed is in the name of the test."""
    return random.Random(request.param)


@pytest.fixture(scope="module")
def others(installed: ControlPlane) -> str:
    """A namespace in which others have what they have, all of it made before anything is missing."""
    namespace = installed.new_namespace()
    installed.apply(LAST)
    define(installed, OF_OPERATORS)
    for path, body in theirs(namespace):
        installed.api.create(path, body)
    return namespace


def others_go_on(installed: ControlPlane, namespace: str) -> None:
    """Make, change and delete what others do, once the API server works with the policies as they are now."""
    await_policies(installed, namespace)
    for path, body in theirs(namespace):
        name = body["metadata"]["name"]
        another = {**body, "metadata": {**body["metadata"], "name": f"another-{name}"}}
        installed.api.create(f"{path}?dryRun=All", another)
        installed.api.patch(f"{path}/{name}?dryRun=All", {"metadata": {"labels": {"changed": "yes"}}})
        installed.api.delete(f"{path}/{name}?dryRun=All")


def a_job_of_theirs_gets_its_pod(installed: ControlPlane, namespace: str) -> None:
    """Without a dry run, and by way of the cluster's own controllers."""
    name = f"job-{secrets.token_hex(4)}"
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}}
    installed.api.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", an_object("batch/v1", "Job", name, spec=spec))
    pods = f"/api/v1/namespaces/{namespace}/pods?labelSelector=batch.kubernetes.io/job-name={name}"
    wait_until("the pod of a Job", lambda: installed.api.get(pods)["items"], limit=PATIENCE)


def theirs(namespace: str) -> list[tuple[str, Json]]:
    """Of each kind that a policy names, and of each that pods are made for: where it is made, and one of them."""
    core, pod = f"/api/v1/namespaces/{namespace}", {"containers": [CONTAINER]}
    marks = (*STRANGERS, LABEL_GANG, LABEL_RESTARTED)
    labels: list[Json] = [{}, *({mark: "other"} for mark in marks)]
    event = {"involvedObject": {"kind": "Pod", "namespace": namespace, "name": "other"}}
    template = {"metadata": {"labels": {"app": "other"}}, "spec": pod}
    job = {"suspend": True, "template": {"spec": {**pod, "restartPolicy": "Never"}}}
    replicas = {"replicas": 0, "selector": {"matchLabels": {"app": "other"}}, "template": template}
    return [
        *((f"{core}/pods", an_object("v1", "Pod", f"pod-{i}", labels=each, spec=pod)) for i, each in enumerate(labels)),
        ("/api/v1/nodes", an_object("v1", "Node", f"node-{namespace}")),
        (f"{core}/events", an_object("v1", "Event", "event", **event)),
        (
            f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
            an_object("coordination.k8s.io/v1", "Lease", "lease", spec={"holderIdentity": "other"}),
        ),
        (f"/apis/batch/v1/namespaces/{namespace}/jobs", an_object("batch/v1", "Job", "job", spec=job)),
        (
            f"/apis/apps/v1/namespaces/{namespace}/deployments",
            an_object("apps/v1", "Deployment", "deployment", spec=replicas),
        ),
        (
            f"/apis/apps/v1/namespaces/{namespace}/statefulsets",
            an_object("apps/v1", "StatefulSet", "statefulset", spec={**replicas, "serviceName": "other"}),
        ),
        *((kind_path(kind, namespace), manifest(kind, kind.plural)) for kind in OF_OPERATORS),
    ]


def an_object(version: str, kind: str, name: str, *, labels: Json | None = None, **fields: object) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels or {}}, **fields}


def await_policies(installed: ControlPlane, namespace: str) -> None:
    """
    Return when the API server has taken up every change of before to a policy or binding.

    It does so once a second, all at once for each kind. So the last policies are changed and then waited for.
    """
    mark = f"mark-{secrets.token_hex(4)}"
    condition = {"name": "is-marked", "expression": f"object.metadata.name == '{mark}'"}
    for kind in ("mutatingadmissionpolicies", "validatingadmissionpolicies"):
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}/last"
        installed.api.patch(path, {"spec": {"matchConditions": [condition]}})
    asked = json.dumps(an_object("v1", "ConfigMap", mark))
    path = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All"

    def taken_up() -> bool:
        status, raw = installed.api.raw("POST", path, asked, {"Content-Type": "application/json"})
        return status != 201 and b"it was changed" in raw

    wait_until("the last policies at work", taken_up, limit=30)


LAST = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: last}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
  matchConditions: [{name: is-marked, expression: "false"}]
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration: {expression: "Object{data: {'changed': 'yes'}}"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: last}
spec: {policyName: last}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: last}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
  matchConditions: [{name: is-marked, expression: "false"}]
  validations: [{expression: "!has(object.data)", message: it was changed}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: last}
spec: {policyName: last, validationActions: [Deny]}
"""


KINDS = [
    "Namespace", "Deployment", "DaemonSet", "ServiceAccount", "ClusterRoleBinding", "CustomResourceDefinition",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_others_go_on_where_one_kind_of_part_is_missing(
    whole: ControlPlane, parts: list[Part], others: str, kind: str
) -> None:
    for part in parts:
        if part.kind == kind:
            delete(whole, part)

    others_go_on(whole, others)
    a_job_of_theirs_gets_its_pod(whole, others)


def test_others_go_on_whatever_is_deleted_first(
    whole: ControlPlane, parts: list[Part], others: str, chance: random.Random
) -> None:
    for piece in pieces(parts, chance):
        for part in piece:
            delete(whole, part)

        others_go_on(whole, others)


def test_others_go_on_whatever_comes_back_first(
    whole: ControlPlane, parts: list[Part], others: str, chance: random.Random
) -> None:
    with deleted_soon(whole):
        whole.kubectl("delete", "-k", str(DEPLOY), "--ignore-not-found")
    early: list[Part] = []
    for piece in [*pieces(parts, chance), early]:
        # What lives in a namespace is refused until that is there.
        early += [part for part in piece if part not in early and not comes(whole, part)]

        others_go_on(whole, others)


def pieces(parts: list[Part], chance: random.Random) -> list[list[Part]]:
    """All of *parts* in any order, a few at a time."""
    left, found = chance.sample(parts, len(parts)), []
    while left:
        count = chance.randint(1, 8)
        found.append(left[:count])
        left = left[count:]
    return found


def comes(installed: ControlPlane, part: Part) -> bool:
    """Whether the part could be made."""
    try:
        installed.api.create(part.path.rpartition("/")[0], part.manifest)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


def test_only_pods_that_asked_for_their_hint_wait_for_recoveries(
    whole: ControlPlane, parts: list[Part], others: str
) -> None:
    policy = [part for part in parts if part.kind.startswith("MutatingAdmissionPolicy")]
    (kind,) = [part for part in parts if part.path.endswith("/recoveries.healthd.dev")]
    waits_for_ever(whole, policy, kind, others)

    for mark in STRANGERS:
        whole.api.create(f"/api/v1/namespaces/{others}/pods?dryRun=All", a_pod_with({mark: "other"}))
    for mark in (LABEL_GANG, LABEL_RESTARTED):
        assert NOT_SYNCED in refusal(whole, others, mark)


def waits_for_ever(installed: ControlPlane, policy: list[Part], kind: Part, namespace: str) -> None:
    """
    Bring the API server to where it looks for recoveries in vain, a second for each pod; and have it say so.

    It is there where the policy comes back while the API server takes the kind for there that was deleted just before:
    it asks anew which kinds there are every half minute. The policy refuses then what it would only have held up.
    """

    def is_there() -> bool:
        install(installed, [*policy, kind])
        make_refusing()
        wait_until("a kind that the API server knows", is_taken, limit=PATIENCE)
        for part in policy:
            delete(installed, part)
        await_policies(installed, namespace)
        delete(installed, kind)
        make_refusing()
        return NOT_SYNCED in refusal(installed, namespace, LABEL_GANG)

    def make_refusing() -> None:
        for part in policy:
            delete(installed, part)
            comes(installed, refusing(part))
        await_policies(installed, namespace)

    def is_taken() -> bool:
        return not refusal(installed, namespace, LABEL_GANG)

    wait_until("an API server that looks for recoveries in vain", is_there, limit=5 * PATIENCE)


def refusing(part: Part) -> Part:
    """The same, but what goes wrong is no longer ignored."""
    if part.kind != "MutatingAdmissionPolicy":
        return part
    return part._replace(manifest={**part.manifest, "spec": {**part.manifest["spec"], "failurePolicy": "Fail"}})


def refusal(installed: ControlPlane, namespace: str, mark: str) -> str:
    """What the API server says of a pod with a label; empty where it takes it."""
    body = json.dumps(a_pod_with({mark: "other"}))
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    status, raw = installed.api.raw("POST", path, body, {"Content-Type": "application/json"})
    return "" if status == 201 else raw.decode()


def a_pod_with(labels: Json) -> Json:
    return an_object("v1", "Pod", "another", labels=labels, spec={"containers": [CONTAINER]})


async def test_a_recovery_is_whole_after_a_reinstallation(
    whole: ControlPlane, parts: list[Part], namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    with deleted_soon(whole):
        whole.kubectl("delete", "-k", str(DEPLOY))
    install(whole, parts)

    pods = await recover_a_job(whole, namespace, simulated_nodes)

    assert [set_by_policy(pod) for pod in pods] == ["1", "1"]


def set_by_policy(pod: Json) -> str:
    """The template carries the hint as annotations; as environment a container has it from the policy alone."""
    return env_of(pod["spec"]["containers"][0]).get("HEALTHD_ATTEMPT", "")


FORMER = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: healthd-controller-verifier}
spec:
  failurePolicy: Fail
  paramKind: {apiVersion: apps/v1, kind: Deployment}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  matchConditions:
    - name: is-controller
      expression: request.userInfo.username == 'system:serviceaccount:healthd-system:healthd-controller'
  validations: [{expression: params.metadata.name == 'healthd-controller'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: healthd-controller-verifier}
spec:
  policyName: healthd-controller-verifier
  paramRef: {name: healthd-controller, namespace: healthd-system, parameterNotFoundAction: Deny}
  validationActions: [Deny]
"""
"""What 0.1.0 shipped: without the Deployment, or after a reinstallation, it refused all pods of the cluster."""


def test_an_upgrade_frees_a_cluster_in_which_a_former_version_refuses_all_pods(
    whole: ControlPlane, parts: list[Part], others: str
) -> None:
    (deployment,) = [part for part in parts if part.kind == "Deployment"]
    delete(whole, deployment)
    whole.kubectl("apply", "-f", "-", "--server-side", "--force-conflicts", input=FORMER)
    pods, pod = theirs(others)[0]
    pod = {**pod, "metadata": {"name": "another"}}
    wait_until("all pods are refused", lambda: is_refused(whole, pods, pod), limit=30)

    whole.apply(DEPLOY)

    others_go_on(whole, others)
    labels = "labelSelector=app.kubernetes.io/component=controller"
    found = f"/api/v1/namespaces/healthd-system/pods?{labels}"
    wait_until("two controllers", lambda: len(whole.api.get(found)["items"]) == 2, limit=PATIENCE)


def is_refused(installed: ControlPlane, path: str, body: Json) -> bool:
    status, raw = installed.api.raw(
        "POST", f"{path}?dryRun=All", json.dumps(body), {"Content-Type": "application/json"}
    )
    return status != 201 and b"no params found" in raw
