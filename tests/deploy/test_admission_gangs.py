"""The policy that tells new pods of a gang where to resume, in a real API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from healthd.clock import SystemClock
from healthd.core.model import CauseKind
from healthd.core.objects import (
    HINT_CURRENT,
    LABEL_GANG,
    LABEL_HINT,
    TAINT_RESERVED,
    Cause,
    GangRef,
    ObjectMeta,
    PodHint,
    Recovery,
    RecoverySpec,
    RecoveryStatus,
    to_wire,
)
from healthd.core.telling import KEPT_NODES
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until
from tests.lab.simulated import SimulatedNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

HINT = PodHint(
    attempt=3,
    resume_from="/ckpt/step-70",
    resume_step=70,
    reserved_for="llama-0af1",
    avoid=["bad-1", "bad-2"],
    prefer=["good-1", "good-2"],
)
NAME = "llama"
UID = "0af1c2d3"
TOLD = {"HEALTHD_ATTEMPT": "3", "HEALTHD_RESUME_FROM": "/ckpt/step-70", "HEALTHD_RESUME_STEP": "70"}


def test_every_container_is_told_where_to_resume(installed: ControlPlane, namespace: str) -> None:
    tell(installed, namespace, HINT)

    spec = made(installed, namespace, containers=[a_container("rank"), a_container("logs")])["spec"]

    assert [env_of(container) for container in spec["containers"]] == [TOLD, TOLD]


def test_what_prepares_the_pod_is_told_too(installed: ControlPlane, namespace: str) -> None:
    tell(installed, namespace, HINT)

    spec = made(installed, namespace, initContainers=[a_container("fetch")])["spec"]

    assert env_of(spec["initContainers"][0]) == TOLD


def test_own_variables_come_after_the_hint_so_that_they_may_refer_to_it(
    installed: ControlPlane, namespace: str
) -> None:
    tell(installed, namespace, HINT)

    own = {"name": "ARGS", "value": "--load $(HEALTHD_RESUME_FROM)"}
    spec = made(installed, namespace, containers=[a_container("rank", env=[own])])["spec"]

    assert spec["containers"][0]["env"][-1] == own


def test_what_a_container_sets_itself_stays(installed: ControlPlane, namespace: str) -> None:
    tell(installed, namespace, HINT)

    field = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.annotations['healthd.dev/resume-from']"}}
    own = {"name": "HEALTHD_RESUME_FROM", "valueFrom": field}
    spec = made(installed, namespace, containers=[a_container("rank", env=[own])])["spec"]

    env = spec["containers"][0]["env"]
    assert [one for one in env if one["name"] == "HEALTHD_RESUME_FROM"] == [own]


def test_the_hint_stands_in_the_annotations_and_replaces_an_older_one(installed: ControlPlane, namespace: str) -> None:
    tell(installed, namespace, HINT)

    pod = made(installed, namespace, annotations={"healthd.dev/attempt": "2", "owner": "me"})

    assert pod["metadata"]["annotations"] == {
        "owner": "me",
        "healthd.dev/attempt": "3",
        "healthd.dev/resume-from": "/ckpt/step-70",
        "healthd.dev/resume-step": "70",
    }


def test_a_fresh_start_is_told_the_attempt_alone(installed: ControlPlane, namespace: str) -> None:
    tell(installed, namespace, PodHint(attempt=1))

    pod = made(installed, namespace)

    assert env_of(pod["spec"]["containers"][0]) == {"HEALTHD_ATTEMPT": "1"}
    assert pod["metadata"]["annotations"] == {"healthd.dev/attempt": "1"}
    assert "affinity" not in pod["spec"]
    assert TAINT_RESERVED not in [one.get("key") for one in pod["spec"]["tolerations"]]


def test_a_step_that_is_not_known_is_not_told(installed: ControlPlane, namespace: str) -> None:
    tell(installed, namespace, PodHint(attempt=1, resume_from="/ckpt/last.pt"))

    pod = made(installed, namespace)

    assert env_of(pod["spec"]["containers"][0]) == {"HEALTHD_ATTEMPT": "1", "HEALTHD_RESUME_FROM": "/ckpt/last.pt"}


def test_the_spare_of_the_gang_is_tolerated_beside_what_its_owner_tolerates(
    installed: ControlPlane, namespace: str
) -> None:
    tell(installed, namespace, HINT)

    own = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    tolerations = made(installed, namespace, tolerations=[own])["spec"]["tolerations"]

    assert own in tolerations
    assert {"key": TAINT_RESERVED, "operator": "Equal", "value": "llama-0af1"} in tolerations


def test_bad_nodes_are_excluded(installed: ControlPlane, namespace: str) -> None:
    tell(installed, namespace, HINT)

    spec = made(installed, namespace)["spec"]

    assert required(spec) == [{"matchFields": [is_not("bad-1"), is_not("bad-2")]}]


def test_bad_nodes_are_excluded_from_every_alternative_of_the_owner(installed: ControlPlane, namespace: str) -> None:
    tell(installed, namespace, HINT)
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in ("a", "b")]

    spec = made(installed, namespace, affinity=with_required([*zones, {}]))["spec"]

    excluded = {"matchFields": [is_not("bad-1"), is_not("bad-2")]}
    assert required(spec)[:2] == [zone | excluded for zone in zones]
    assert not any(required(spec)[2].values()), "an empty term matches no node, and must go on to match none"


def test_nodes_of_the_plan_are_preferred_beside_what_the_owner_prefers(installed: ControlPlane, namespace: str) -> None:
    tell(installed, namespace, HINT)
    own = {"weight": 1, "preference": {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}}

    spec = made(installed, namespace, affinity=with_preferred([own]))["spec"]

    wanted = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["good-1", "good-2"]}
    preferred = spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred == [own, {"weight": 100, "preference": {"matchExpressions": [wanted]}}]


def test_the_longest_lists_of_nodes_are_within_what_a_policy_may_cost(installed: ControlPlane, namespace: str) -> None:
    many = [f"gpu-node-{number:04d}.cluster.example.com" for number in range(KEPT_NODES)]
    tell(installed, namespace, PodHint(attempt=3, avoid=many, prefer=many))
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in ("a", "b", "c")]

    spec = made(installed, namespace, affinity=with_required(terms))["spec"]

    assert [len(term["matchFields"]) for term in required(spec)] == [KEPT_NODES] * 3
    (preferred,) = spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["preference"]["matchExpressions"][0]["values"] == many


def test_affinity_between_pods_stays(installed: ControlPlane, namespace: str) -> None:
    tell(installed, namespace, HINT)
    term = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"a": "b"}}}
    own = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    spec = made(installed, namespace, affinity=own)["spec"]

    assert spec["affinity"]["podAntiAffinity"] == own["podAntiAffinity"]
    assert required(spec)


@pytest.mark.parametrize(
    ("kind", "marks"),
    [
        ("Job", {"owner": UID}),
        ("StatefulSet", {"owner": UID}),
        ("StatefulSet", {"labels": {LABEL_GANG: NAME}}),
        ("JobSet", {"labels": {"jobset.sigs.k8s.io/jobset-name": NAME, "jobset.sigs.k8s.io/jobset-uid": UID}}),
        ("JobSet", {"labels": {"jobset.sigs.k8s.io/jobset-name": NAME}}),
        ("PodGang", {"labels": {LABEL_GANG: NAME}}),
    ],
)
def test_members_of_every_kind_are_known(
    installed: ControlPlane, namespace: str, kind: str, marks: dict[str, Any]
) -> None:
    tell(installed, namespace, HINT, kind=kind)

    pod = create(installed, namespace, **{"labels": {}, **marks})

    assert is_told(pod)


@pytest.mark.parametrize(
    ("kind", "marks"),
    [
        ("Job", {"owner": "another-uid", "labels": {"batch.kubernetes.io/job-name": NAME}}),
        ("Job", {"labels": {LABEL_GANG: NAME}}),
        ("JobSet", {"labels": {"jobset.sigs.k8s.io/jobset-name": NAME, "jobset.sigs.k8s.io/jobset-uid": "another"}}),
        ("JobSet", {"labels": {"jobset.sigs.k8s.io/jobset-name": "mistral"}}),
        ("StatefulSet", {"owner": "another-uid"}),
        ("PodGang", {"labels": {LABEL_GANG: "mistral"}}),
        ("PodGang", {"labels": {}}),
    ],
)
def test_other_pods_are_not_touched(installed: ControlPlane, namespace: str, kind: str, marks: dict[str, Any]) -> None:
    tell(installed, namespace, HINT, kind=kind)
    tell(installed, namespace, PodHint(attempt=9), name="seen", gang="seen")
    assert made(installed, namespace, labels={LABEL_GANG: "seen"}), "the policy is at work in this namespace"

    pod = create(installed, namespace, **{"labels": {}, **marks})

    assert not is_told(pod)
    assert "affinity" not in pod["spec"]


def test_a_recovery_reaches_no_other_namespace(installed: ControlPlane, namespace: str) -> None:
    tell(installed, namespace, HINT)
    elsewhere = installed.new_namespace()
    made(installed, namespace)

    pod = create(installed, elsewhere)

    assert not is_told(pod)


def test_a_recovery_that_is_not_the_current_one_tells_nothing(installed: ControlPlane, namespace: str) -> None:
    tell(installed, namespace, HINT, name="old", label="past")
    tell(installed, namespace, PodHint(attempt=4), name="new")

    pod = made(installed, namespace)

    assert env_of(pod["spec"]["containers"][0]) == {"HEALTHD_ATTEMPT": "4"}


def test_a_container_that_another_policy_adds_is_told_and_nothing_is_added_twice(
    installed: ControlPlane, namespace: str
) -> None:
    tell(installed, namespace, HINT)
    installed.apply(ADDS_A_CONTAINER.replace("NAMESPACE", namespace))

    def pod() -> Json:
        return made(installed, namespace)

    wait_until("the other policy at work", lambda: len(pod()["spec"]["containers"]) == 2, limit=30)
    spec = pod()["spec"]

    assert [env_of(container) for container in spec["containers"]] == [TOLD, TOLD]
    assert [one.get("key") for one in spec["tolerations"]].count(TAINT_RESERVED) == 1
    assert required(spec) == [{"matchFields": [is_not("bad-1"), is_not("bad-2")]}]
    assert len(spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]) == 1


def test_a_real_job_that_is_resumed_runs_with_its_hint_on_the_spare(
    installed: ControlPlane, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    first, second, spare = simulated_nodes.add(3)
    reserve(installed, spare, "llama-0af1")
    job = installed.api.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", AN_INDEXED_JOB)
    before = running(installed, namespace, 2)
    suspend(installed, namespace, True)
    running(installed, namespace, 0)
    hint = PodHint(attempt=1, resume_from="/ckpt/1", reserved_for="llama-0af1", avoid=[first], prefer=[second, spare])
    tell(installed, namespace, hint, kind="Job", uid=job["metadata"]["uid"])

    suspend(installed, namespace, False)
    after = running(installed, namespace, 2)

    assert {pod["spec"]["nodeName"] for pod in before} == {first, second}
    assert {pod["spec"]["nodeName"] for pod in after} == {second, spare}
    assert [env_of(pod["spec"]["containers"][0]) | TOLD for pod in after] == [
        {**TOLD, "JOB_COMPLETION_INDEX": ""},
        {**TOLD, "JOB_COMPLETION_INDEX": ""},
    ]
    assert {pod["metadata"]["annotations"]["healthd.dev/attempt"] for pod in after} == {"1"}


AN_INDEXED_JOB: Json = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": NAME},
    "spec": {
        "completions": 2,
        "parallelism": 2,
        "completionMode": "Indexed",
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {"name": "rank", "image": "localhost/none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
                ],
            }
        },
    },
}

ADDS_A_CONTAINER = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: NAMESPACE-adds-a-container}
spec:
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}
  matchConditions:
    - {name: not-there, expression: "!object.spec.containers.exists(one, one.name == 'late')"}
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: >-
          [JSONPatch{op: 'add', path: '/spec/containers/-', value: {'name': 'late', 'image': 'localhost/none'}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAMESPACE-adds-a-container}
spec: {policyName: NAMESPACE-adds-a-container}
"""


def tell(
    installed: ControlPlane,
    namespace: str,
    hint: PodHint,
    *,
    kind: str = "PodGang",
    name: str = "recovery",
    gang: str = NAME,
    uid: str = UID,
    label: str = HINT_CURRENT,
) -> None:
    """Make a recovery whose hint new pods of the gang must carry."""
    recovery = Recovery(
        metadata=ObjectMeta(name=name, namespace=namespace, labels={LABEL_HINT: label}),
        spec=RecoverySpec(
            gang=GangRef(kind=kind, name=gang, namespace=namespace, uid=uid),
            first_attempt=1,
            cause=Cause(kind=CauseKind.HARDWARE, message="xid 79", at=SystemClock().now()),
        ),
        status=RecoveryStatus(attempt=hint.attempt, hint=hint),
    )
    body = to_wire(recovery)
    path = f"/apis/healthd.dev/v1alpha1/namespaces/{namespace}/recoveries"
    installed.api.create(path, body)
    installed.api.patch(f"{path}/{name}/status", {"status": body["status"]})


def made(installed: ControlPlane, namespace: str, **parts: Any) -> Json:
    """A pod of the gang as the API server would make it, once the policy has seen the recovery."""
    pods: list[Json] = []

    def told() -> bool:
        pods.append(create(installed, namespace, **parts))
        return is_told(pods[-1])

    wait_until("a pod that is told its attempt", told, limit=30)
    return pods[-1]


def create(
    installed: ControlPlane,
    namespace: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: str = "",
    **spec: Any,
) -> Json:
    """What the API server makes of a pod, without keeping it."""
    owners = [{"apiVersion": "v1", "kind": "Any", "name": NAME, "uid": owner}] if owner else []
    metadata = {
        "generateName": "rank-",
        "labels": {LABEL_GANG: NAME} if labels is None else labels,
        "annotations": annotations or {},
        "ownerReferences": owners,
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [a_container("c")], **spec}}
    return installed.api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)


def a_container(name: str, **parts: Any) -> Json:
    return {"name": name, "image": "localhost/none", **parts}


def is_told(pod: Json) -> bool:
    told = [env_of(container).get("HEALTHD_ATTEMPT") for container in pod["spec"]["containers"]]
    return any(told)


def env_of(container: Json) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container.get("env", [])}


def required(spec: Json) -> list[Json]:
    affinity: Json = spec["affinity"]["nodeAffinity"]
    terms: list[Json] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return terms


def is_not(node: str) -> Json:
    return {"key": "metadata.name", "operator": "NotIn", "values": [node]}


def with_required(terms: list[Json]) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def with_preferred(preferred: list[Json]) -> Json:
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def reserve(installed: ControlPlane, node: str, value: str) -> None:
    taint = {"key": TAINT_RESERVED, "value": value, "effect": "NoSchedule"}
    installed.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}})


def suspend(installed: ControlPlane, namespace: str, suspended: bool) -> None:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{NAME}"
    installed.api.patch(path, {"spec": {"suspend": suspended}})


def running(installed: ControlPlane, namespace: str, count: int) -> list[Json]:
    """The running pods, once there are *count* of them and no others that may still run."""
    seen: list[Json] = []

    def settled() -> bool:
        pods = installed.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        seen[:] = [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]
        phases = [pod["status"].get("phase") for pod in seen]
        return phases == ["Running"] * count

    wait_until(f"{count} running pods", settled, limit=60)
    return seen
