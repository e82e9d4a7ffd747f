"""The fence: what proves that a pod can no longer write, and what does not."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from healthd.core.api import (
    ANNOTATION_POWERED_OFF,
    FINALIZER_FENCE,
    Condition,
    ContainerState,
    ContainerStatus,
    FencedPod,
    Node,
    NodeHealth,
    NodeHealthStatus,
    Pod,
    PodEnd,
    PodStatus,
    Running,
    Terminated,
)
from healthd.core.recovery.fence import fence_pods, overridden, unproven, unused_power_offs
from healthd.core.recovery.gang import GangView
from healthd.core.recovery.members import deletion_asked_at
from tests.builders import a_node, a_nodehealth, a_pod
from tests.core.gangs import a_root
from tests.fakes import START

NOW = START + timedelta(minutes=5)
ENDED = ContainerStatus(name="main", state=ContainerState(terminated=Terminated(exit_code=143)))
RUNS = ContainerStatus(name="main", state=ContainerState(running=Running()))
STARTED_LATER = ContainerStatus(name="main", state=ContainerState(running=Running(started_at=NOW)))


def a_member(phase: str, *containers: ContainerStatus, **fields: object) -> Pod:
    """A bound member of attempt 0."""
    status = PodStatus(phase=phase, container_statuses=list(containers))
    return a_pod("rank-0", **{"node": "node-a", "index": 0, "status": status, "uid": "uid-0", **fields})  # type: ignore[arg-type]


def fenced(
    pod: Pod | None,
    node: Node | None,
    known: FencedPod | None = None,
    *,
    deleted: Pod | None = None,
    health: NodeHealth | None = None,
) -> FencedPod:
    """The one pod of a gang, as the fence sees it."""
    view = GangView(
        root=a_root(),
        pods=(pod,) if pod else (),
        deleted=(deleted,) if deleted else (),
        nodes={node.metadata.name: node} if node else {},
        health={health.metadata.name: health} if health else {},
    )
    return fence_pods(view, [known] if known else [], NOW)[0]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_live_kubelet_that_reports_every_container_ended_is_proof(phase: str) -> None:
    assert fenced(a_member(phase, ENDED), a_node()).proof == "the kubelet of node-a reports every container terminated"


def test_a_pod_that_its_kubelet_did_not_admit_never_wrote() -> None:
    rejected = PodStatus(
        phase="Failed",
        reason="UnexpectedAdmissionError",
        message="Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate nvidia.com/gpu",
    )

    assert fenced(a_member("Failed", status=rejected), a_node()).proof == "the kubelet of node-a did not admit it"


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(a_member("Running", RUNS), id="running"),
        pytest.param(a_member("Failed", RUNS), id="called Failed by somebody who saw no container end"),
        pytest.param(a_member("Failed", ENDED, RUNS), id="one container of two ended"),
        pytest.param(a_member("Failed"), id="no word about containers"),
        pytest.param(a_member("Running", RUNS, deletion_timestamp=START), id="deleted"),
    ],
)
def test_without_a_final_status_of_every_container_there_is_no_proof(pod: Pod) -> None:
    assert fenced(pod, a_node()).proof == ""


def test_a_pod_object_that_is_gone_proves_nothing() -> None:
    known = FencedPod(name="rank-0", uid="uid-0", node="node-a", boot_id="boot-1")

    assert fenced(None, a_node(), known).proof == ""


@pytest.mark.parametrize("node", [a_node(conditions=[Condition(type="Ready", status="Unknown")]), None])
def test_the_status_of_a_kubelet_that_is_silent_since_still_counts(node: Node | None) -> None:
    assert fenced(a_member("Failed", ENDED), node).proof == "the kubelet of node-a reports every container terminated"


def test_the_last_state_of_a_pod_that_is_gone_proves_its_end() -> None:
    ended = a_member("Failed", ENDED)

    assert fenced(None, a_node(), deleted=ended).proof == "the kubelet of node-a reports every container terminated"


def test_a_pod_that_was_last_seen_running_has_not_ended_because_its_object_is_gone() -> None:
    assert fenced(None, a_node(), deleted=a_member("Running", RUNS)).proof == ""


def test_what_vanished_in_an_earlier_attempt_was_fenced_then() -> None:
    view = GangView(root=a_root(attempt=1), deleted=(a_member("Running", RUNS),), nodes={"node-a": a_node()})

    assert fence_pods(view, [], NOW) == []


def test_what_vanished_before_the_user_resumed_the_gang_is_no_fault() -> None:
    old = a_member("Running", RUNS, creation_timestamp=START)

    def fenced_after_start_at(started: datetime) -> list[FencedPod]:
        return fence_pods(GangView(root=a_root(), deleted=(old,)), [], NOW, since=started)

    assert fenced_after_start_at(START + timedelta(minutes=1)) == []
    assert len(fenced_after_start_at(START)) == 1


LOST = ContainerStatus(
    name="main",
    restart_count=1,
    state=ContainerState(terminated=Terminated(exit_code=137, reason="ContainerStatusUnknown")),
)
OVER = Condition(type="ContainersReady", status="False", reason="PodFailed")
WAITS = ContainerStatus(name="main")
SIDECAR = ContainerStatus(name="shipper", state=ContainerState(running=Running()))


def test_a_container_that_ran_and_that_its_kubelet_cannot_find_may_still_run() -> None:
    assert fenced(a_member("Failed", LOST), a_node()).proof == ""


def a_restarting(*containers: ContainerStatus, before: list[ContainerStatus], conditions: list[Condition]) -> Pod:
    """A Failed pod whose containers are started again when they fail, with the init containers *before*."""
    status = PodStatus(
        phase="Failed",
        container_statuses=list(containers),
        init_container_statuses=before,
        conditions=conditions,
    )
    return always(a_member("Failed", status=status))


def always(pod: Pod) -> Pod:
    """*pod*, whose containers are started again whenever they end."""
    return replace(pod, spec=replace(pod.spec, restart_policy="Always"))


def test_a_container_that_is_started_again_has_ended_only_when_its_kubelet_calls_the_pod_over() -> None:
    between_two_starts = a_restarting(ENDED, before=[], conditions=[])
    over = a_restarting(ENDED, before=[], conditions=[OVER])

    assert fenced(between_two_starts, a_node()).proof == ""
    assert fenced(over, a_node()).proof == "the kubelet of node-a reports every container terminated"


def test_a_sidecar_that_still_runs_may_write() -> None:
    assert fenced(a_restarting(ENDED, before=[SIDECAR], conditions=[OVER]), a_node()).proof == ""


def test_a_pod_that_ended_in_its_init_containers_never_ran() -> None:
    ended_early = a_restarting(WAITS, before=[ENDED, WAITS], conditions=[OVER])
    called_failed = a_restarting(WAITS, before=[ENDED, WAITS], conditions=[])

    assert fenced(ended_early, a_node()).proof == "the kubelet of node-a ended it before its containers started"
    assert fenced(called_failed, a_node()).proof == ""


def gone(uid: str = "uid-0", *, boot_id: str = "boot-1") -> NodeHealth:
    """What an agent says that saw the processes of pod *uid* end."""
    return a_nodehealth(status=NodeHealthStatus(boot_id=boot_id, gone_pods=[PodEnd(uid=uid, at=START)]))


SILENT = a_node(conditions=[Condition(type="Ready", status="Unknown")])
STUCK = a_member("Running", RUNS, deletion_timestamp=START)


def test_an_agent_that_saw_the_processes_end_proves_it_where_the_kubelet_is_dead() -> None:
    assert fenced(STUCK, SILENT, health=gone()).proof == "the agent on node-a saw its last process end"
    assert fenced(STUCK, SILENT, health=gone("uid-of-another")).proof == ""


@pytest.mark.parametrize(
    ("deleted", "proof"),
    [
        pytest.param({}, "", id="not deleted"),
        pytest.param({"deletion_timestamp": START + timedelta(seconds=31)}, "", id="deleted later"),
        pytest.param(
            {"deletion_timestamp": START + timedelta(seconds=30)},
            "the agent on node-a saw its last process end",
            id="deleted before",
        ),
    ],
)
def test_a_pause_between_two_starts_of_a_container_is_no_end(deleted: dict[str, datetime], proof: str) -> None:
    pod = a_member("Running", RUNS, deletion_grace_period_seconds=30, **deleted)
    assert fenced(always(pod), SILENT, health=gone()).proof == proof


@pytest.mark.parametrize(
    ("pod", "is_proof"),
    [
        pytest.param(a_member("Pending"), False, id="its image is pulled"),
        pytest.param(a_member("Running", STARTED_LATER), False, id="the kubelet started it since"),
        pytest.param(a_member("Pending", deletion_timestamp=START), True, id="deleted before"),
        pytest.param(a_member("Running", RUNS), True, id="all of it had started"),
    ],
)
def test_a_pause_between_init_containers_and_the_others_is_no_end(pod: Pod, *, is_proof: bool) -> None:
    assert bool(fenced(pod, SILENT, health=gone()).proof) == is_proof


def test_the_agent_reports_a_boot_before_the_kubelet_is_back() -> None:
    known = fenced(STUCK, SILENT, health=a_nodehealth())

    again = fenced(STUCK, SILENT, known, health=a_nodehealth(status=NodeHealthStatus(boot_id="boot-2")))

    assert again.proof == "node-a has booted since"


def test_a_later_report_about_a_known_boot_is_no_further_boot() -> None:
    agent_is_late = a_nodehealth(status=NodeHealthStatus(boot_id="boot-0"))
    known = fenced(STUCK, a_node(boot_id="boot-1"), health=agent_is_late)

    assert known.proof == ""
    assert fenced(STUCK, a_node(boot_id="boot-1"), known, health=a_nodehealth()).proof == ""


def test_a_boot_that_was_unknown_at_first_counts_from_when_it_was_first_seen() -> None:
    unknown = fenced(STUCK, a_node(boot_id=""))
    first_seen = fenced(STUCK, a_node(boot_id="boot-1"), unknown)

    assert (unknown.proof, first_seen.proof, first_seen.boot_id) == ("", "", "boot-1")
    assert fenced(STUCK, a_node(boot_id="boot-2"), first_seen).proof == "node-a has booted since"


def test_another_machine_under_the_name_of_the_node_is_no_boot_of_the_first() -> None:
    known = fenced(STUCK, on_machine("boot-1", "machine-1"))

    assert fenced(STUCK, on_machine("boot-2", "machine-2"), known).proof == ""
    assert fenced(STUCK, on_machine("boot-2", "machine-1"), known).proof == "node-a has booted since"


def on_machine(boot_id: str, uuid: str) -> Node:
    """The node on the machine with this system UUID."""
    node = a_node(boot_id=boot_id)
    info = replace(node.status.node_info, system_uuid=uuid)
    return replace(node, status=replace(node.status, node_info=info))


@pytest.mark.parametrize(
    ("stamp", "proves"),
    [
        pytest.param("2026-01-01T00:00:01Z", True, id="after the pod had started"),
        pytest.param("2025-12-31T23:59:59Z", False, id="before it was started"),
        pytest.param("2027-01-01T00:00:00Z", False, id="in the future"),
        pytest.param("2026-01-01T00:00:01", False, id="in an unknown zone"),
        pytest.param("yes", False, id="no time at all"),
    ],
)
def test_power_that_was_cut_after_the_pod_had_started_is_proof(stamp: str, proves: bool) -> None:
    pod = a_member("Running", RUNS, creation_timestamp=START)
    node = replace(SILENT, metadata=replace(SILENT.metadata, annotations={ANNOTATION_POWERED_OFF: stamp}))

    assert fenced(pod, node).proof == (f"node-a was powered off at {stamp} (healthd.dev/powered-off)" if proves else "")


@pytest.mark.parametrize(
    ("stamp", "why"),
    [
        pytest.param(None, [], id="none"),
        pytest.param("2026-01-01T00:00:01Z", [], id="after the pod had started"),
        pytest.param("2025-12-31T23:59:59Z", [" is from before rank-0 started"], id="before it was started"),
        pytest.param("2027-01-01T00:00:00Z", [" is a time to come"], id="in the future"),
        pytest.param(
            "10:30\x1b",
            [": '10:30\\x1b' is no time with its zone, such as 2026-01-01T12:00:00Z"],
            id="no time at all",
        ),
    ],
)
def test_a_time_of_power_off_that_proves_nothing_is_named_with_the_reason(stamp: str | None, why: list[str]) -> None:
    open_end = FencedPod(name="rank-0", uid="uid-0", node="node-a", since=START)
    node = a_node(annotations={ANNOTATION_POWERED_OFF: stamp} if stamp else {})
    now = START + timedelta(minutes=5)

    said = unused_power_offs([open_end, replace(open_end, node="deleted")], {"node-a": node}, now)
    proven = unused_power_offs([replace(open_end, proof="node-a has booted since")], {"node-a": node}, now)

    assert said == [f"healthd.dev/powered-off on node-a{each}" for each in why]
    assert proven == []


@pytest.mark.parametrize("asked", [None, START, START + timedelta(seconds=2)], ids=["never", "before", "after"])
def test_a_machine_that_is_on_again_proves_the_end_of_what_was_deleted_before_its_power_was_cut(
    asked: datetime | None,
) -> None:
    """Its kubelet may have started anything else again, but for what it starts only once."""
    marks = {"deletion_timestamp": asked, "deletion_grace_period_seconds": 0} if asked else {}
    pod = a_member("Running", RUNS, creation_timestamp=START, **marks)
    node = a_node(annotations={ANNOTATION_POWERED_OFF: "2026-01-01T00:00:01Z"})

    assert bool(fenced(always(pod), node).proof) == (asked == START)
    assert fenced(pod, node).proof


@pytest.mark.parametrize(
    ("before", "is_proof"),
    [
        pytest.param(a_member("Pending"), False, id="not started"),
        pytest.param(a_member("Pending", deletion_timestamp=START), True, id="not started, being deleted"),
        pytest.param(a_member("Running", RUNS), True, id="started, and never started again"),
        pytest.param(always(a_member("Running", RUNS)), False, id="started again when it ends"),
        pytest.param(always(STUCK), True, id="the same, being deleted"),
    ],
)
def test_a_boot_ends_what_its_kubelet_does_not_start_again(before: Pod, *, is_proof: bool) -> None:
    """As in seed 8200013284: a pod that waited for its image was started after the boot, and was deleted then."""
    known = fenced(before, a_node(boot_id="boot-1"))

    assert bool(fenced(STUCK, a_node(boot_id="boot-2"), known).proof) == is_proof


@pytest.mark.parametrize(
    ("said", "proven"),
    [
        ("all", ["r0", "r1"]),
        ("node-1", ["r1"]),
        ("node-1, node-0: pulled the plugs", ["r0", "r1"]),
        ("node-2", []),
        (": all", []),
        ("", []),
    ],
)
def test_an_override_counts_for_the_pods_that_it_names(said: str, proven: list[str]) -> None:
    pods = [FencedPod(name=f"r{i}", uid=f"u{i}", node=f"node-{i}") for i in range(2)]

    answered = overridden(pods, said)

    assert [pod.name for pod in answered if pod.proof] == proven
    assert all(said in pod.proof for pod in answered if pod.proof)


def test_a_persons_override_replaces_no_proof() -> None:
    known = FencedPod(name="r0", uid="u0", node="node-0", proof="node-0 has booted since")

    assert overridden([known], "all") == [known]


def test_a_node_that_booted_since_is_proof() -> None:
    known = FencedPod(name="rank-0", uid="uid-0", node="node-a", boot_id="boot-1")

    assert fenced(None, a_node(boot_id="boot-2"), known).proof == "node-a has booted since"


def test_a_node_that_is_gone_is_no_proof() -> None:
    known = FencedPod(name="rank-0", uid="uid-0", node="node-a", boot_id="boot-1")

    assert fenced(None, None, known).proof == ""


def test_a_proof_on_record_stays_when_the_pod_and_its_node_are_gone() -> None:
    known = FencedPod(name="rank-0", uid="uid-0", node="node-a", proof="node-a has booted since")

    assert fenced(None, None, known) == known


@pytest.mark.parametrize(("is_listed", "proof"), [(True, "it was never bound to a node"), (False, "")])
def test_a_pod_without_a_node_is_gone_only_where_the_api_server_says_so(is_listed: bool, proof: str) -> None:
    """Another controller has recorded it; this one may not have noticed it yet."""
    known = FencedPod(name="rank-0", uid="uid-0", node="")

    (pod,) = fence_pods(GangView(root=a_root(), is_listed=is_listed), [known], START)

    assert pod.proof == proof


def test_a_pod_that_was_deleted_before_it_got_a_node_can_never_write() -> None:
    waiting = a_member("Pending", node="", deletion_timestamp=START, finalizers=[FINALIZER_FENCE])

    assert fenced(waiting, a_node()).proof == "it was never bound to a node"


def test_a_pod_that_still_waits_for_a_node_may_write_one_day() -> None:
    assert fenced(a_member("Pending", node=""), a_node()).proof == ""


def test_a_pod_that_gets_its_node_while_it_is_fenced_is_held_to_that_node() -> None:
    known = FencedPod(name="rank-0", uid="uid-0", node="")

    assert fenced(a_member("Running", RUNS), a_node(), known).node == "node-a"


def test_an_ended_pod_of_an_earlier_attempt_counts_only_while_its_end_is_not_yet_read() -> None:
    history = a_member("Failed", ENDED)
    unread = a_member("Failed", ENDED, finalizers=[FINALIZER_FENCE])
    root = a_root(attempt=1)

    assert fence_pods(GangView(root=root, pods=(history,), is_listed=True), [], NOW) == []
    assert len(fence_pods(GangView(root=root, pods=(unread,), is_listed=True), [], NOW)) == 1


def test_a_pod_of_an_earlier_attempt_counts_only_where_the_api_server_says_that_it_is_there() -> None:
    """Its end was proven before the present attempt started. A cache may not have seen that yet."""
    alive = a_member("Running", RUNS)
    root = a_root(attempt=1)

    assert fence_pods(GangView(root=root, pods=(alive,)), [], NOW) == []
    assert len(fence_pods(GangView(root=root, pods=(alive,), is_listed=True), [], NOW)) == 1


def test_pods_are_listed_in_the_order_in_which_they_were_made() -> None:
    younger = a_pod("rank-0-aaaaa", uid="uid-1", index=0, creation_timestamp=START + timedelta(seconds=9))
    older = a_pod("rank-0-zzzzz", uid="uid-0", index=0, creation_timestamp=START)

    listed = fence_pods(GangView(root=a_root(), pods=(younger, older)), [], NOW)

    assert [pod.uid for pod in listed] == ["uid-0", "uid-1"]


def test_only_pods_without_proof_are_unproven_and_named_with_the_node_to_look_at() -> None:
    proven = FencedPod(name="rank-0", uid="uid-0", node="node-a", proof="node-a has booted since")
    open_ends = [replace(proven, name="rank-1", proof=""), replace(proven, name="rank-2", node="", proof="")]

    assert unproven([proven, *open_ends]) == ["rank-1 on node-a", "rank-2"]


@pytest.mark.parametrize("grace", [10**18, -(10**18), 2**63 - 1])
def test_a_grace_beyond_all_measure_is_no_error(grace: int) -> None:
    pod = a_pod(deletion_timestamp=START, deletion_grace_period_seconds=grace)

    assert deletion_asked_at(pod) is not None


def test_of_what_a_person_says_little_is_kept_with_each_pod() -> None:
    (pod,) = overridden([FencedPod(name="p", uid="u", node="n")], "all: " + "x" * 250_000)

    assert 0 < len(pod.proof) < 300
