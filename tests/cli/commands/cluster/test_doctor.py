"""`healthd doctor`: what it reads of a cluster, and how it tells."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

import msgspec
import pytest

from healthd.cli.commands.cluster.doctor import as_json, as_text, parse_target, read_chart
from healthd.cli.errors import UserError
from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Forbidden, NotFound
from healthd.core.api import (
    AccessReviewStatus,
    Job,
    Lease,
    LocalSubjectAccessReview,
    MutatingAdmissionPolicy,
    ObjectMeta,
    Recovery,
    SubjectAccessReview,
)
from healthd.core.config import CheckpointsPolicy, Config
from healthd.core.config.gang_kinds import GangsPolicy, KindDescription, PodsDescription
from healthd.core.report.doctor import HintPolicy, Remark, RemarkLevel, examine
from healthd.core.report.doctor.rights import CONTROLLER
from tests.builders import a_job, a_lease, a_node, a_nodehealth, a_pod
from tests.fakes import ManualClock, counting_uids
from tests.gangs.builders import a_jobset, a_part, a_statefulset
from tests.gangs.described import a_member, made_by, stored


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """An empty cluster in memory."""
    with EmbeddedCluster.open(None, clock=ManualClock(), new_uid=counting_uids()) as embedded:
        yield embedded


@pytest.mark.parametrize("text", ["train", "job/", "deployment/train", "/train"])
def test_a_target_that_is_none_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(UserError, match="write job/NAME, jobset/NAME, statefulset/NAME or pods/GANG"):
        parse_target(text, "default")


@pytest.mark.parametrize("text", ["job/train", "pods/train"])
async def test_a_gang_that_is_not_there_is_said_so(cluster: EmbeddedCluster, text: str) -> None:
    with pytest.raises(UserError, match="in namespace default"):
        await read_chart(cluster, parse_target(text, "default"))


async def test_a_job_is_seen_with_its_pods_and_their_nodes(cluster: EmbeddedCluster) -> None:
    job = await cluster.create(a_job(annotations={"healthd.dev/restart": "enabled"}))
    labels = {"batch.kubernetes.io/job-name": "train"}
    await cluster.create(a_pod("rank-0", node="node-a", owner=job, labels=labels))
    await cluster.create(a_pod("stranger"))
    await cluster.create(a_node("node-a"))
    await cluster.create(a_nodehealth("node-a"))
    await cluster.create(MutatingAdmissionPolicy(metadata=ObjectMeta(name="healthd-gangs")))

    chart = await read_chart(cluster, parse_target("job/train", "default"))

    assert [pod.metadata.name for pod in chart.pods] == ["rank-0"]
    assert (set(chart.nodes), set(chart.health)) == ({"node-a"}, {"node-a"})
    assert chart.hint_policy is HintPolicy.INSTALLED
    assert chart.spec["backoffLimit"] == 0
    assert chart.root is not None


async def test_an_admission_policy_that_is_not_installed_is_missed(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_job())

    chart = await read_chart(cluster, parse_target("job/train", "default"))

    assert chart.hint_policy is HintPolicy.MISSING


async def test_a_statefulset_is_seen_with_its_launcher(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_job("mpirun"))
    await cluster.create(a_statefulset(annotations={"healthd.dev/launcher": "mpirun"}))

    chart = await read_chart(cluster, parse_target("sts/train", "default"))

    assert chart.launcher is not None
    assert chart.launcher["spec"]["completionMode"] == "Indexed"


async def test_plain_pods_are_seen_before_healthd_remembers_them(cluster: EmbeddedCluster) -> None:
    notes = {"healthd.dev/restart": "enabled"}
    for name in ("rank-0", "rank-1"):
        await cluster.create(a_pod(name, gang="train", annotations=notes))

    chart = await read_chart(cluster, parse_target("pods/train", "default"))

    assert (chart.root, len(chart.spec["pods"]), chart.meta.annotations) == (None, 2, notes)
    assert "annotation healthd.dev/restart" not in " ".join(remark.what for remark in examine(chart))


async def test_the_lease_of_the_controller_is_read_where_healthd_runs(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_job())
    before = await read_chart(cluster, parse_target("job/train", "default"))
    held = await cluster.create(a_lease("healthd-controller", namespace="healthd-system", holder="pod-1"))

    after = await read_chart(cluster, parse_target("job/train", "default"))

    assert (before.leases, after.leases) == ((), (held,))


REMARK = Remark(RemarkLevel.PREVENTS, "the gate is shut", "nobody comes in", "open it")


def test_a_remark_is_reported_with_its_reason_and_what_to_do() -> None:
    text = as_text(parse_target("job/train", "research"), [REMARK])

    assert text == (
        "job/train in research: healthd cannot recover it\n\n"
        "PREVENTS  the gate is shut\n          nobody comes in\n          do: open it"
    )


def test_a_gang_in_order_is_reported_in_one_line() -> None:
    text = as_text(parse_target("job/train", "research"), [])

    assert text == "job/train in research: nothing stands in the way of a recovery"


def test_programs_read_the_same() -> None:
    reported = json.loads(as_json(parse_target("job/train", "research"), [REMARK]))

    assert reported["remarks"] == [
        {"level": "prevents", "what": "the gate is shut", "why": "nobody comes in", "remedy": "open it"}
    ]


async def test_what_the_controller_may_read_is_known_from_its_configuration_alone(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_job())
    target = parse_target("job/train", "default")
    config = Config(checkpoints=CheckpointsPolicy(allowed=("/shared for *", "/b for b")))

    assert (await read_chart(cluster, target)).readable is None
    assert (await read_chart(cluster, target, config)).readable == ("/checkpoints/default", "/shared")


async def test_a_format_that_is_declared_wrong_prevents_a_recovery(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_job(annotations={"healthd.dev/checkpoint-format": "steps: [\nfiles: x"}))

    chart = await read_chart(cluster, parse_target("job/train", "default"))

    (remark,) = [each for each in examine(chart) if "checkpoint-format" in each.what]
    assert remark.level is RemarkLevel.PREVENTS
    assert "is no YAML" in remark.what


@pytest.mark.parametrize("text", ["rayjob/train", "rayjobs/train", "RayJob/train"])
async def test_a_gang_of_another_operators_kind_is_read_with_its_traps_and_its_pods(
    cluster: EmbeddedCluster, text: str
) -> None:
    job = await stored(cluster, "RayJob", spec={"shutdownAfterJobFinishes": None})
    labels = {"ray.io/cluster": "train-8xk2p"}
    await cluster.create(a_member(made_by("RayCluster", "train-8xk2p"), labels=labels))

    chart = await read_chart(cluster, parse_target(text, "default"))
    said = {remark.what: remark for remark in examine(chart)}

    assert chart.root is not None
    assert (chart.root.ref.uid, len(chart.pods)) == (job.metadata.uid, 1)
    prevents = said["spec.shutdownAfterJobFinishes is not set"]
    assert (prevents.level, prevents.remedy) == (RemarkLevel.PREVENTS, "shutdownAfterJobFinishes: true")
    assert [what for what in said if "KubeRay refuses" in what] == [], "it is said once"


async def test_one_that_asked_for_nothing_yet_is_examined_too(cluster: EmbeddedCluster) -> None:
    await stored(cluster, "TFJob", annotations={})

    said = [remark.what for remark in examine(await read_chart(cluster, parse_target("tfjob/train", "default")))]

    assert "the annotation healthd.dev/restart is not there" in said
    assert "restartPolicy of Chief, Worker is OnFailure" in said


async def test_the_jobset_of_a_trainjob_is_examined_with_it(cluster: EmbeddedCluster) -> None:
    made = await stored(cluster, "TrainJob")
    owner = made_by("TrainJob", uid=made.metadata.uid)
    part = a_part("node", pods=4, backoffLimit=0)
    await cluster.create(a_jobset(parts=[part], annotations={}, owner_references=[owner]))

    said = [remark.what for remark in examine(await read_chart(cluster, parse_target("trainjob/train", "default")))]

    assert "backoffLimit of node is 0, with 4 members" in said
    assert "its pods do not carry the label healthd.dev/gang" in said


async def test_a_kind_of_ones_own_is_found_by_the_configuration(cluster: EmbeddedCluster) -> None:
    own = KindDescription(
        api_version="example.com/v1",
        kind="Run",
        plural="runs",
        suspend="spec.stop",
        stopped="Stopped",
        pods=(PodsDescription(at="spec"),),
    )
    config = Config(gangs=GangsPolicy(kinds=(own,)))
    target = parse_target("run/train", "default", config)
    meta = ObjectMeta(name="train", namespace="default", annotations={"healthd.dev/restart": "enabled"})
    await cluster.create(target.adapter.kind(metadata=meta, spec={"template": {"spec": "of another shape"}}))

    chart = await read_chart(cluster, target, config)

    assert chart.root is not None
    assert "a pod template of it cannot be read" in chart.invalid[0]
    assert examine(chart)[0].level is RemarkLevel.PREVENTS
    with pytest.raises(UserError):
        parse_target("run/train", "default")


async def test_why_a_gang_in_a_queue_of_kueue_is_left_alone_is_said(cluster: EmbeddedCluster) -> None:
    await stored(cluster, "PyTorchJob", labels={"kueue.x-k8s.io/queue-name": "lq"})

    said = examine(await read_chart(cluster, parse_target("pytorchjob/train", "default")))

    assert next((remark.level, remark.what) for remark in said if "Kueue" in remark.what) == (
        RemarkLevel.PREVENTS,
        "it is in Kueue's queue 'lq', and no Workload is there for it, where one should be",
    )


class WithRights:
    """A cluster in memory whose API server also says who may do what: the controller may do what is in *granted*."""

    def __init__(self, cluster: EmbeddedCluster, granted: Collection[str]) -> None:
        self._granted = granted
        self.get, self.list = cluster.get, cluster.list
        self.asked: list[Any] = []

    async def create(self, obj: Any) -> Any:
        self.asked.append(obj)
        what = obj.spec.resource_attributes
        allowed = f"{what.verb} {what.resource} {what.name}".strip() in self._granted
        return msgspec.structs.replace(obj, status=AccessReviewStatus(allowed=allowed))


class Secretive(WithRights):
    """The same for somebody who may not ask about others."""

    async def create(self, obj: Any) -> Any:
        raise Forbidden(f"{type(obj).__name__} is forbidden")


async def doctored(
    cluster: EmbeddedCluster, kind: type[WithRights], granted: Collection[str] = ()
) -> dict[str, RemarkLevel]:
    """What is said of the rights for plain pods that save on a claim."""
    await cluster.create(a_pod("healthd-controller-1", namespace="healthd-system", labels=CONTROLLER))
    notes = {"healthd.dev/restart": "enabled", "healthd.dev/checkpoint": "pvc://runs/x"}
    await cluster.create(a_pod("rank-0", gang="train", annotations=notes))
    seen: Any = kind(cluster, granted)
    remarks = examine(await read_chart(seen, parse_target("pods/train", "default"), Config()))
    return {remark.what: remark.level for remark in remarks if "controller may" in remark.what}


async def test_rights_that_the_controller_lacks_are_reported(cluster: EmbeddedCluster) -> None:
    assert await doctored(cluster, WithRights) == {
        "the controller may not guard plain pods in default": RemarkLevel.PREVENTS,
        "the controller may not run busybox:1.36 to verify pvc://runs/x": RemarkLevel.PREVENTS,
    }


class WithoutHealthd:
    """A cluster that has no definitions of healthd."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.get = cluster.get

    async def list(self, kind: Any, **options: Any) -> Any:
        if kind is Recovery:
            raise NotFound("404 page not found")
        return await self._cluster.list(kind, **options)


async def test_a_cluster_without_healthd_recovers_nothing(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_job("train", annotations={"healthd.dev/restart": "enabled"}))
    seen: Any = WithoutHealthd(cluster)
    remarks = examine(await read_chart(seen, parse_target("job/train", "default"), Config()))

    said = "healthd is not installed in this cluster: it has no recoveries"
    assert [remark.what for remark in remarks if remark.level is RemarkLevel.PREVENTS] == [said]


class OfATenant:
    """A user who may not look into the namespace of healthd."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.list = cluster.list

    async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        if kind is Lease:
            raise Forbidden("leases is forbidden")
        return await self._cluster.get(kind, name, namespace)


async def test_of_a_lease_that_the_user_may_not_read_nothing_is_said(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_job())
    seen: Any = OfATenant(cluster)

    chart = await read_chart(seen, parse_target("job/train", "default"))

    assert chart.leases is None


async def test_rights_that_it_has_are_not(cluster: EmbeddedCluster) -> None:
    granted = {"create pods", "create podgangs", "patch podgangs", "remake podgangs", "run verifierimages busybox:1.36"}

    assert await doctored(cluster, WithRights, granted) == {}


async def test_rights_that_one_may_not_ask_about_are_no_error(cluster: EmbeddedCluster) -> None:
    assert set((await doctored(cluster, Secretive)).values()) == {RemarkLevel.NOTE}


async def test_a_kind_that_the_controller_may_not_patch_cannot_be_recovered(cluster: EmbeddedCluster) -> None:
    await stored(cluster, "RayJob")
    seen: Any = WithRights(cluster, {"get rayjobs", "list rayjobs", "watch rayjobs"})

    said = examine(await read_chart(seen, parse_target("rayjob/train", "default")))

    (remark,) = [each for each in said if "may not guard" in each.what]
    assert (remark.level, remark.what) == (
        RemarkLevel.PREVENTS,
        "the controller may not guard gangs of the kind RayJob",
    )
    assert "lacks the right to patch rayjobs" in remark.why
    assert "deploy/components/ray" in remark.remedy
    assert {type(each) for each in seen.asked} == {SubjectAccessReview}


async def test_the_account_of_the_controller_is_asked_about_in_the_gangs_own_namespace(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create(a_pod("rank-0", gang="train"))
    seen: Any = WithRights(cluster, ())

    await read_chart(seen, parse_target("pods/train", "default"))

    assert {type(each) for each in seen.asked} == {LocalSubjectAccessReview}
    assert {each.spec.user for each in seen.asked} == {"system:serviceaccount:healthd-system:healthd-controller"}
    assert {(each.metadata.namespace, each.spec.resource_attributes.namespace) for each in seen.asked} == {
        ("default", "default")
    }


async def test_reading_changes_nothing(cluster: EmbeddedCluster) -> None:
    before = await cluster.create(a_job())

    await read_chart(cluster, parse_target("job/train", "default"))

    assert (await cluster.get(Job, "train", "default")).metadata.resource_version == before.metadata.resource_version
