"""How a plain pod is remembered and made again."""

from __future__ import annotations

from typing import Any

from healthd.core.api import ChosenCheckpoint, GangRef, ObjectMeta, PodManifest
from healthd.gangs.manifests import made_again, packed, remembered, unpacked
from tests.gangs.builders import A_STEP, a_hint

REF = GangRef(kind="PodGang", name="train", namespace="default", uid="uid-1")
TOKEN_MOUNT = {"name": "kube-api-access-x7x2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}


def a_manifest(container: dict[str, Any] | None = None, **spec: Any) -> PodManifest:
    """A pod as an API server shows it."""
    return PodManifest(
        metadata=ObjectMeta(name="rank-0", namespace="default", labels={"healthd.dev/gang": "train"}),
        spec={"containers": [{"name": "main", "image": "train:1", **(container or {})}], **spec},
    )


def test_what_was_added_after_it_was_written_is_forgotten() -> None:
    pod = a_manifest(
        {"volumeMounts": [{"name": "data", "mountPath": "/data"}, TOKEN_MOUNT]},
        nodeName="node-a",
        priority=0,
        preemptionPolicy="PreemptLowerPriority",
        serviceAccount="default",
        serviceAccountName="default",
        volumes=[{"name": "data", "emptyDir": {}}, {"name": "kube-api-access-x7x2p", "projected": {}}],
    )

    spec = remembered(pod)["spec"]

    assert spec == {
        "containers": [
            {"name": "main", "image": "train:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]},
        ],
        "serviceAccountName": "default",
        "volumes": [{"name": "data", "emptyDir": {}}],
    }


def test_labels_that_its_node_gave_it_are_forgotten() -> None:
    labels = {"healthd.dev/gang": "train", "topology.kubernetes.io/zone": "zone-1"}
    pod = PodManifest(metadata=ObjectMeta(name="rank-0", labels=labels), spec={"containers": []})

    assert remembered(pod)["metadata"]["labels"] == {"healthd.dev/gang": "train"}


def test_what_kueue_wrote_when_it_admitted_it_is_forgotten() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/podset": "5d93babe"}
    notes = {"kueue.x-k8s.io/role-hash": "5d93babe", "kueue.x-k8s.io/workload": "train"}
    pod = PodManifest(metadata=ObjectMeta(name="rank-0", labels=labels, annotations=notes), spec={"containers": []})

    assert remembered(pod)["metadata"] == {
        "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        "annotations": {"kueue.x-k8s.io/role-hash": "5d93babe"},
    }


def test_the_hint_of_an_earlier_attempt_is_removed() -> None:
    first = made_again("rank-0", remembered(a_manifest()), REF, a_hint(checkpoint=A_STEP))

    again = remembered(first)

    assert again == {**remembered(a_manifest()), "spec": {**again["spec"]}}
    assert again["spec"]["containers"] == [{"name": "main", "image": "train:1", "env": []}]
    assert again["spec"]["tolerations"] == []


def test_a_pod_made_again_knows_where_to_resume_by_annotation_and_by_env() -> None:
    pod = made_again("rank-0", remembered(a_manifest()), REF, a_hint(checkpoint=A_STEP))

    env = {each["name"]: each["value"] for each in pod.spec["containers"][0]["env"]}
    assert env == {"HEALTHD_RESUME_FROM": "/data/step_7", "HEALTHD_RESUME_STEP": "7", "HEALTHD_ATTEMPT": "3"}
    assert pod.metadata.annotations["healthd.dev/resume-from"] == "/data/step_7"
    assert pod.metadata.annotations["healthd.dev/made-by"] == "train-3"


def test_a_step_that_is_not_known_is_left_out() -> None:
    pod = made_again("rank-0", remembered(a_manifest()), REF, a_hint(checkpoint=ChosenCheckpoint(path="/data/last")))

    assert "HEALTHD_RESUME_STEP" not in {each["name"] for each in pod.spec["containers"][0]["env"]}


def test_env_of_its_own_under_that_name_stays() -> None:
    mine = {"name": "HEALTHD_ATTEMPT", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['a']"}}}
    manifest = remembered(a_manifest({"env": [mine]}))

    pod = made_again("rank-0", manifest, REF, a_hint(checkpoint=A_STEP))

    assert [each for each in pod.spec["containers"][0]["env"] if each["name"] == "HEALTHD_ATTEMPT"] == [mine]


def test_a_pod_made_again_waits_behind_a_gate_and_tolerates_the_spare_of_its_gang() -> None:
    gone = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 30}

    pod = made_again("rank-0", remembered(a_manifest(tolerations=[gone])), REF, a_hint())

    assert pod.spec["schedulingGates"] == [{"name": "healthd.dev/gang"}]
    assert [each["key"] for each in pod.spec["tolerations"]] == [gone["key"], "healthd.dev/reserved-for"]
    assert pod.spec["tolerations"][0]["tolerationSeconds"] == 30


def test_a_thousand_manifests_fit_into_an_object() -> None:
    manifests = {f"rank-{n}": remembered(a_manifest({"env": [{"name": "RANK", "value": str(n)}]})) for n in range(1000)}

    text = packed(manifests)

    assert unpacked(text) == manifests
    assert len(text) < 100_000
