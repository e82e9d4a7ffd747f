"""The fence: what proves that a pod can no longer write, and what does not."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from healthd.core.fence import fence_pods, unproven
from healthd.core.gang import GangView
from healthd.core.objects import (
    FINALIZER_FENCE,
    Condition,
    ContainerState,
    ContainerStatus,
    FencedPod,
    Node,
    Pod,
    PodStatus,
    Running,
    Terminated,
)
from tests.builders import a_node, a_pod
from tests.core.gangs import a_root
from tests.fakes import START

ENDED = ContainerStatus(name="main", state=ContainerState(terminated=Terminated(exit_code=143)))
RUNS = ContainerStatus(name="main", state=ContainerState(running=Running()))


def a_member(phase: str, *containers: ContainerStatus, **fields: object) -> Pod:
    """A bound member of attempt 0."""
    status = PodStatus(phase=phase, container_statuses=list(containers))
    return a_pod("rank-0", **{"node": "node-a", "index": 0, "status": status, "uid": "uid-0", **fields})  # type: ignore[arg-type]


def fenced(pod: Pod | None, node: Node | None, known: FencedPod | None = None) -> FencedPod:
    """The one pod of a gang, as the fence sees it."""
    nodes = {node.metadata.name: node} if node else {}
    view = GangView(root=a_root(), pods=(pod,) if pod else (), nodes=nodes)
    return fence_pods(view, [known] if known else [])[0]


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
def test_without_the_kubelets_word_about_every_container_there_is_no_proof(pod: Pod) -> None:
    assert fenced(pod, a_node()).proof == ""


def test_a_pod_object_that_is_gone_proves_nothing() -> None:
    known = FencedPod(name="rank-0", uid="uid-0", node="node-a", boot_id="boot-1")

    assert fenced(None, a_node(), known).proof == ""


def test_the_word_of_a_node_that_is_not_ready_counts_for_nothing() -> None:
    silent = a_node(conditions=[Condition(type="Ready", status="Unknown")])

    assert fenced(a_member("Failed", ENDED), silent).proof == ""


def test_a_node_that_booted_since_is_proof() -> None:
    known = FencedPod(name="rank-0", uid="uid-0", node="node-a", boot_id="boot-1")

    assert fenced(None, a_node(boot_id="boot-2"), known).proof == "node-a has booted since"


def test_a_node_that_is_gone_is_no_proof() -> None:
    known = FencedPod(name="rank-0", uid="uid-0", node="node-a", boot_id="boot-1")

    assert fenced(None, None, known).proof == ""


def test_a_proof_on_record_stays_when_the_pod_and_its_node_are_gone() -> None:
    known = FencedPod(name="rank-0", uid="uid-0", node="node-a", proof="node-a has booted since")

    assert fenced(None, None, known) == known


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

    assert fence_pods(GangView(root=root, pods=(history,)), []) == []
    assert len(fence_pods(GangView(root=root, pods=(unread,)), [])) == 1


def test_pods_are_listed_in_the_order_in_which_they_were_made() -> None:
    younger = a_pod("rank-0-aaaaa", uid="uid-1", index=0, creation_timestamp=START + timedelta(seconds=9))
    older = a_pod("rank-0-zzzzz", uid="uid-0", index=0, creation_timestamp=START)

    listed = fence_pods(GangView(root=a_root(), pods=(younger, older)), [])

    assert [pod.uid for pod in listed] == ["uid-0", "uid-1"]


def test_only_pods_without_proof_are_unproven() -> None:
    proven = FencedPod(name="rank-0", uid="uid-0", node="node-a", proof="node-a has booted since")

    assert unproven([proven, replace(proven, name="rank-1", proof="")]) == ["rank-1"]
