"""What a stolen token of the controller can change of the gangs of other operators, at a real API server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from healthd.core.api import JobManifest
from healthd.core.config.gang_kinds import KindDescription
from healthd.core.patches import merged
from healthd.gangs.kinds import ALL
from healthd.gangs.paths import MOST_MATCHES
from healthd.gangs.switch import Switch
from tests.deploy.accounts import SYSTEM, Request, answer, as_holder_of, refuser, token_of_controller
from tests.deploy.kinds import KINDS, define, grant, manifest, noted, path_of, switched, with_template
from tests.gangs.builders import A_STEP, a_hint
from tests.gangs.described import RUNS, SPECS, WITH_THREE_WORKERS, conditions, says_stopped, with_workers
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

POLICY = "healthd-controller-kinds"
STATUS_POLICY = "healthd-controller-kinds-status"
TENANT = "team-c"
ENABLED = {"healthd.dev/restart": "enabled"}
STOPPED = {**ENABLED, "healthd.dev/stopped-by": "r"}
ABOVE = [{"apiVersion": "example.com/v1", "kind": "Pipeline", "name": "p", "uid": "u", "controller": True}]
OF_KATIB = [
    {"apiVersion": "kubeflow.org/v1beta1", "kind": "Trial", "name": "random-4tmwkk8q", "uid": "u", "controller": True}
]
MORE_RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: more-than-is-shipped}
rules:
  - apiGroups: [kubeflow.org, trainer.kubeflow.org, ray.io, leaderworkerset.x-k8s.io, workload.codeflare.dev,
      batch.volcano.sh]
    resources: ["*"]
    verbs: [create, update, delete]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: more-than-is-shipped}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: more-than-is-shipped}
subjects: [{kind: ServiceAccount, name: healthd-controller, namespace: healthd-system}]
"""
"""The policy holds also where somebody grants too much."""

Attack = Callable[[KindDescription, str], Request | None]
"""Given a kind and where its objects are: the request; None where such an object has no such thing."""


def on(name: str, patch: Json) -> Attack:
    """A patch of the gang of this name."""
    return lambda _, where: ("PATCH", f"{where}/{name}", patch)


def on_status(name: str, status: Json) -> Request:
    """A patch of the status of the Job of Volcano of this name."""
    return "PATCH", f"{path_of(KINDS['VolcanoJob'], TENANT)}/{name}/status", {"status": status}


def with_numbers(*, replicas: Sequence[int], minimums: Sequence[int | None], least: int) -> Json:
    """A patch of a Volcano Job with these numbers in its tasks, and at *least* so many members."""
    tasks = [
        {**task, "replicas": count, **({} if minimum is None else {"minAvailable": minimum})}
        for task, count, minimum in zip(SPECS["VolcanoJob"]["tasks"], replicas, minimums, strict=True)
    ]
    return {"spec": {"tasks": tasks, "minAvailable": least}}


def notes(**values: str | None) -> Json:
    """A patch of annotations of healthd's."""
    return {"metadata": {"annotations": {f"healthd.dev/{key.replace('_', '-')}": v for key, v in values.items()}}}


def switching(name: str, is_off: bool) -> Attack:
    """Stop or start the gang of this name."""
    return lambda kind, where: ("PATCH", f"{where}/{name}", switched(kind, is_off))


def templated(change: Callable[[Json], object]) -> Attack:
    """A change of one of the pod templates of a gang that may be restarted."""

    def attack(kind: KindDescription, where: str) -> Request | None:
        patch = with_template(kind, change)
        return ("PATCH", f"{where}/running", patch) if patch else None

    return attack


def podded(**spec: Any) -> Attack:
    """Other fields in the spec of the pods."""
    return templated(lambda template: template["spec"].update(spec))


def counted(number: int) -> Attack:
    """More members: of each part where a gang has parts, else as it is written for that kind."""

    def attack(kind: KindDescription, where: str) -> Request | None:
        patches: dict[str, Json] = {
            "RayCluster": {"spec": {"workerGroupSpecs": [{"groupName": "small", "replicas": number}]}},
            "RayJob": {"spec": {"rayClusterSpec": {"workerGroupSpecs": [{"groupName": "small", "replicas": number}]}}},
            "TrainJob": {"spec": {"trainer": {"numNodes": number}}},
            "LeaderWorkerSet": {"spec": {"leaderWorkerTemplate": {"size": number}}},
            "AppWrapper": {"spec": {"components": []}},
            "VolcanoJob": {"spec": {"tasks": [{"name": "master", "replicas": number}]}},
        }
        patch = patches.get(kind.name) or {"spec": {kind.pods[0].at.split(".")[1]: {"Worker": {"replicas": number}}}}
        return "PATCH", f"{where}/running", patch

    return attack


def started(name: str, workers: int) -> Attack:
    """The gang of this name started with so many workers."""

    def attack(kind: KindDescription, where: str) -> Request | None:
        if kind.name not in WITH_THREE_WORKERS:
            return None
        on_again = Switch(kind).suspending(False)["spec"]
        return "PATCH", f"{where}/{name}", {"spec": merged(on_again, with_workers(kind.name, workers))}

    return attack


def only(kind: str, attack: Attack) -> Attack:
    """For one kind."""
    return lambda each, where: attack(each, where) if each.name == kind else None


PRIVILEGED = [{"name": "main", "image": "none", "securityContext": {"privileged": True}}]
HOST = {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}
BY_POLICY: dict[str, Attack] = {
    "a gang that asked for nothing stopped": switching("foreign", True),
    "a word on a gang that asked for nothing": on("foreign", notes(progress="{}")),
    "consent in the owner's place": on("foreign", notes(restart="enabled")),
    "a gang that is only annotated stopped": switching("annotated", True),
    "a gang that its user holds started": switching("held", False),
    "the mark of healthd's stop on a gang that its user holds": on("held", notes(stopped_by="r")),
    "the mark of healthd's stop on a gang that runs": on("running", notes(stopped_by="r")),
    "a gang that another object made stopped": switching("made", True),
    "a word on a gang that another object made": on("made", notes(progress="{}")),
    "a gang of kube-system stopped": lambda kind, where: (
        "PATCH",
        f"{where.replace(TENANT, 'kube-system')}/running",
        switched(kind, True),
    ),
    "a gang beside the opener stopped": lambda kind, where: (
        "PATCH",
        f"{where.replace(TENANT, SYSTEM)}/running",
        switched(kind, True),
    ),
    "another checkpoint of the owner's": on("running", notes(checkpoint="/evil")),
    "a shorter fence": on("running", notes(fence_timeout="1s")),
    "a foreign annotation": on("running", {"metadata": {"annotations": {"example.com/a": "b"}}}),
    "a label, and so a queue": on("running", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "x"}}}),
    "a finalizer": on("running", {"metadata": {"finalizers": ["example.com/keep"]}}),
    "an owner": on("running", {"metadata": {"ownerReferences": ABOVE}}),
    "another field of the spec": on("running", {"spec": {"ttlSecondsAfterFinished": 0}}),
    "another part": lambda kind, where: (
        "PATCH",
        f"{where}/running",
        {"spec": {part.at.split(".")[1]: {"More": {"replicas": 9}} for part in kind.pods[:1]} or {"labels": {}}},
    ),
    "another number of members": counted(40),
    "pods with another image": podded(containers=[{"name": "main", "image": "evil"}]),
    "pods with privilege": podded(containers=PRIVILEGED),
    "pods with a further container": podded(initContainers=[{"name": "first", "image": "evil"}]),
    "pods with the disk of their host": podded(**HOST),
    "pods with the network of their host": podded(hostNetwork=True),
    "pods with another account": podded(serviceAccountName="admin"),
    "pods on a node of its choice": podded(nodeName="n-1"),
    "pods on a class of nodes": podded(nodeSelector={"pool": "x"}),
    "pods with a toleration of everything": podded(tolerations=[{"operator": "Exists"}]),
    "pods on every spare of all gangs": podded(tolerations=[{"key": "healthd.dev/reserved-for", "operator": "Exists"}]),
    "pods with a foreign label": templated(lambda template: template["metadata"]["labels"].update(pool="x")),
    "pods with a foreign annotation": templated(
        lambda template: template["metadata"].update(annotations={"sidecar.istio.io/inject": "true"})
    ),
    "pods without a spec": templated(lambda template: template.update(spec=None)),
    "more replicas than there were": only("LeaderWorkerSet", on("running", {"spec": {"replicas": 100}})),
    "more replicas than were stopped": only("LeaderWorkerSet", on("stopped", {"spec": {"replicas": 5}})),
    "a note of more replicas than there are": only("LeaderWorkerSet", on("running", notes(replicas="100"))),
    "more members than were stopped": only(
        "VolcanoJob", on("stopped", with_numbers(replicas=(1, 30), minimums=(1, None), least=4))
    ),
    "fewer members than have to be there": only(
        "VolcanoJob", on("stopped", with_numbers(replicas=(1, 3), minimums=(1, None), least=1))
    ),
    "another minimum of a gang that runs": only("VolcanoJob", on("running", {"spec": {"minAvailable": 1}})),
    "only a part of it stopped": only(
        "VolcanoJob", on("running", with_numbers(replicas=(1, 0), minimums=(1, None), least=1))
    ),
    "a queue of its choice": only("VolcanoJob", on("running", {"spec": {"queue": "fast"}})),
    "more retries": only("VolcanoJob", on("running", {"spec": {"maxRetry": 1000}})),
    "fewer workers than healthd.dev/min-nodes": started("least", 2),
    "fewer workers than its own minimum": lambda kind, where: (
        started("smaller", 1)(kind, where) if kind.name != "MPIJob" else None
    ),
    "fewer workers where its owner has not allowed it": started("whole", 2),
    "fewer workers of a gang that runs": started("running-whole", 2),
    "no worker": started("smaller", 0),
    "more workers than there ever were": started("smaller", 4),
    "a larger size from before": lambda kind, where: (
        ("PATCH", f"{where}/smaller", notes(original_size="40")) if kind.name in WITH_THREE_WORKERS else None
    ),
    "what it wraps": only("AppWrapper", on("running", {"spec": {"components": [{"template": {"kind": "DaemonSet"}}]}})),
    "the image of its trainer": only("TrainJob", on("running", {"spec": {"trainer": {"image": "evil"}}})),
    "the runtime that it uses": only("TrainJob", on("running", {"spec": {"runtimeRef": {"name": "other"}}})),
    "pods that are overridden": only("TrainJob", on("running", {"spec": {"podTemplateOverrides": [{"spec": HOST}]}})),
    "another program": only("RayJob", on("running", {"spec": {"entrypoint": "evil"}})),
    "leaders of its own": only(
        "LeaderWorkerSet",
        on("running", {"spec": {"leaderWorkerTemplate": {"leaderTemplate": {"spec": {"containers": PRIVILEGED}}}}}),
    ),
    "another policy of the run": lambda kind, where: (
        ("PATCH", f"{where}/running", {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 0}}})
        if kind.suspend.startswith("spec.runPolicy")
        else None
    ),
}
"""What RBAC alone would allow."""
OF_STATUS: dict[str, Request] = {
    "the retries of a Job of Volcano forgotten": on_status("running", {"retryCount": 0, "version": 1}),
    "an end that a Job of Volcano has not had": on_status("running", {"state": {"phase": "Completed"}}),
    "a version of a Job of Volcano far away": on_status("running", {"version": 100}),
    "the status of a Job of Volcano that asked for nothing": on_status("foreign", {"version": 1}),
}
BATCH = f"/apis/batch/v1/namespaces/{TENANT}/jobs"
PODS = f"/api/v1/namespaces/{TENANT}/pods"
OF_LAUNCHER: dict[str, Request] = {
    "the launcher of an MPIJob on a class of nodes": (
        "PATCH",
        f"{BATCH}/stopped-launcher",
        {"spec": {"template": {"spec": {"nodeSelector": {"pool": "x"}}}}},
    ),
    "the launcher of an MPIJob started": ("PATCH", f"{BATCH}/stopped-launcher", {"spec": {"suspend": False}}),
    "the launcher of an MPIJob stopped": ("PATCH", f"{BATCH}/running-launcher", {"spec": {"suspend": True}}),
    "another number of launchers of an MPIJob": ("PATCH", f"{BATCH}/stopped-launcher", {"spec": {"parallelism": 5}}),
    "a word on the launcher of an MPIJob": ("PATCH", f"{BATCH}/stopped-launcher", notes(stopped_by="r")),
    "a hint for a suspended Job of somebody": (
        "PATCH",
        f"{BATCH}/of-somebody",
        {"spec": {"template": {"metadata": {"annotations": {"healthd.dev/attempt": "9"}}}}},
    ),
}
OF_WORKERS: dict[str, Request] = {
    "a worker of an MPIJob that runs deleted": ("DELETE", f"{PODS}/busy", None),
    "an ended pod that is of no MPIJob deleted": ("DELETE", f"{PODS}/ended", None),
}


@pytest.fixture(scope="module")
def token(installed: ControlPlane) -> str:
    """The controller's, once the policies are at work and the tenants' gangs are there."""
    define(installed)
    grant(installed)
    installed.kubectl("apply", "-f", "-", input=MORE_RIGHTS)
    installed.ensure_namespace(TENANT)
    for kind in KINDS.values():
        for name, gang in gangs(kind).items():
            installed.api.create(path_of(kind, TENANT), {**gang, "metadata": {**gang["metadata"], "name": name}})
        for namespace in ("kube-system", SYSTEM):
            installed.api.create(path_of(kind, namespace), manifest(kind, "running"))
    for name, is_off in (("running", False), ("stopped", True)):
        mpi_job = installed.api.get(f"{path_of(KINDS['MPIJob'], TENANT)}/{name}")
        installed.api.create(BATCH, launcher_of(mpi_job, is_off))
    installed.api.create(BATCH, {**launcher_of(mpi_job, True), "metadata": {"name": "of-somebody"}})
    ended(installed, "ended", [])
    a_worker(installed, "busy", owner_of(mpi_job))
    made = token_of_controller(installed)
    refused = BY_POLICY["a gang that its user holds started"](KINDS["TFJob"], path_of(KINDS["TFJob"], TENANT))
    assert refused
    dry: Request = (refused[0], f"{refused[1]}?dryRun=All", refused[2])
    wait_until("the policies at work", lambda: POLICY in answer(installed, made, dry)[1], limit=30)
    return made


def gangs(kind: KindDescription) -> dict[str, Json]:
    """By name."""
    return {
        "running": manifest(kind, ""),
        "held": manifest(kind, "", is_off=True),
        "foreign": manifest(kind, "", notes={}),
        "annotated": manifest(kind, "", notes={"healthd.dev/checkpoint": "/ckpt"}),
        "stopped": manifest(kind, "", is_off=True, notes={**STOPPED, "healthd.dev/replicas": noted(kind)}),
        "made": manifest(kind, "", ownerReferences=ABOVE),
        **(elastic_gangs(kind) if kind.name in WITH_THREE_WORKERS else {}),
    }


def elastic_gangs(kind: KindDescription) -> dict[str, Json]:
    """Stopped, with three workers; `smaller` has two of them left, and `least` may not have fewer than all."""

    def gang(workers: int, is_off: bool = True, **options: str) -> Json:
        spec = merged(WITH_THREE_WORKERS[kind.name], with_workers(kind.name, workers))
        options = {f"healthd.dev/{key.replace('_', '-')}": value for key, value in options.items()}
        return manifest(kind, "", is_off=is_off, notes={**(STOPPED if is_off else ENABLED), **options}, spec=spec)

    return {
        "whole": gang(3),
        "running-whole": gang(3, is_off=False, min_nodes="1"),
        "least": gang(3, min_nodes="3" if kind.name == "MPIJob" else "4"),
        "smaller": gang(2, min_nodes="1", original_size="3"),
    }


def owner_of(mpi_job: Json) -> list[Json]:
    meta = mpi_job["metadata"]
    named = {"apiVersion": mpi_job["apiVersion"], "kind": "MPIJob", "name": meta["name"], "uid": meta["uid"]}
    return [{**named, "controller": True}]


def launcher_of(mpi_job: Json, is_off: bool) -> Json:
    """The Job that the MPI operator makes for it."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "launcher", "image": "none"}]}}
    return {
        "metadata": {"name": f"{mpi_job['metadata']['name']}-launcher", "ownerReferences": owner_of(mpi_job)},
        "spec": {"suspend": is_off, "template": template},
    }


def a_worker(installed: ControlPlane, name: str, owners: list[Json], at: str = PODS) -> None:
    labels = {"training.kubeflow.org/job-name": owners[0]["name"]} if owners else {}
    meta = {"name": name, "labels": labels, "ownerReferences": owners}
    spec = {"containers": [{"name": "worker", "image": "none"}], "nodeName": "n-1"}
    installed.api.create(at, {"metadata": meta, "spec": spec})


def ended(installed: ControlPlane, name: str, owners: list[Json]) -> None:
    a_worker(installed, name, owners)
    installed.api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Failed"}})


CASES = [
    pytest.param(kind, what, id=f"{kind}: {what}")
    for what, attack in BY_POLICY.items()
    for kind, description in KINDS.items()
    if attack(description, "") is not None
]


@pytest.mark.parametrize(("kind", "what"), CASES)
def test_the_policy_refuses(installed: ControlPlane, token: str, kind: str, what: str) -> None:
    request = BY_POLICY[what](KINDS[kind], path_of(KINDS[kind], TENANT))
    assert request

    status, message = answer(installed, token, request)

    assert (status, refuser(message)) == (403, POLICY), message


@pytest.mark.parametrize("what", OF_STATUS)
def test_the_policy_of_a_status_refuses(installed: ControlPlane, token: str, what: str) -> None:
    status, message = answer(installed, token, OF_STATUS[what])

    assert (status, refuser(message)) == (403, STATUS_POLICY), message


@pytest.mark.parametrize("what", OF_LAUNCHER)
def test_the_policy_of_roots_refuses(installed: ControlPlane, token: str, what: str) -> None:
    status, message = answer(installed, token, OF_LAUNCHER[what])

    assert (status, refuser(message)) == (403, "healthd-controller-roots"), message


@pytest.mark.parametrize("what", OF_WORKERS)
def test_the_policy_of_pods_refuses(installed: ControlPlane, token: str, what: str) -> None:
    status, message = answer(installed, token, OF_WORKERS[what])

    assert (status, refuser(message)) == (403, "healthd-controller-pods"), message


@pytest.mark.parametrize("kind", KINDS)
async def test_the_adapter_may_stop_and_start_a_gang(
    installed: ControlPlane, token: str, namespace: str, kind: str
) -> None:
    adapter, path = ALL[kind], path_of(KINDS[kind], namespace)
    made = installed.api.create(path, manifest(KINDS[kind], "train"))
    installed.api.patch(f"{path}/train/status", {"status": RUNS.get(kind, {})})

    async with as_holder_of(installed, token) as cluster:
        root = adapter.read(await cluster.get(adapter.kind, "train", namespace))
        assert root
        await adapter.stop(cluster, root, "r-1")
        halted = installed.api.get(f"{path}/train")
        installed.api.patch(f"{path}/train/status", {"status": says_stopped(kind)})
        root = adapter.read(await cluster.get(adapter.kind, "train", namespace))
        assert root
        await adapter.start(cluster, root, a_hint({"0": "n-1"}, A_STEP))
        await adapter.note(cluster, root, {"healthd.dev/progress": "{}", "healthd.dev/saves": "{}"})

    begun = installed.api.get(f"{path}/train")
    assert halted["metadata"]["annotations"]["healthd.dev/stopped-by"] == "r-1"
    assert begun["metadata"]["annotations"]["healthd.dev/attempt"] == "3"
    assert made["metadata"]["uid"] == begun["metadata"]["uid"]


async def test_the_adapter_may_touch_a_raycluster_whose_stop_was_noticed(
    installed: ControlPlane, token: str, namespace: str
) -> None:
    adapter, path = ALL["RayCluster"], path_of(KINDS["RayCluster"], namespace)
    installed.api.create(path, manifest(KINDS["RayCluster"], "train"))

    async with as_holder_of(installed, token) as cluster:
        root = adapter.read(await cluster.get(adapter.kind, "train", namespace))
        assert root
        await adapter.stop(cluster, root, "r-1")
        halted = installed.api.get(f"{path}/train")
        installed.api.patch(f"{path}/train/status", {"status": conditions("RayClusterSuspending")})
        root = adapter.read(await cluster.get(adapter.kind, "train", namespace))
        assert root
        await adapter.maintain(cluster, root, [])

    assert halted["metadata"]["annotations"]["healthd.dev/awaits-operator"] == "stop"
    assert "healthd.dev/awaits-operator" not in installed.api.get(f"{path}/train")["metadata"]["annotations"]


@pytest.mark.parametrize("kind", WITH_THREE_WORKERS)
async def test_the_adapter_may_make_an_elastic_gang_smaller_and_as_large_as_before(
    installed: ControlPlane, token: str, namespace: str, kind: str
) -> None:
    adapter, path = ALL[kind], path_of(KINDS[kind], namespace)
    allowed = {**ENABLED, "healthd.dev/min-nodes": "2"}
    installed.api.create(path, manifest(KINDS[kind], "train", notes=allowed, spec=WITH_THREE_WORKERS[kind]))
    members, sizes = {"MPIJob": "{}", "PyTorchJob": "worker-{}"}.get(kind, "{}"), []
    first = {"MPIJob": {"+0": "n"}, "PyTorchJob": {"master-0": "n"}}.get(kind, {"3": "n"})

    async with as_holder_of(installed, token) as cluster:
        for workers, own_size in ((2, 3), (3, None)):
            root = adapter.read(await cluster.get(adapter.kind, "train", namespace))
            assert root
            await adapter.stop(cluster, root, "r-1")
            root = adapter.read(await cluster.get(adapter.kind, "train", namespace))
            assert root
            hint = a_hint({**first, **{members.format(number): "n" for number in range(workers)}})
            await adapter.start(cluster, root, replace(hint, own_size=own_size))
            again = adapter.read(await cluster.get(adapter.kind, "train", namespace))
            assert again
            sizes.append(again.world)

    assert sizes == [3, 4]


@pytest.mark.parametrize("kind", ["PyTorchJob", "RayJob"])
async def test_the_adapter_may_stop_what_a_trial_of_katib_has_made(
    installed: ControlPlane, token: str, namespace: str, kind: str
) -> None:
    adapter, path = ALL[kind], path_of(KINDS[kind], namespace)
    installed.api.create(path, manifest(KINDS[kind], "train", ownerReferences=OF_KATIB))

    async with as_holder_of(installed, token) as cluster:
        root = adapter.read(await cluster.get(adapter.kind, "train", namespace))
        assert root
        await adapter.stop(cluster, root, "r-1")

    assert installed.api.get(f"{path}/train")["metadata"]["annotations"]["healthd.dev/stopped-by"] == "r-1"


@pytest.mark.parametrize("kind", ["RayCluster", "PyTorchJob"])
async def test_a_gang_of_as_many_parts_as_there_may_be_is_stopped_and_started(
    installed: ControlPlane, token: str, namespace: str, kind: str
) -> None:
    """Each is compared, and what that costs is limited by the API server."""
    path, adapter = path_of(KINDS[kind], namespace), ALL[kind]
    gang = manifest(KINDS[kind], "train")
    part = wide_part()
    if kind == "RayCluster":
        gang["spec"]["workerGroupSpecs"] = [{"groupName": f"g-{i}", **part} for i in range(MOST_MATCHES - 1)]
    else:
        gang["spec"]["pytorchReplicaSpecs"] = {f"Worker{i}": part for i in range(MOST_MATCHES - 1)}
    installed.api.create(path, gang)

    async with as_holder_of(installed, token) as cluster:
        root = adapter.read(await cluster.get(adapter.kind, "train", namespace))
        assert root
        await adapter.stop(cluster, root, "r-1")
        root = adapter.read(await cluster.get(adapter.kind, "train", namespace))
        assert root
        await adapter.start(cluster, root, a_hint({}, A_STEP))

    assert installed.api.get(f"{path}/train")["metadata"]["annotations"]["healthd.dev/attempt"] == "3"


def wide_part() -> Json:
    """With some fifty variables and tolerations, as large templates have."""
    env = [{"name": f"VARIABLE_{i}", "value": "x" * 50} for i in range(50)]
    tolerations = [{"key": f"pool-{i}", "operator": "Exists"} for i in range(10)]
    container = {"name": "main", "image": "none", "env": env}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container], "tolerations": tolerations}}
    return {"replicas": 1, "template": template}


async def test_the_launcher_of_a_stopped_mpi_job_gets_its_hint_and_its_ended_workers_go(
    installed: ControlPlane, token: str, namespace: str
) -> None:
    adapter = ALL["MPIJob"]
    stopped = manifest(KINDS["MPIJob"], "train", is_off=True, notes=STOPPED)
    mpi_job = installed.api.create(path_of(KINDS["MPIJob"], namespace), stopped)
    jobs, pods = f"/apis/batch/v1/namespaces/{namespace}/jobs", f"/api/v1/namespaces/{namespace}/pods"
    installed.api.create(jobs, launcher_of(mpi_job, True))
    a_worker(installed, "train-worker-0", owner_of(mpi_job), at=pods)
    installed.api.patch(f"{pods}/train-worker-0/status", {"status": {"phase": "Failed"}})

    async with as_holder_of(installed, token) as cluster:
        root = adapter.read(await cluster.get(adapter.kind, "train", namespace))
        assert root
        await adapter.start(cluster, root, a_hint({}, A_STEP))
        job = await cluster.get(JobManifest, "train-launcher", namespace)

    assert job.spec["template"]["metadata"]["annotations"]["healthd.dev/resume-from"] == A_STEP.path
    assert not installed.has(f"{pods}/train-worker-0")


def test_others_may_change_what_they_like(installed: ControlPlane, token: str) -> None:
    for kind in KINDS.values():
        path = path_of(kind, TENANT)
        installed.api.patch(f"{path}/foreign", {"spec": {"anything": True}})
        installed.api.create(path, manifest(kind, "of-others"))
        installed.api.delete(f"{path}/of-others")
