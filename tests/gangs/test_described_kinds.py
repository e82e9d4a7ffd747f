"""Every kind that healthd ships as data: read, stopped, started, ended. `test_pytorchjob` has the rest."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Forbidden
from healthd.core.api import JobManifest, ObjectMeta, OwnerReference, Pod
from healthd.core.recovery.gang import Root, RootOutcome
from healthd.core.recovery.members import index_of
from healthd.gangs.kinds import ALL, SHIPPED
from healthd.gangs.kinds.check import check_description
from healthd.gangs.parts import templates
from tests.gangs.builders import A_STEP, ENABLED, a_hint, a_jobset, a_part, an_empty_cluster
from tests.gangs.described import (
    SPECS,
    a_member,
    adapter_of,
    an_object,
    conditions,
    made_by,
    now,
    read,
    reports,
    says_stopped,
    stored,
    switched,
)

KINDS = [kind.name for kind in SHIPPED]
TRAINING = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
KUBEFLOW = "training.kubeflow.org/"
LWS = "leaderworkerset.sigs.k8s.io/"


@pytest.fixture
def cluster() -> EmbeddedCluster:
    """An empty cluster in memory."""
    return an_empty_cluster()


async def found(cluster: EmbeddedCluster, kind: str) -> Root:
    """The gang as the controller finds it, with what other objects say of it."""
    adapter = adapter_of(kind)
    return await adapter.complete(cluster, read(kind, await now(cluster, kind)))


async def a_gang(cluster: EmbeddedCluster, kind: str, **fields: Any) -> Root:
    """A running gang of this kind in the cluster, with what it makes that matters."""
    obj = await stored(cluster, kind, **fields)
    if kind == "TrainJob":
        owner = made_by(kind, uid=obj.metadata.uid)
        await cluster.create(a_jobset(annotations={}, parts=[a_part("node", pods=4)], owner_references=[owner]))
    return await found(cluster, kind)


async def stops(cluster: EmbeddedCluster, kind: str) -> Root:
    """healthd stops it, and its controller says that it has."""
    await adapter_of(kind).stop(cluster, await found(cluster, kind), "train-1")
    await reports(cluster, await now(cluster, kind), says_stopped(kind))
    if kind == "TrainJob":
        jobset = ALL["JobSet"].kind
        await cluster.patch(jobset, "train", {"spec": {"suspend": True}}, namespace="default")
        said = {"status": conditions("Suspended")}
        await cluster.patch(jobset, "train", said, namespace="default", subresource="status")
    return await found(cluster, kind)


@pytest.mark.parametrize("kind", SHIPPED, ids=KINDS)
def test_what_healthd_ships_passes_the_check_of_what_an_operator_writes(kind: Any) -> None:
    check_description(kind)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"alias": "no name"}, "alias: 'no name' is no name"),
        ({"minimums": ("spec.min",)}, "minimums: "),
        ({"pod_version": "spec.version"}, "pod_version: "),
        ({"bound_by_name": True, "name_label": ""}, "bound_by_name: "),
        ({"stopped": "Suspended and 5"}, "stopped: "),
        ({"suspended": ("spec.x",)}, "suspended: "),
        ({"noticed_stop": "spec.x"}, "noticed_stop: "),
    ],
)
def test_what_does_not_go_together_is_said_at_the_start(fields: dict[str, Any], why: str) -> None:
    kind = msgspec.structs.replace(adapter_of("PyTorchJob").description, **fields)

    with pytest.raises(ValueError, match=why):
        check_description(kind)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_running_gang_of_four_is_read(cluster: EmbeddedCluster, kind: str) -> None:
    root = await a_gang(cluster, kind)

    assert (root.world, root.invalid, root.suspended, root.stopped, root.has_begun) == (4, (), False, False, True)
    assert (root.ref.kind, root.ending, root.options.restart) == (kind, RootOutcome.NOT_ENDED, True)


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_another_object_controls_is_no_root(kind: str) -> None:
    assert adapter_of(kind).read(an_object(kind, owner=made_by("AnyKind"))) is None


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_stopped_when_its_controller_says_so_and_not_before(cluster: EmbeddedCluster, kind: str) -> None:
    before = await a_gang(cluster, kind)
    await adapter_of(kind).stop(cluster, before, "train-1")
    asked = await found(cluster, kind)
    root = await stops(cluster, kind)

    assert (asked.suspended, asked.stopped, asked.stopped_by, asked.edited_since_stop) == (
        True,
        False,
        "train-1",
        False,
    )
    assert (root.suspended, root.stopped, root.world) == (True, True, before.world)


@pytest.mark.parametrize(
    ("status", "is_stopped"),
    [
        ({"phase": "Suspending", **conditions("DeletingResources")}, True),
        ({"phase": "Suspending", **conditions("ResourcesDeployed")}, False),
        ({"phase": "Running", **conditions("DeletingResources")}, False),
        ({"phase": "Suspended", **conditions(DeletingResources="False")}, True),
    ],
    ids=["its components go", "nothing was deleted yet", "it has not seen the stop", "all is gone"],
)
async def test_an_appwrapper_is_stopped_once_it_has_sent_its_deletions(
    cluster: EmbeddedCluster, status: dict[str, Any], is_stopped: bool
) -> None:
    root = await a_gang(cluster, "AppWrapper")
    await adapter_of("AppWrapper").stop(cluster, root, "train-1")
    await reports(cluster, await now(cluster, "AppWrapper"), status)

    assert (await found(cluster, "AppWrapper")).stopped is is_stopped


async def touches(cluster: EmbeddedCluster) -> int:
    """How many changes healthd makes to a RayCluster that it looks at three times."""
    versions = [(await now(cluster, "RayCluster")).metadata.resource_version]
    for _ in range(3):
        await ALL["RayCluster"].maintain(cluster, await found(cluster, "RayCluster"), [])
        versions.append((await now(cluster, "RayCluster")).metadata.resource_version)
    return len({*versions}) - 1


async def test_a_raycluster_changes_once_when_kuberay_has_noticed_the_stop(cluster: EmbeddedCluster) -> None:
    await adapter_of("RayCluster").stop(cluster, await a_gang(cluster, "RayCluster"), "train-1")
    before = await touches(cluster)
    await reports(cluster, await now(cluster, "RayCluster"), conditions("RayClusterSuspending"))

    assert (before, await touches(cluster)) == (0, 1)
    assert (await found(cluster, "RayCluster")).edited_since_stop is False


async def test_a_raycluster_changes_once_when_kuberay_has_noticed_the_start(cluster: EmbeddedCluster) -> None:
    await a_gang(cluster, "RayCluster")
    await adapter_of("RayCluster").start(cluster, await stops(cluster, "RayCluster"), a_hint(checkpoint=A_STEP))
    before = await touches(cluster)
    await reports(cluster, await now(cluster, "RayCluster"), conditions(RayClusterSuspended="False"))

    assert (before, await touches(cluster)) == (0, 1)


async def test_a_stop_that_kuberay_noticed_while_no_controller_looked_is_followed_by_one_change_after_the_start(
    cluster: EmbeddedCluster,
) -> None:
    await a_gang(cluster, "RayCluster")
    await adapter_of("RayCluster").stop(cluster, await found(cluster, "RayCluster"), "train-1")
    await reports(cluster, await now(cluster, "RayCluster"), says_stopped("RayCluster"))
    before = await touches(cluster)
    await adapter_of("RayCluster").start(cluster, await found(cluster, "RayCluster"), a_hint(checkpoint=A_STEP))
    await reports(cluster, await now(cluster, "RayCluster"), conditions(RayClusterSuspended="False"))

    assert (before, await touches(cluster)) == (0, 1)


async def test_beside_older_policies_a_raycluster_is_stopped_and_started_at_the_pace_of_its_operator(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = cluster.patch

    async def refuses_the_note(kind: Any, name: str, body: Any, **how: Any) -> Any:
        if body.get("metadata", {}).get("annotations", {}).get("healthd.dev/awaits-operator"):
            raise Forbidden("of its annotations the controller may change its own alone")
        return await patch(kind, name, body, **how)

    monkeypatch.setattr(cluster, "patch", refuses_the_note)
    await a_gang(cluster, "RayCluster")
    await adapter_of("RayCluster").stop(cluster, await found(cluster, "RayCluster"), "train-1")
    await reports(cluster, await now(cluster, "RayCluster"), says_stopped("RayCluster"))
    stopped = await found(cluster, "RayCluster")
    await adapter_of("RayCluster").start(cluster, stopped, a_hint(checkpoint=A_STEP))

    assert (stopped.stopped_by, (await found(cluster, "RayCluster")).suspended) == ("train-1", False)


@pytest.mark.parametrize("asked", [None, "stop", "start", "junk"])
async def test_a_raycluster_that_its_user_suspends_is_not_touched(cluster: EmbeddedCluster, asked: str | None) -> None:
    notes = {"healthd.dev/awaits-operator": asked} if asked else {}
    await a_gang(cluster, "RayCluster", annotations={**ENABLED, **notes}, spec=switched("RayCluster", True)["spec"])
    await reports(cluster, await now(cluster, "RayCluster"), conditions("RayClusterSuspending"))

    assert await touches(cluster) == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_started_as_it_was_with_the_hint_on_every_template(cluster: EmbeddedCluster, kind: str) -> None:
    before = await a_gang(cluster, kind)
    spec = (await now(cluster, kind)).spec
    await adapter_of(kind).start(cluster, await stops(cluster, kind), a_hint(checkpoint=A_STEP))
    after = await now(cluster, kind)
    root = await found(cluster, kind)
    hinted = list(templates(adapter_of(kind).description, {"spec": after.spec}))

    assert (root.suspended, root.stopped_by, root.attempt, root.seats) == (False, "", 3, before.seats)
    assert not root.has_begun, "until its controller has seen it"
    for template in hinted:
        assert template["metadata"]["annotations"]["healthd.dev/resume-from"] == "/data/step_7"
        assert template["metadata"]["labels"].pop("healthd.dev/restarted") == after.metadata.uid
        template["metadata"]["annotations"] = {}
        del template["spec"]["tolerations"]
    assert bool(hinted) is not bool(root.hint_labels), "its pods are known by their template or by labels"
    off = {"suspend": False} if "suspend" not in spec and not adapter_of(kind).description.replicas else {}
    assert after.spec == (spec if kind in TRAINING or kind == "MPIJob" else {**spec, **off})


@pytest.mark.parametrize("kind", KINDS)
async def test_its_user_may_suspend_it_and_it_is_not_taken_for_healthds_stop(
    cluster: EmbeddedCluster, kind: str
) -> None:
    obj = await stored(cluster, kind)
    await cluster.patch(type(obj), "train", switched(kind, True), namespace="default")

    assert ((await found(cluster, kind)).suspended, (await found(cluster, kind)).stopped_by) == (True, "")


@pytest.mark.parametrize(
    ("kind", "status", "ending"),
    [
        *((kind, conditions("Succeeded"), RootOutcome.COMPLETE) for kind in (*TRAINING, "MPIJob")),
        *((kind, conditions("Failed"), RootOutcome.FAILED) for kind in (*TRAINING, "MPIJob", "TrainJob")),
        ("TrainJob", conditions("Complete"), RootOutcome.COMPLETE),
        ("RayJob", {"jobDeploymentStatus": "Complete"}, RootOutcome.COMPLETE),
        ("RayJob", {"jobDeploymentStatus": "Failed"}, RootOutcome.FAILED),
        ("RayJob", {"jobDeploymentStatus": "Retrying"}, RootOutcome.NOT_ENDED),
        ("AppWrapper", {"phase": "Succeeded"}, RootOutcome.COMPLETE),
        ("AppWrapper", {"phase": "Failed"}, RootOutcome.FAILED),
        ("AppWrapper", {"phase": "Resetting"}, RootOutcome.NOT_ENDED),
    ],
)
def test_it_ends_as_its_controller_says(kind: str, status: dict[str, Any], ending: RootOutcome) -> None:
    assert read(kind, an_object(kind, status=status)).ending is ending


MEMBERS = [
    *(
        (kind, kind, {f"{KUBEFLOW}job-name": "train", f"{KUBEFLOW}replica-type": "worker"}, f"{KUBEFLOW}replica-index")
        for kind in TRAINING
    ),
    ("MPIJob", "MPIJob", {f"{KUBEFLOW}job-name": "train", f"{KUBEFLOW}job-role": "worker"}, f"{KUBEFLOW}replica-index"),
    ("LeaderWorkerSet", "StatefulSet", {f"{LWS}name": "train", f"{LWS}group-index": "0"}, f"{LWS}worker-index"),
]


@pytest.mark.parametrize(("kind", "owner", "labels", "number"), MEMBERS, ids=[row[0] for row in MEMBERS])
async def test_a_numbered_member_has_a_seat(
    cluster: EmbeddedCluster, kind: str, owner: str, labels: dict[str, str], number: str
) -> None:
    root = await a_gang(cluster, kind)
    pod = a_member(made_by(owner), labels={**labels, number: "2"})

    assert adapter_of(kind).root_name(pod) == "train"
    assert index_of(pod, root) in root.seats


@pytest.mark.parametrize(
    ("kind", "owner", "labels"),
    [
        ("MPIJob", "Job", {f"{KUBEFLOW}job-name": "train", f"{KUBEFLOW}job-role": "launcher"}),
        ("TrainJob", "Job", {"jobset.sigs.k8s.io/jobset-name": "train"}),
        ("RayCluster", "RayCluster", {"ray.io/cluster": "train"}),
        ("RayJob", "RayCluster", {"ray.io/cluster": "train-8xk2p"}),
        ("RayJob", "RayCluster", {"ray.io/cluster": "train-raycluster-8xk2p"}),
        ("AppWrapper", "ReplicaSet", {"workload.codeflare.dev/appwrapper": "train"}),
    ],
)
def test_members_without_numbers_are_known_too(kind: str, owner: str, labels: dict[str, str]) -> None:
    pod = a_member(made_by(owner, name="train-8xk2p"), labels=labels)

    assert adapter_of(kind).root_name(pod) == "train"


@pytest.mark.parametrize(
    ("kind", "owner", "labels"),
    [
        ("TFJob", "PyTorchJob", {f"{KUBEFLOW}job-name": "train"}),
        ("MPIJob", "PyTorchJob", {f"{KUBEFLOW}job-name": "train"}),
        ("RayJob", "RayCluster", {"ray.io/cluster": "train"}),
        ("RayJob", "RayCluster", {"ray.io/cluster": "train-blue"}),
        ("AppWrapper", "Job", {}),
    ],
)
def test_other_pods_are_no_members(kind: str, owner: str, labels: dict[str, str]) -> None:
    assert adapter_of(kind).root_name(a_member(made_by(owner), labels=labels)) is None


async def test_the_launcher_of_an_mpijob_is_a_member_without_a_number(cluster: EmbeddedCluster) -> None:
    root = await a_gang(cluster, "MPIJob")
    launcher = a_member(made_by("Job", "train-launcher"), labels={f"{KUBEFLOW}job-name": "train"})

    assert (root.world, root.seats, index_of(launcher, root)) == (4, ("0", "1", "2"), "")


async def test_the_hint_reaches_the_launcher_that_an_mpijob_keeps(cluster: EmbeddedCluster) -> None:
    root = await a_gang(cluster, "MPIJob")
    await a_launcher(cluster, made_by("MPIJob", uid=root.ref.uid))

    await adapter_of("MPIJob").start(cluster, await stops(cluster, "MPIJob"), a_hint(checkpoint=A_STEP))

    spec = (await cluster.get(JobManifest, "train-launcher", "default")).spec
    assert spec["template"]["metadata"]["annotations"]["healthd.dev/resume-from"] == "/data/step_7"
    assert spec["template"]["metadata"]["labels"] == {"healthd.dev/restarted": root.ref.uid}
    assert spec["suspend"] is True, "the operator resumes it"


async def test_a_job_of_another_owner_that_is_called_like_the_launcher_is_left_alone(cluster: EmbeddedCluster) -> None:
    await a_gang(cluster, "MPIJob")
    other = await stored(cluster, "MPIJob", name="other")
    before = await a_launcher(cluster, made_by("MPIJob", "other", uid=other.metadata.uid))

    await adapter_of("MPIJob").start(cluster, await stops(cluster, "MPIJob"), a_hint(checkpoint=A_STEP))

    assert await cluster.get(JobManifest, "train-launcher", "default") == before


async def a_launcher(cluster: EmbeddedCluster, owner: OwnerReference) -> JobManifest:
    """The suspended Job of a launcher."""
    meta = ObjectMeta(name="train-launcher", namespace="default", owner_references=[owner])
    spec = {"suspend": True, "template": {"spec": {"containers": [{"name": "launcher"}]}}}
    return await cluster.create(JobManifest(metadata=meta, spec=spec))


async def test_workers_of_an_mpijob_that_failed_are_deleted_before_it_starts(cluster: EmbeddedCluster) -> None:
    root = await a_gang(cluster, "MPIJob")
    labels = {f"{KUBEFLOW}job-name": "train"}
    for name, owner in (("failed", root.ref.uid), ("other", root.ref.uid)):
        await cluster.create(a_member(made_by("MPIJob", uid=owner), name, labels=labels))
    failed = {"status": {"phase": "Failed"}}
    await cluster.patch(Pod, "failed", failed, namespace="default", subresource="status")

    await adapter_of("MPIJob").start(cluster, await stops(cluster, "MPIJob"), a_hint())

    assert [pod.metadata.name for pod in (await cluster.list(Pod)).items] == ["other"]


async def test_a_trainjob_has_the_members_of_its_jobset_and_their_restarts(cluster: EmbeddedCluster) -> None:
    await a_gang(cluster, "TrainJob")
    restarted = {"status": {"restarts": 2}}
    await cluster.patch(ALL["JobSet"].kind, "train", restarted, namespace="default", subresource="status")

    root = await found(cluster, "TrainJob")
    assert (root.world, root.own_restarts) == (4, 2)
    assert root.seats == ("node-0-0", "node-0-1", "node-0-2", "node-0-3")


async def test_a_jobset_that_only_has_the_name_of_a_trainjob_is_not_its(cluster: EmbeddedCluster) -> None:
    await stored(cluster, "TrainJob")
    await cluster.create(a_jobset())

    assert (await found(cluster, "TrainJob")).world == 0


@pytest.mark.parametrize(
    ("kind", "spec", "why"),
    [
        ("RayJob", {"shutdownAfterJobFinishes": False}, "refuses to suspend"),
        ("RayJob", {"shutdownAfterJobFinishes": None}, "refuses to suspend"),
        ("RayJob", {"clusterSelector": {"ray.io/cluster": "shared"}}, "others share"),
        ("MPIJob", {"runLauncherAsWorker": True}, "takes the number"),
        ("TrainJob", {"managedBy": "kueue.x-k8s.io/multikueue"}, "MultiKueue"),
        ("AppWrapper", {"managedBy": "kueue.x-k8s.io/multikueue"}, "MultiKueue"),
    ],
)
def test_one_that_cannot_be_restarted_is_left_alone_with_the_reason(kind: str, spec: dict[str, Any], why: str) -> None:
    (reason,) = read(kind, an_object(kind, spec=spec)).invalid

    assert why in reason


HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"replicas": 2**31 - 1}}}),
    ("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"replicas": -1}}}),
    ("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"replicas": "many"}}}),
    ("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"replicas": True}}}),
    ("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"replicas": 1e300}}}),
    ("PyTorchJob", {"pytorchReplicaSpecs": {f"Part{n}": {} for n in range(5000)}}),
    ("PyTorchJob", {"pytorchReplicaSpecs": {"x" * 5000: {}}}),
    ("PyTorchJob", {"pytorchReplicaSpecs": {"\x1b[2J": {}}}),
    ("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"containers": 7}}}}}),
    ("RayCluster", {"workerGroupSpecs": [{"replicas": 20_000, "numOfHosts": 20_000}]}),
    ("RayCluster", {"workerGroupSpecs": [{"replicas": 15_000}, {"replicas": 15_000}]}),
    ("LeaderWorkerSet", {"replicas": 15_000, "leaderWorkerTemplate": {"size": 15_000}}),
    ("LeaderWorkerSet", {"replicas": "9" * 5000}),
]


@pytest.mark.parametrize(("kind", "spec"), HOSTILE, ids=[str(number) for number in range(len(HOSTILE))])
def test_a_spec_of_another_shape_makes_it_invalid_with_a_short_reason(kind: str, spec: dict[str, Any]) -> None:
    root = read(kind, an_object(kind, spec=spec))

    assert len(root.invalid) == 1
    assert (root.world, root.seats, len(root.invalid[0]) < 400, root.invalid[0].isprintable()) == (0, (), True, True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("junk", [7, "x", [], [7], {"conditions": 7}, {"conditions": [7, {"type": 7}]}])
def test_a_status_of_another_shape_raises_nothing(kind: str, junk: Any) -> None:
    status = junk if isinstance(junk, dict) else dict.fromkeys(("conditions", "phase", "replicas", "startTime"), junk)

    root = read(kind, an_object(kind, status=status))
    assert root.ref.kind == kind


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("junk", [None, 7, "x", [], {}])
def test_a_spec_without_what_is_looked_for_raises_nothing(kind: str, junk: Any) -> None:
    obj = an_object(kind)
    spec = {} if junk is None else dict.fromkeys(SPECS[kind], junk)

    assert read(kind, msgspec.structs.replace(obj, spec=spec, status={})).world <= 7


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not adapter_of(kind).description.below])
async def test_a_replica_count_from_before_the_stop_that_cannot_be_read_makes_it_invalid(kind: str) -> None:
    if not adapter_of(kind).description.replicas:
        return
    notes = {"healthd.dev/restart": "enabled", "healthd.dev/stopped-by": "r", "healthd.dev/replicas": "9" * 5000}

    (why,) = read(kind, an_object(kind, spec=switched(kind, True)["spec"], annotations=notes)).invalid
    assert why.startswith("healthd.dev/replicas: ")
