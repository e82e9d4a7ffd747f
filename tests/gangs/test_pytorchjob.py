"""PyTorchJobs as gangs, and with them all kinds that are suspended and described by data."""

from __future__ import annotations

import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Conflict
from healthd.core.recovery.gang import RootOutcome
from healthd.core.recovery.members import index_of
from tests.builders import a_pod
from tests.fakes import START
from tests.gangs.builders import A_STEP, a_hint, an_empty_cluster
from tests.gangs.described import (
    SINCE,
    a_member,
    adapter_of,
    an_object,
    conditions,
    made_by,
    now,
    read,
    reports,
    stored,
)

KIND = "PyTorchJob"
ADAPTER = adapter_of(KIND)
WORKER = {
    "training.kubeflow.org/job-name": "train",
    "training.kubeflow.org/replica-type": "worker",
    "training.kubeflow.org/replica-index": "2",
}


@pytest.fixture
def cluster() -> EmbeddedCluster:
    """An empty cluster in memory."""
    return an_empty_cluster()


def test_one_without_annotations_of_healthd_is_no_root() -> None:
    assert ADAPTER.read(an_object(KIND, annotations={})) is None


def test_one_that_another_gang_kind_made_is_no_root() -> None:
    assert ADAPTER.read(an_object(KIND, owner=made_by("AppWrapper"))) is None


def test_the_pods_of_all_its_replica_specs_are_the_gang() -> None:
    root = read(KIND, an_object(KIND))

    assert (root.world, root.invalid) == (4, ())
    assert root.seats == ("master-0", "worker-0", "worker-1", "worker-2")


def test_a_replica_spec_without_a_number_has_one_pod() -> None:
    specs = {"Master": None, "Worker": {"replicas": None}}

    assert read(KIND, an_object(KIND, spec={"pytorchReplicaSpecs": specs})).seats == ("worker-0",)


def test_a_member_is_known_by_labels_and_its_owner() -> None:
    pod = a_member(made_by(KIND), labels=WORKER)

    assert (ADAPTER.root_name(pod), ADAPTER.root_uid(pod)) == ("train", "uid-1")
    assert index_of(pod, read(KIND, an_object(KIND))) == "worker-2"


def test_a_pod_of_another_kind_with_the_same_labels_is_no_member() -> None:
    assert ADAPTER.root_name(a_member(made_by("TFJob"), labels=WORKER)) is None
    assert ADAPTER.root_name(a_pod(labels=WORKER)) is None


@pytest.mark.parametrize(
    ("suspend", "status", "stopped"),
    [
        pytest.param(True, conditions("Suspended"), True, id="its controller says so"),
        pytest.param(True, conditions("Running"), False, id="its controller has not noticed yet"),
        pytest.param(False, conditions("Suspended"), False, id="it was resumed"),
    ],
)
def test_it_has_stopped_when_its_controller_says_so(suspend: bool, status: dict[str, object], stopped: bool) -> None:
    root = read(KIND, an_object(KIND, spec={"runPolicy": {"suspend": suspend}}, status=status))

    assert (root.suspended, root.stopped) == (suspend, stopped)


def test_it_has_begun_when_its_controller_takes_back_that_it_stopped() -> None:
    not_yet = read(KIND, an_object(KIND, status=conditions("Suspended")))
    going = read(KIND, an_object(KIND, status={**conditions("Running", Suspended="False"), "startTime": SINCE}))

    assert (not_yet.has_begun, going.has_begun) == (False, True)
    assert going.started_at == START.replace(month=3, day=1, hour=12, minute=0, second=0, microsecond=0, year=2026)


@pytest.mark.parametrize(
    ("condition", "ending"),
    [
        ("Succeeded", RootOutcome.COMPLETE),
        ("Failed", RootOutcome.FAILED),
        ("Restarting", RootOutcome.NOT_ENDED),
    ],
)
def test_it_ends_by_its_conditions(condition: str, ending: RootOutcome) -> None:
    assert read(KIND, an_object(KIND, status=conditions(condition))).ending is ending


async def test_stopping_suspends_and_says_by_whom_in_one_write(cluster: EmbeddedCluster) -> None:
    await ADAPTER.stop(cluster, read(KIND, await stored(cluster, KIND)), "train-1")

    obj = await now(cluster, KIND)
    root = read(KIND, obj)
    assert obj.spec["runPolicy"] == {"suspend": True, "cleanPodPolicy": "None", "backoffLimit": 3}
    assert (root.suspended, root.stopped_by, root.edited_since_stop) == (True, "train-1", False)


async def test_what_its_user_changes_after_the_stop_is_seen(cluster: EmbeddedCluster) -> None:
    obj = await stored(cluster, KIND)
    await ADAPTER.stop(cluster, read(KIND, obj), "train-1")
    larger = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 5}}}}
    await cluster.patch(type(obj), "train", larger, namespace="default")

    assert read(KIND, await now(cluster, KIND)).edited_since_stop


async def test_starting_sets_the_hint_on_every_template_and_changes_nothing_else(cluster: EmbeddedCluster) -> None:
    before = await stored(cluster, KIND)
    await ADAPTER.stop(cluster, read(KIND, before), "train-1")
    stopped = await reports(cluster, await now(cluster, KIND), conditions("Suspended"))

    await ADAPTER.start(cluster, read(KIND, stopped), a_hint(checkpoint=A_STEP))

    after = await now(cluster, KIND)
    root = read(KIND, after)
    assert (root.suspended, root.stopped_by, root.attempt) == (False, "", 3)
    for name, part in after.spec["pytorchReplicaSpecs"].items():
        template, old = part.pop("template"), before.spec["pytorchReplicaSpecs"][name].pop("template")
        assert template["metadata"]["labels"] == {"app": "train", "healthd.dev/restarted": after.metadata.uid}
        assert template["metadata"]["annotations"]["healthd.dev/resume-from"] == "/data/step_7"
        assert [each["key"] for each in template["spec"].pop("tolerations")] == ["healthd.dev/reserved-for"]
        assert template["spec"] == old["spec"]
    assert after.spec == before.spec


async def test_a_fresh_start_removes_an_older_hint(cluster: EmbeddedCluster) -> None:
    root = read(KIND, await stored(cluster, KIND, spec={"runPolicy": {"suspend": True}}))
    await ADAPTER.start(cluster, root, a_hint(checkpoint=A_STEP))
    await ADAPTER.start(cluster, read(KIND, await now(cluster, KIND)), a_hint())

    notes = (await now(cluster, KIND)).spec["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"]
    assert notes == {"healthd.dev/attempt": "3"}


async def test_an_act_upon_one_that_has_changed_since_is_refused(cluster: EmbeddedCluster) -> None:
    obj = await stored(cluster, KIND)
    await cluster.patch(type(obj), "train", {"metadata": {"labels": {"a": "b"}}}, namespace="default")

    with pytest.raises(Conflict):
        await ADAPTER.stop(cluster, read(KIND, obj), "train-1")
    with pytest.raises(Conflict):
        await ADAPTER.start(cluster, read(KIND, obj), a_hint())


@pytest.mark.parametrize("kind", ["LeaderWorkerSet"])
def test_a_kind_whose_pods_kueue_holds_is_left_alone_in_a_queue(kind: str) -> None:
    (why,) = read(kind, an_object(kind, labels={"kueue.x-k8s.io/queue-name": "gpus"})).invalid

    assert why == "it is in Kueue's queue 'gpus', where Kueue holds its pods and not the object itself"


def test_one_that_runs_in_another_cluster_is_left_alone_with_the_reason() -> None:
    (why,) = read(KIND, an_object(KIND, spec={"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}})).invalid

    assert "MultiKueue" in why
