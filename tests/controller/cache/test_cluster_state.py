"""What the controller has noticed: each change in its place, and the gangs that it touches."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from healthd.controller.cache.cluster_state import KEPT_DELETED, ClusterState, GangKey, ObjectKey
from healthd.core.api import (
    ANNOTATION_RESTART,
    LABEL_GANG,
    Condition,
    Device,
    Job,
    Nic,
    Node,
    NodeHealthStatus,
    OwnerReference,
    Pod,
    PodRhythm,
    PodStatus,
    Recovery,
    RecoveryStatus,
    Taint,
    TimelineEntry,
)
from healthd.core.api.health import MemberState, PodSlowRank, PodWork
from healthd.core.api.model import Phase, Verdict
from healthd.core.node import work_request
from healthd.core.recovery.members import deletion_asked_at
from healthd.gangs import ADAPTERS
from tests.builders import a_job, a_node, a_nodehealth, a_pod, a_recovery, gang_ref
from tests.fakes import START

TRAIN = GangKey("Job", "default", "train")


def stored(obj: Any, version: int = 1, uid: str = "") -> Any:
    """*obj* as an API server shows it."""
    name = obj.metadata.name
    meta = msgspec.structs.replace(obj.metadata, resource_version=str(version), uid=uid or f"uid-{name}")
    return msgspec.structs.replace(obj, metadata=meta)


JOB: Job = stored(a_job("train", annotations={ANNOTATION_RESTART: "enabled"}))


def member(
    name: str = "train-0", *, node: str = "node-a", version: int = 1, phase: str = "Running", **more: Any
) -> Pod:
    """A pod of the gang `train`."""
    labels = {"batch.kubernetes.io/job-name": "train"}
    pod: Pod = stored(a_pod(name, node="node-a", labels=labels, status=PodStatus(phase=phase), **more), version)
    return pod


def a_cluster_state(*objects: Any) -> ClusterState:
    """What was noticed, with none touched any more."""
    cluster_state = ClusterState(ADAPTERS)
    for obj in objects:
        cluster_state.upsert(obj)
    cluster_state.dirty_keys.clear()
    return cluster_state


def test_a_pod_touches_its_gang_alone() -> None:
    cluster_state = a_cluster_state(JOB, stored(a_job("other", annotations={ANNOTATION_RESTART: "enabled"})))
    cluster_state.upsert(member())

    assert cluster_state.dirty_keys == {TRAIN}


def test_a_node_that_goes_bad_touches_the_gangs_there() -> None:
    cluster_state = a_cluster_state(JOB, stored(a_node("node-a")), member())
    cluster_state.upsert(stored(a_node("node-a", taints=[Taint(key="healthd.dev/quarantined")]), 2))

    assert cluster_state.dirty_keys == {TRAIN}


def test_a_gang_is_on_the_nodes_of_its_own_members() -> None:
    labels = {LABEL_GANG: "train", "batch.kubernetes.io/job-name": "train"}
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="uid-train", controller=True)
    pod = stored(a_pod("train-0", node="node-a", labels=labels, owner_references=[owner]))
    cluster_state = a_cluster_state(JOB, pod)

    assert cluster_state.gangs_on("node-a") == [TRAIN]  # and not a pod gang or a StatefulSet with the name of its label
    assert cluster_state.gangs_on("node-b") == []


def test_a_heartbeat_of_a_node_touches_no_one() -> None:
    later = Condition(type="Ready", status="True", reason="KubeletReady", last_heartbeat_time=START)
    cluster_state = a_cluster_state(JOB, stored(a_node("node-a")), member())
    cluster_state.upsert(stored(a_node("node-a", conditions=[later]), 2))

    assert cluster_state.dirty_keys == set()


def test_a_question_to_the_agent_of_a_node_touches_no_one() -> None:
    cluster_state = a_cluster_state(JOB, stored(a_node("node-a")), member())
    asked = work_request.patch(START)["metadata"]["annotations"]
    cluster_state.upsert(stored(a_node("node-a", annotations=asked), 2))

    assert cluster_state.dirty_keys == set()


def test_a_node_on_which_no_gang_runs_touches_no_one() -> None:
    cluster_state = a_cluster_state(JOB, member())
    cluster_state.upsert(stored(a_node("node-z", unschedulable=True)))

    assert cluster_state.dirty_keys == set()


def test_a_new_spare_touches_the_gangs_that_may_wait_for_one() -> None:
    waiting = stored(a_recovery(gang=JOB, status=RecoveryStatus(phase=Phase.HELD)))
    cluster_state = a_cluster_state(JOB, waiting)
    cluster_state.upsert(stored(a_node("node-z", spare=True)))

    assert cluster_state.dirty_keys == {TRAIN}


def test_what_an_agent_says_touches_the_gangs_that_run_there() -> None:
    cluster_state = a_cluster_state(JOB, member())
    cluster_state.upsert(stored(a_nodehealth("node-a", verdict=Verdict.UNHEALTHY)))

    assert cluster_state.dirty_keys == {TRAIN}


A_SLOW_RANK = PodSlowRank(
    rank=3, pid=7, since=START, slower=0.2, ran=0.6, starved=0, peers_ran=0.5, peers_starved=0, confidence=0.9
)


def a_report(state: MemberState, cores: float, at: datetime, version: int, *slow: PodSlowRank) -> Any:
    """Of a node with one pod that works."""
    since = None if state is MemberState.WORKING else START
    work = PodWork(end=at, seconds=15, cores=[cores])
    rhythm = PodRhythm(uid="a", state=state, since=since, work=work, slow_ranks=list(slow))
    return stored(a_nodehealth("node-a", status=NodeHealthStatus(rhythms=[rhythm], seen_at=at)), version)


def test_how_much_a_pod_works_touches_no_one_but_what_it_does_while_it_is_quiet_does() -> None:
    later = START + timedelta(minutes=2)
    cluster_state = a_cluster_state(JOB, member(), a_report(MemberState.WORKING, 4.0, START, 1))
    cluster_state.upsert(a_report(MemberState.WORKING, 3.0, later, 2, A_SLOW_RANK))

    assert cluster_state.dirty_keys == set()
    assert cluster_state.health["node-a"].status.seen_at == later

    for version, seconds in ((3, 0), (4, 60)):
        cluster_state.dirty_keys.clear()
        cluster_state.upsert(a_report(MemberState.SILENT, 3.0, later + timedelta(seconds=seconds), version))
        assert cluster_state.dirty_keys == {TRAIN}


def test_nothing_goes_back_in_time() -> None:
    cluster_state = a_cluster_state(JOB, member(version=7, phase="Failed"))
    cluster_state.upsert(member(version=6))

    assert [pod.status.phase for pod in cluster_state.members(gang_ref(JOB))] == ["Failed"]
    assert cluster_state.dirty_keys == set()


def test_a_late_answer_does_not_bring_a_deleted_object_back() -> None:
    cluster_state = a_cluster_state(JOB, member(version=6))
    cluster_state.remove(member(version=7))
    cluster_state.upsert(member(version=6))

    assert cluster_state.members(gang_ref(JOB)) == ()


def test_an_old_list_does_not_take_away_what_was_made_since() -> None:
    cluster_state = a_cluster_state(JOB)
    cluster_state.upsert(stored(a_recovery(gang=JOB), 9))
    cluster_state.replace(Recovery, [], "8")

    assert cluster_state.active(gang_ref(JOB)) is not None


def test_a_newer_list_does() -> None:
    cluster_state = a_cluster_state(JOB, stored(a_recovery(gang=JOB), 9))
    cluster_state.replace(Recovery, [], "10")

    assert cluster_state.active(gang_ref(JOB)) is None
    assert cluster_state.dirty_keys == {TRAIN}


def test_the_last_state_of_a_pod_that_is_gone_is_kept() -> None:
    cluster_state = a_cluster_state(JOB, member(version=6))
    cluster_state.remove(member(version=7, phase="Failed"))

    assert [(pod.metadata.name, pod.status.phase) for pod in cluster_state.deleted_pods(gang_ref(JOB))] == [
        ("train-0", "Failed")
    ]


def going(version: int, *, at: datetime, grace: int) -> Pod:
    """A member whose object is deleted, with the deletion timestamp *at*."""
    return member(version=version, phase="Failed", deletion_timestamp=at, deletion_grace_period_seconds=grace)


def test_a_pod_was_deleted_when_that_was_asked_for_first_and_not_when_its_kubelet_was_done_with_it() -> None:
    """Its last delete has no grace, and an API server sets the present time with it."""
    cluster_state = a_cluster_state(JOB, going(2, at=START + timedelta(seconds=30), grace=30))
    last = going(3, at=START + timedelta(seconds=50), grace=0)
    read = cluster_state.with_first_request(last)
    cluster_state.upsert(last)
    here = cluster_state.view(gang_ref(JOB)).pods
    cluster_state.remove(last)

    assert [deletion_asked_at(pod) for pod in (read, *here)] == [START] * 2
    assert [deletion_asked_at(pod) for pod in cluster_state.view(gang_ref(JOB)).deleted] == [START]


def test_a_deletion_may_be_asked_for_once_more_with_less_grace() -> None:
    cluster_state = a_cluster_state(JOB, going(2, at=START + timedelta(seconds=30), grace=30))
    cluster_state.upsert(going(3, at=START + timedelta(seconds=5), grace=5))

    (pod,) = cluster_state.view(gang_ref(JOB)).pods
    assert pod.metadata.deletion_timestamp == START + timedelta(seconds=5)


def test_a_pod_of_the_same_name_was_not_deleted_with_the_former_one() -> None:
    cluster_state = a_cluster_state(JOB, going(2, at=START, grace=0))
    again = stored(going(3, at=START + timedelta(seconds=50), grace=0), 3, uid="another")

    assert cluster_state.with_first_request(again) == again


def test_what_a_later_list_does_not_show_is_gone_though_we_wrote_it_since_it_was_seen_last() -> None:
    seen, written = stored(a_node("node-a"), 3), stored(a_node("node-a", spare=True), 5)
    cluster_state = a_cluster_state(seen, written)

    cluster_state.apply(None, seen, "4")
    assert cluster_state.spare_nodes == {"node-a"}

    cluster_state.apply(None, seen, "9")
    assert not cluster_state.nodes


def test_a_pod_made_anew_under_its_name_takes_the_place_of_the_one_whose_last_state_is_kept() -> None:
    running, failed = member("train-0", version=1), member("train-0", version=4, phase="Failed")
    anew = stored(member("train-0"), 5, "uid-new")
    cluster_state = a_cluster_state(JOB, running)

    cluster_state.apply(anew, failed, "9")

    assert [pod.metadata.uid for pod in cluster_state.members(gang_ref(JOB))] == ["uid-new"]
    assert [pod.status.phase for pod in cluster_state.deleted_pods(gang_ref(JOB))] == ["Failed"]


def test_what_an_earlier_gang_of_the_name_left_behind_is_nothing_of_this_one() -> None:
    earlier = [OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="uid-earlier", controller=True)]
    old = member(version=6, owner_references=earlier)
    cluster_state = a_cluster_state(JOB, old)
    cluster_state.remove(old)

    assert cluster_state.deleted_pods(gang_ref(JOB)) == ()


def test_pods_of_no_gang_of_ours_leave_nothing_behind() -> None:
    stranger = stored(a_pod("web", node="node-a"))
    cluster_state = a_cluster_state(stranger)
    cluster_state.remove(stranger)

    assert cluster_state.deleted_pods(gang_ref(JOB)) == ()
    assert cluster_state.dirty_keys == set()


def test_what_only_people_read_of_a_node_is_not_kept() -> None:
    rail = Nic(pci="0000:5c:00.0", port=1, device="mlx5_0", family="ib", rail=0, growth={"ib.packet_seq_err": 12})
    storage = Nic(pci="0000:5d:00.0", port=1, family="roce")
    said = a_nodehealth("a", status=NodeHealthStatus(inventory=[Device(pci="0000:3b:00.0")], nics=[rail, storage]))
    status = a_cluster_state(stored(said)).health["a"].status

    assert (status.inventory, status.nics) == ([], [msgspec.structs.replace(rail, device="")])


def test_a_boot_id_is_never_taken_from_here() -> None:
    cluster_state = a_cluster_state(stored(a_node("node-a", boot_id="boot-7")), stored(a_nodehealth("node-a")))

    assert cluster_state.nodes["node-a"].status.node_info.boot_id == ""
    assert cluster_state.health["node-a"].status.boot_id == ""


def test_members_of_a_namesake_are_left_out() -> None:
    former = stored(a_job("train"), uid="uid-former")
    cluster_state = a_cluster_state(JOB, member("old", owner=former), member("new", owner=JOB))

    assert [pod.metadata.name for pod in cluster_state.members(gang_ref(JOB))] == ["new"]


def test_both_a_gang_and_the_recovery_of_its_namesake_are_attended_to() -> None:
    former = stored(a_job("train"), uid="uid-former")
    cluster_state = a_cluster_state(JOB, stored(a_recovery(gang=former)))

    assert {gang.uid for gang in cluster_state.gangs(TRAIN)} == {"uid-train", "uid-former"}


def test_a_gang_that_did_not_ask_for_it_is_ignored() -> None:
    cluster_state = a_cluster_state(stored(a_job("train", annotations={ANNOTATION_RESTART: ""})))

    assert cluster_state.gangs(TRAIN) == []


def test_a_node_is_busy_until_its_last_pod_has_ended() -> None:
    cluster_state = a_cluster_state(JOB, member("a"), member("b"))
    cluster_state.upsert(member("a", version=2, phase="Failed"))
    assert "node-a" in cluster_state.busy_nodes()

    cluster_state.remove(member("b", version=2))

    assert "node-a" not in cluster_state.busy_nodes()


def test_what_is_gone_leaves_no_place_behind() -> None:
    cluster_state = a_cluster_state(JOB, member(), stored(a_recovery(gang=JOB)), stored(a_node("node-a")))
    cluster_state.remove(member(version=2))
    cluster_state.remove(stored(a_recovery(gang=JOB), 2))
    cluster_state.remove(stored(a_node("node-a"), 2))
    cluster_state.remove(JOB)

    assert not cluster_state._members
    assert not cluster_state._recoveries
    assert not cluster_state._gangs_on
    assert not cluster_state.roots
    assert not cluster_state.nodes


def test_spares_claims_and_quarantines_are_counted_as_they_change() -> None:
    cluster_state = a_cluster_state(stored(a_node("node-a", spare=True)))
    assert cluster_state.spare_nodes == {"node-a"}

    cluster_state.upsert(stored(a_node("node-a", annotations={"healthd.dev/claim": "{}"}), 2))

    assert (cluster_state.spare_nodes, cluster_state.claimed_nodes) == (set(), {"node-a"})
    assert cluster_state.get(Node, ObjectKey("", "node-a")) is not None


def sized(members: int, version: int, generation: int = 0) -> Job:
    """The gang with another number of members."""
    spec = msgspec.structs.replace(JOB.spec, parallelism=members, completions=members)
    meta = msgspec.structs.replace(JOB.metadata, generation=generation)
    job: Job = stored(msgspec.structs.replace(JOB, metadata=meta, spec=spec), version)
    return job


def ranked(index: int, version: int = 1, **more: Any) -> Pod:
    """One member of it by its index."""
    pod = member(f"train-{index}", version=version, **more)
    labels = {**pod.metadata.labels, "batch.kubernetes.io/job-completion-index": str(index)}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))


@pytest.mark.parametrize("first", ["the edit", "the end"])
def test_who_went_because_a_user_made_the_gang_smaller_is_known_after_it_was_made_larger_again(first: str) -> None:
    cluster_state = a_cluster_state(sized(2, 1), ranked(0), ranked(1))
    if first == "the edit":
        cluster_state.upsert(sized(1, 2))
        cluster_state.remove(ranked(1), 3)
    else:
        cluster_state.remove(ranked(1), 2)
        cluster_state.upsert(sized(1, 3))
    cluster_state.upsert(sized(2, 4))

    assert set(cluster_state.view(gang_ref(JOB)).resized_away) == {"uid-train-1"}


def test_a_member_that_kept_its_place_while_the_gang_was_smaller_for_a_moment_is_one_like_others() -> None:
    cluster_state = a_cluster_state(sized(2, 1), ranked(0), ranked(1))
    cluster_state.upsert(sized(1, 2))
    cluster_state.upsert(sized(2, 3))

    assert set(cluster_state.view(gang_ref(JOB)).resized_away) == set()


@pytest.mark.parametrize(
    ("deleted_at", "known"),
    [
        pytest.param(3, {"uid-train-1"}, id="while the gang was smaller: its owner did that"),
        pytest.param(5, set(), id="after it was larger again: the others wait for it"),
    ],
)
def test_the_watch_of_pods_may_be_behind_that_of_a_gang_whose_size_changes(deleted_at: int, known: set[str]) -> None:
    cluster_state = a_cluster_state(sized(2, 1), ranked(0), ranked(1))
    cluster_state.upsert(sized(1, 2))
    cluster_state.upsert(sized(2, 4))
    cluster_state.upsert(ranked(1, deleted_at, deletion_timestamp=START))
    cluster_state.remove(ranked(1, deleted_at, deletion_timestamp=START), deleted_at + 1)

    assert set(cluster_state.view(gang_ref(JOB)).resized_away) == known


EVICTED = PodStatus(phase="Running", conditions=[Condition(type="DisruptionTarget", status="True")])


def deleted(version: int, status: PodStatus | None = None) -> Pod:
    """The second member, whose deletion has begun."""
    pod = ranked(1, version, deletion_timestamp=START)
    return msgspec.structs.replace(pod, status=status or pod.status)


@pytest.mark.parametrize("first", ["the root", "the pod"])
@pytest.mark.parametrize(
    ("generation", "pod", "known"),
    [
        pytest.param(3, deleted(3), {"uid-train-1"}, id="while something was not seen: it may have been smaller"),
        pytest.param(2, deleted(3), set(), id="while its one change was seen: the others wait for it"),
        pytest.param(3, deleted(5), set(), id="after that: the others wait for it"),
        pytest.param(3, deleted(3, EVICTED), set(), id="by an eviction: the others wait for it"),
    ],
)
def test_a_gang_may_have_been_smaller_between_two_lists(first: str, generation: int, pod: Pod, known: set[str]) -> None:
    cluster_state = a_cluster_state(sized(2, 1, generation=1), ranked(0), ranked(1))
    root = sized(2, 4, generation=generation)
    for seen in (root, pod) if first == "the root" else (pod, root):
        cluster_state.upsert(seen)
    cluster_state.remove(pod)

    assert set(cluster_state.view(gang_ref(JOB)).resized_away) == known


@pytest.mark.parametrize(
    ("seen_alive", "known"),
    [
        pytest.param(3, {"uid-train-1"}, id="it may have been deleted while the gang was smaller"),
        pytest.param(4, set(), id="it was still there when the gang was larger again"),
    ],
)
def test_a_list_does_not_show_in_which_version_a_member_was_deleted(seen_alive: int, known: set[str]) -> None:
    cluster_state = a_cluster_state(sized(2, 1, generation=1), ranked(0), ranked(1))
    cluster_state.upsert(sized(2, 4, generation=3))
    cluster_state.replace(Pod, [ranked(0), ranked(1)], str(seen_alive))
    cluster_state.replace(Pod, [ranked(0), deleted(6)], "6")

    assert set(cluster_state.view(gang_ref(JOB)).resized_away) == known


@pytest.mark.parametrize("deleted_at", [2, 3])
def test_a_member_that_was_gone_before_the_next_list_of_its_gang(deleted_at: int) -> None:
    cluster_state = a_cluster_state(sized(2, 2, generation=1), ranked(0), ranked(1))
    cluster_state.upsert(deleted(deleted_at))
    cluster_state.remove(deleted(deleted_at))
    cluster_state.upsert(sized(2, 4, generation=3))

    assert set(cluster_state.view(gang_ref(JOB)).resized_away) == ({"uid-train-1"} if deleted_at > 2 else set())


@pytest.mark.slow
def test_nothing_is_kept_of_members_that_were_forgotten() -> None:
    cluster_state = a_cluster_state(sized(2, 1), ranked(0), ranked(1))
    cluster_state.upsert(sized(1, 2))
    cluster_state.remove(ranked(1), 3)
    for number in range(KEPT_DELETED):
        other = member(f"other-{number}", version=4)
        cluster_state.upsert(other)
        cluster_state.remove(other, 5)

    assert set(cluster_state.view(gang_ref(JOB)).resized_away) == set()


# Recoveries that somebody deletes


GOING_ON = RecoveryStatus(phase=Phase.STOPPING, timeline=[TimelineEntry(phase=Phase.STOPPING, at=START, message="")])


def test_a_recovery_that_is_deleted_before_it_is_over_counts_as_active() -> None:
    cluster_state = a_cluster_state(JOB, stored(a_recovery(gang=JOB, status=GOING_ON), 2))
    cluster_state.remove(stored(a_recovery(gang=JOB, status=GOING_ON), 3))
    lost = cluster_state.active(gang_ref(JOB))

    assert lost is not None
    assert lost.status == GOING_ON
    assert list(cluster_state.active_recoveries()) == [lost]
    assert TRAIN in cluster_state.dirty_keys


def test_it_is_looked_after_until_it_was_made_again_with_its_record() -> None:
    cluster_state = a_cluster_state(JOB, stored(a_recovery(gang=JOB, status=GOING_ON), 2))
    cluster_state.remove(stored(a_recovery(gang=JOB, status=GOING_ON), 3))
    cluster_state.upsert(stored(a_recovery(gang=JOB), 4, uid="another"))
    unfinished = cluster_state.lost(gang_ref(JOB))
    cluster_state.upsert(stored(a_recovery(gang=JOB, status=GOING_ON), 5, uid="another"))

    assert unfinished is not None
    assert cluster_state.lost(gang_ref(JOB)) is None
    assert len(list(cluster_state.active_recoveries())) == 1


def test_a_recovery_that_was_deleted_after_its_end_is_gone() -> None:
    over = msgspec.structs.replace(GOING_ON, phase=Phase.RECOVERED)
    cluster_state = a_cluster_state(JOB, stored(a_recovery(gang=JOB, status=over), 2))
    cluster_state.remove(stored(a_recovery(gang=JOB, status=over), 3))

    assert cluster_state.active(gang_ref(JOB)) is None


def test_the_gang_of_a_lost_recovery_is_read_also_when_it_is_gone() -> None:
    cluster_state = a_cluster_state(stored(a_recovery(gang=JOB, status=GOING_ON), 2))
    cluster_state.remove(stored(a_recovery(gang=JOB, status=GOING_ON), 3))

    assert cluster_state.gangs(TRAIN) == [gang_ref(JOB)]
