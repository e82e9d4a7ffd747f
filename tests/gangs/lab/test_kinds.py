"""Every kind is stopped and started by healthd's own adapters, against its real controller."""

from __future__ import annotations

from typing import Any

import pytest

from healthd.core.api import ChosenCheckpoint
from healthd.core.recovery.gang import GangView
from healthd.core.recovery.members import index_of, members
from healthd.gangs import ADAPTERS
from tests.gangs.lab import manifests
from tests.gangs.lab.scenario import Scenario
from tests.gangs.roots import roots_of

pytestmark = [pytest.mark.lab, pytest.mark.slow]

STEP_7 = ChosenCheckpoint(path="/data/step_7", step=7)
KINDS = {
    "Job": [manifests.job()],
    "Job without indexes": [manifests.job(completionMode="NonIndexed")],
    "JobSet": [manifests.jobset()],
    "StatefulSet": [manifests.stateful_set()],
    "PodGang": manifests.plain_pods("rank-0", "rank-1", "rank-2", "rank-3"),
    "StatefulSet with a launcher": [
        manifests.launcher(),
        manifests.stateful_set(notes={"healthd.dev/launcher": "mpirun"}),
    ],
}


@pytest.mark.parametrize("which", KINDS)
async def test_a_gang_comes_back_whole_with_new_pods_that_know_where_to_resume(scenario: Scenario, which: str) -> None:
    kind = which.split()[0]
    scenario.apply(*KINDS[which])
    before = await scenario.until_running(kind)

    stopped = await scenario.stop(kind)
    await scenario.start(kind, checkpoint=STEP_7)
    after = await scenario.until_running(kind, attempt=1)

    assert (stopped.stopped_by, stopped.edited_since_stop) == ("train-1", False)
    assert not {pod.metadata.uid for pod in before} & {pod.metadata.uid for pod in after}
    assert all(pod.metadata.annotations["healthd.dev/resume-from"] == "/data/step_7" for pod in after)
    assert all("healthd.dev/reserved-for" in [t.key for t in pod.spec.tolerations] for pod in after)
    assert {"healthd.dev/restarted" in pod.metadata.labels for pod in after} == {kind != "PodGang"}
    root = await scenario.root(kind)
    assert (root.suspended, root.stopped_by, root.attempt) == (False, "", 1)


@pytest.mark.parametrize("which", KINDS)
async def test_every_pod_is_claimed_by_its_gang_alone(scenario: Scenario, which: str) -> None:
    kind = which.split()[0]
    scenario.apply(*KINDS[which])
    pods = await scenario.until_running(kind)
    root = await scenario.root(kind)

    assert all(ADAPTERS[kind].root_name(pod) == "train" for pod in pods)
    assert all(ADAPTERS[kind].root_uid(pod) in ("", root.ref.uid) for pod in pods)
    assert {index_of(pod) for pod in pods} - {""} == set(root.seats)
    everything = [(name, found) for name, each in ADAPTERS.items() for found in await roots_of(each, scenario.cluster)]
    assert [name for name, found in everything if found.ref.namespace == scenario.namespace] == [kind]


@pytest.mark.parametrize("which", ["Job", "JobSet"])
async def test_ranks_that_end_well_when_they_are_stopped_come_back_too(scenario: Scenario, which: str) -> None:
    template = manifests.pods(notes={"lab.healthd.dev/exit-when-stopped": "0"})
    make: Any = manifests.job if which == "Job" else manifests.jobset
    scenario.apply(make(template=template))
    await scenario.until_running(which)

    await scenario.stop(which)
    await scenario.start(which)

    assert len(await scenario.until_running(which, attempt=1)) == 4


@pytest.mark.parametrize("which", ["Job", "JobSet"])
async def test_a_stop_uses_up_no_retry_of_the_user(scenario: Scenario, which: str) -> None:
    failing: dict[str, Any] = {"failurePolicy": {"maxRestarts": 1}}
    scenario.apply(manifests.job(backoffLimit=0) if which == "Job" else manifests.jobset(**failing))
    await scenario.until_running(which)
    for attempt in (1, 2, 3):
        await scenario.stop(which)
        await scenario.start(which, attempt=attempt)
        await scenario.until_running(which, attempt=attempt)

    status = scenario.get(f"{which}/train")["status"]
    assert (status.get("failed", 0), status.get("restarts", 0)) == (0, 0)


@pytest.mark.parametrize("which", ["Job", "JobSet"])
async def test_a_fresh_start_leaves_no_older_hint_behind(scenario: Scenario, which: str) -> None:
    scenario.apply(manifests.job() if which == "Job" else manifests.jobset())
    await scenario.until_running(which)
    await scenario.stop(which)
    await scenario.start(which, checkpoint=STEP_7)
    await scenario.until_running(which, attempt=1)

    await scenario.stop(which)
    await scenario.start(which, attempt=2)
    pods = await scenario.until_running(which, attempt=2)

    assert {pod.metadata.annotations.get("healthd.dev/resume-from", "") for pod in pods} == {""}


@pytest.mark.parametrize("which", ["Job", "JobSet", "StatefulSet"])
async def test_what_its_user_changes_after_the_stop_is_seen(scenario: Scenario, which: str) -> None:
    kinds: dict[str, Any] = {"Job": manifests.job, "JobSet": manifests.jobset, "StatefulSet": manifests.stateful_set}
    scenario.apply(kinds[which]())
    await scenario.until_running(which)
    await scenario.stop(which)
    change = {"Job": '{"spec":{"parallelism":3,"completions":3}}', "StatefulSet": '{"spec":{"replicas":3}}'}

    scenario.kubectl("patch", which, "train", "--type=merge", "-p", change.get(which, '{"spec":{"suspend":false}}'))

    assert (await scenario.root(which)).edited_since_stop


async def test_how_long_its_owner_tolerates_what_survives_restarts_and_the_spare_is_tolerated_once(
    scenario: Scenario,
) -> None:
    gone = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    scenario.apply(manifests.jobset(template=manifests.pods(tolerations=[{**gone, "tolerationSeconds": 7}])))
    await scenario.until_running("JobSet")
    for attempt in (1, 2):
        await scenario.stop("JobSet")
        await scenario.start("JobSet", attempt=attempt)
        pods = await scenario.until_running("JobSet", attempt=attempt)

    # A JobSet that goes on appends what has seconds once more to its Jobs' own list; the same twice does no harm.
    assert {t.toleration_seconds for pod in pods for t in pod.spec.tolerations if t.key == gone["key"]} == {7}
    ours = [[t.key for t in pod.spec.tolerations].count("healthd.dev/reserved-for") for pod in pods]
    assert ours == [1] * 4


async def test_an_index_that_failed_a_moment_ago_starts_after_the_others(scenario: Scenario) -> None:
    scenario.apply(manifests.job())
    first, *_ = await scenario.until_running("Job")
    scenario.nodes.end_containers(scenario.namespace, first.metadata.name, exit_code=1)

    async def counted() -> bool:
        return bool(scenario.get("job/train")["status"].get("failed"))

    await scenario.until(counted, "the failure to be counted")
    await scenario.stop("Job")
    await scenario.start("Job")

    assert len(await scenario.until_running("Job", attempt=1)) == 4


async def test_after_a_restart_of_its_own_only_the_new_pods_of_a_jobset_are_members(scenario: Scenario) -> None:
    scenario.apply(manifests.jobset(failurePolicy={"maxRestarts": 3}))
    before = await scenario.until_running("JobSet")
    scenario.nodes.end_containers(scenario.namespace, before[0].metadata.name, exit_code=1)
    old = {pod.metadata.uid for pod in before}

    async def again() -> bool:
        pods = tuple(await scenario.pods())
        present = members(GangView(root=await scenario.root("JobSet"), pods=(*pods, *before)))
        return len(present) == 4 and not old & {pod.metadata.uid for pod in present}

    await scenario.until(again, "the JobSet to restart by itself")

    assert (await scenario.root("JobSet")).own_restarts == 1


async def test_a_statefulset_is_not_rolled_by_its_hint(scenario: Scenario) -> None:
    scenario.apply(manifests.stateful_set())
    await scenario.until_running("StatefulSet")
    await scenario.stop("StatefulSet")
    await scenario.start("StatefulSet", checkpoint=STEP_7)
    pods = await scenario.until_running("StatefulSet", attempt=1)

    revisions = {pod.metadata.labels["controller-revision-hash"] for pod in pods}
    status = scenario.get("statefulset/train")["status"]
    assert revisions == {status["updateRevision"]} == {status["currentRevision"]}


async def test_pods_made_again_are_given_a_node_only_when_the_whole_gang_is_there(scenario: Scenario) -> None:
    scenario.apply(*manifests.plain_pods("rank-0", "rank-1"))
    before = {pod.metadata.name: pod.spec for pod in await scenario.until_running("PodGang")}
    await scenario.stop("PodGang")

    await scenario.start("PodGang")

    after = {pod.metadata.name: pod for pod in await scenario.until_running("PodGang", attempt=1)}
    assert not any(pod.spec.scheduling_gates for pod in after.values())
    assert {name: pod.spec.restart_policy for name, pod in after.items()} == {
        n: s.restart_policy for n, s in before.items()
    }


async def test_the_memory_of_plain_pods_outlives_their_stop_and_goes_with_their_user(scenario: Scenario) -> None:
    scenario.apply(*manifests.plain_pods("rank-0", "rank-1"))
    await scenario.until_running("PodGang")
    await scenario.stop("PodGang")
    await scenario.start("PodGang")
    await scenario.until_running("PodGang", attempt=1)

    scenario.kubectl("delete", "pods", "--all", "--wait=false")

    async def gone() -> bool:
        return not scenario.kubectl("get", "podgangs", "-o", "name")

    await scenario.until(gone, "the memory to go")


async def test_plain_pods_come_back_as_their_user_wrote_them(scenario: Scenario) -> None:
    volume = {"name": "scratch", "emptyDir": {}}
    mount = {"name": "scratch", "mountPath": "/scratch"}
    container = {"name": "main", "image": "none", "env": [{"name": "RANK", "value": "0"}], "volumeMounts": [mount]}
    scenario.apply(*manifests.plain_pods("rank-0", volumes=[volume], containers=[container]))
    await scenario.until_running("PodGang")
    written = scenario.get("pod/rank-0")["spec"]
    await scenario.stop("PodGang")
    await scenario.start("PodGang", checkpoint=STEP_7)
    await scenario.until_running("PodGang", attempt=1)

    made = scenario.get("pod/rank-0")["spec"]
    env = {each["name"]: each["value"] for each in made["containers"][0]["env"]}
    assert env["RANK"] == "0"
    assert env["HEALTHD_RESUME_FROM"] == "/data/step_7"
    assert made["volumes"][0] == volume
    assert len(made["volumes"]) == len(written["volumes"])
    assert len(made["containers"][0]["volumeMounts"]) == len(written["containers"][0]["volumeMounts"])
