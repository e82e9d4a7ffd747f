"""The policy that tells new pods of a gang where to resume, in a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from healthd.core.api import LABEL_GANG, LABEL_RESTARTED, TAINT_RESERVED, PodHint
from healthd.core.recovery.recovery_status import KEPT_NODES
from tests.deploy.gang_pods import (
    HINT,
    HINTED,
    NAME,
    UID,
    a_container,
    create,
    env_of,
    gets_hint,
    is_not,
    made,
    mutate,
    required,
    with_preferred,
    with_required,
)
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def test_every_container_gets_the_resume_point(installed: ControlPlane, namespace: str) -> None:
    mutate(installed, namespace, HINT)

    spec = made(installed, namespace, containers=[a_container("rank"), a_container("logs")])["spec"]

    assert [env_of(container) for container in spec["containers"]] == [HINTED, HINTED]


def test_init_containers_get_the_resume_point_too(installed: ControlPlane, namespace: str) -> None:
    mutate(installed, namespace, HINT)

    spec = made(installed, namespace, initContainers=[a_container("fetch")])["spec"]

    assert env_of(spec["initContainers"][0]) == HINTED


def test_own_variables_come_after_the_hint_so_that_they_may_refer_to_it(
    installed: ControlPlane, namespace: str
) -> None:
    mutate(installed, namespace, HINT)

    own = {"name": "ARGS", "value": "--load $(HEALTHD_RESUME_FROM)"}
    spec = made(installed, namespace, containers=[a_container("rank", env=[own])])["spec"]

    assert spec["containers"][0]["env"][-1] == own


def test_what_a_container_sets_itself_stays(installed: ControlPlane, namespace: str) -> None:
    mutate(installed, namespace, HINT)

    field = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.annotations['healthd.dev/resume-from']"}}
    own = {"name": "HEALTHD_RESUME_FROM", "valueFrom": field}
    spec = made(installed, namespace, containers=[a_container("rank", env=[own])])["spec"]

    env = spec["containers"][0]["env"]
    assert [one for one in env if one["name"] == "HEALTHD_RESUME_FROM"] == [own]


def test_the_hint_stands_in_the_annotations_and_replaces_an_older_one(installed: ControlPlane, namespace: str) -> None:
    mutate(installed, namespace, HINT)

    pod = made(installed, namespace, annotations={"healthd.dev/attempt": "2", "owner": "me"})

    assert pod["metadata"]["annotations"] == {
        "owner": "me",
        "healthd.dev/attempt": "3",
        "healthd.dev/resume-from": "/ckpt/step-70",
        "healthd.dev/resume-step": "70",
    }


def test_a_fresh_start_gets_the_attempt_alone(installed: ControlPlane, namespace: str) -> None:
    mutate(installed, namespace, PodHint(attempt=1))

    pod = made(installed, namespace)

    assert env_of(pod["spec"]["containers"][0]) == {"HEALTHD_ATTEMPT": "1"}
    assert pod["metadata"]["annotations"] == {"healthd.dev/attempt": "1"}
    assert "affinity" not in pod["spec"]
    assert TAINT_RESERVED not in [one.get("key") for one in pod["spec"]["tolerations"]]


def test_an_old_checkpoint_in_a_template_reaches_no_pod(installed: ControlPlane, namespace: str) -> None:
    mutate(installed, namespace, PodHint(attempt=3))
    field = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.annotations['healthd.dev/resume-from']"}}
    asked = {"name": "HEALTHD_RESUME_FROM", "valueFrom": field}
    old = {"healthd.dev/attempt": "3", "healthd.dev/resume-from": "/ckpt/step-70", "healthd.dev/resume-step": "70"}

    pod = made(installed, namespace, annotations=old, containers=[a_container("rank", env=[asked])])

    assert pod["metadata"]["annotations"] == {"healthd.dev/attempt": "3"}
    assert env_of(pod["spec"]["containers"][0]) == {"HEALTHD_ATTEMPT": "3", "HEALTHD_RESUME_FROM": ""}


def test_a_step_that_is_not_known_is_left_out(installed: ControlPlane, namespace: str) -> None:
    mutate(installed, namespace, PodHint(attempt=1, resume_from="/ckpt/last.pt"))

    pod = made(installed, namespace)

    assert env_of(pod["spec"]["containers"][0]) == {"HEALTHD_ATTEMPT": "1", "HEALTHD_RESUME_FROM": "/ckpt/last.pt"}


def test_the_spare_of_the_gang_is_tolerated_beside_what_its_owner_tolerates(
    installed: ControlPlane, namespace: str
) -> None:
    mutate(installed, namespace, HINT)

    own = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    tolerations = made(installed, namespace, tolerations=[own])["spec"]["tolerations"]

    assert own in tolerations
    assert {"key": TAINT_RESERVED, "operator": "Equal", "value": "llama-0af1"} in tolerations


def test_bad_nodes_are_excluded(installed: ControlPlane, namespace: str) -> None:
    mutate(installed, namespace, HINT)

    spec = made(installed, namespace)["spec"]

    assert required(spec) == [{"matchFields": [is_not("bad-1"), is_not("bad-2")]}]


def test_bad_nodes_are_excluded_from_every_alternative_of_the_owner(installed: ControlPlane, namespace: str) -> None:
    mutate(installed, namespace, HINT)
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in ("a", "b")]

    spec = made(installed, namespace, affinity=with_required([*zones, {}]))["spec"]

    excluded = {"matchFields": [is_not("bad-1"), is_not("bad-2")]}
    assert required(spec)[:2] == [zone | excluded for zone in zones]
    assert not any(required(spec)[2].values()), "an empty term matches no node, and must go on to match none"


def test_nodes_of_the_plan_are_preferred_beside_what_the_owner_prefers(installed: ControlPlane, namespace: str) -> None:
    mutate(installed, namespace, HINT)
    own = {"weight": 1, "preference": {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}}

    spec = made(installed, namespace, affinity=with_preferred([own]))["spec"]

    wanted = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["good-1", "good-2"]}
    preferred = spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred == [own, {"weight": 100, "preference": {"matchExpressions": [wanted]}}]


def test_the_longest_lists_of_nodes_are_within_what_a_policy_may_cost(installed: ControlPlane, namespace: str) -> None:
    many = [f"gpu-node-{number:04d}.cluster.example.com" for number in range(KEPT_NODES)]
    mutate(installed, namespace, PodHint(attempt=3, avoid=many, prefer=many))
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in ("a", "b", "c")]

    spec = made(installed, namespace, affinity=with_required(terms))["spec"]

    assert [len(term["matchFields"]) for term in required(spec)] == [KEPT_NODES] * 3
    (preferred,) = spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["preference"]["matchExpressions"][0]["values"] == many


def test_affinity_between_pods_stays(installed: ControlPlane, namespace: str) -> None:
    mutate(installed, namespace, HINT)
    term = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"a": "b"}}}
    own = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    spec = made(installed, namespace, affinity=own)["spec"]

    assert spec["affinity"]["podAntiAffinity"] == own["podAntiAffinity"]
    assert required(spec)


OF_ANY_JOB = {"batch.kubernetes.io/job-name": NAME}
OF_JOB = {**OF_ANY_JOB, LABEL_RESTARTED: UID}
OF_OTHER_JOB = {**OF_ANY_JOB, LABEL_RESTARTED: "another-uid"}
OF_JOBSET = {**OF_JOB, "jobset.sigs.k8s.io/jobset-name": NAME}
OF_ANY_SET = {"statefulset.kubernetes.io/pod-name": f"{NAME}-0"}
OF_SET = {**OF_ANY_SET, LABEL_RESTARTED: UID}
OF_WRAPPER = {"workload.codeflare.dev/appwrapper": NAME}
OF_OTHER_WRAPPER = {"workload.codeflare.dev/appwrapper": "mistral"}


@pytest.mark.parametrize(
    ("kind", "marks"),
    [
        ("Job", {"owner": UID, "labels": OF_JOB}),
        ("StatefulSet", {"owner": UID, "labels": OF_SET}),
        ("StatefulSet", {"labels": {LABEL_GANG: NAME}}),
        ("StatefulSet", {"labels": {**OF_JOB, LABEL_GANG: NAME}}),
        ("JobSet", {"labels": OF_JOBSET}),
        ("AnyKind", {"labels": {LABEL_RESTARTED: UID}}),
        ("PodGang", {"labels": {LABEL_GANG: NAME}}),
    ],
)
def test_members_of_every_kind_are_known(
    installed: ControlPlane, namespace: str, kind: str, marks: dict[str, Any]
) -> None:
    mutate(installed, namespace, HINT, kind=kind)

    pod = create(installed, namespace, **{"labels": {}, **marks})

    assert gets_hint(pod)


@pytest.mark.parametrize(
    ("kind", "marks"),
    [
        ("Job", {"owner": UID, "labels": OF_OTHER_JOB}),
        ("Job", {"owner": UID}),
        ("Job", {"owner": UID, "labels": OF_ANY_JOB}),
        ("StatefulSet", {"owner": UID, "labels": OF_ANY_SET}),
        ("Job", {"labels": {LABEL_GANG: NAME}}),
        ("Job", {"labels": {**OF_ANY_JOB, LABEL_RESTARTED: ""}}),
        ("JobSet", {"labels": {**OF_OTHER_JOB, "jobset.sigs.k8s.io/jobset-name": NAME}}),
        ("StatefulSet", {"owner": UID, "labels": {**OF_ANY_SET, LABEL_RESTARTED: "another-uid"}}),
        ("PodGang", {"labels": {LABEL_GANG: "mistral"}}),
        ("PodGang", {"labels": {}}),
    ],
)
def test_other_pods_are_not_touched(installed: ControlPlane, namespace: str, kind: str, marks: dict[str, Any]) -> None:
    mutate(installed, namespace, HINT, kind=kind)
    mutate(installed, namespace, PodHint(attempt=9), name="seen", gang="seen")
    assert made(installed, namespace, labels={LABEL_GANG: "seen"}), "the policy is at work in this namespace"

    pod = create(installed, namespace, **{"labels": {}, **marks})

    assert not gets_hint(pod)
    assert "affinity" not in pod["spec"]


def test_pods_of_a_template_that_cannot_be_marked_are_known_by_the_labels_that_their_kind_gives_them(
    installed: ControlPlane, namespace: str
) -> None:
    mutate(installed, namespace, HINT, kind="AppWrapper", pod_labels=OF_WRAPPER)

    pod = made(installed, namespace, labels={**OF_WRAPPER, LABEL_GANG: "anything"})
    stranger = create(installed, namespace, labels={**OF_OTHER_WRAPPER, LABEL_GANG: NAME})

    assert (gets_hint(pod), gets_hint(stranger)) == (True, False)


def test_a_recovery_reaches_no_other_namespace(installed: ControlPlane, namespace: str) -> None:
    mutate(installed, namespace, HINT)
    elsewhere = installed.new_namespace()
    made(installed, namespace)

    pod = create(installed, elsewhere)

    assert not gets_hint(pod)


def test_a_recovery_that_is_not_the_current_one_sets_nothing(installed: ControlPlane, namespace: str) -> None:
    mutate(installed, namespace, HINT, name="old", label="past")
    mutate(installed, namespace, PodHint(attempt=4), name="new")

    pod = made(installed, namespace)

    assert env_of(pod["spec"]["containers"][0]) == {"HEALTHD_ATTEMPT": "4"}


def test_a_container_that_another_policy_adds_gets_it_and_nothing_is_added_twice(
    installed: ControlPlane, namespace: str
) -> None:
    mutate(installed, namespace, HINT)
    installed.apply(ADDS_A_CONTAINER.replace("NAMESPACE", namespace))

    def pod() -> Json:
        return made(installed, namespace)

    wait_until("the other policy at work", lambda: len(pod()["spec"]["containers"]) == 2, limit=30)
    spec = pod()["spec"]

    assert [env_of(container) for container in spec["containers"]] == [HINTED, HINTED]
    assert [one.get("key") for one in spec["tolerations"]].count(TAINT_RESERVED) == 1
    assert required(spec) == [{"matchFields": [is_not("bad-1"), is_not("bad-2")]}]
    assert len(spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]) == 1


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
