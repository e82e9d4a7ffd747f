"""Hands as data: what each writes, what takes it back, what is seen of it, and which descriptions are refused."""

from __future__ import annotations

from typing import Any

import pytest

from healthd.core.api.names import ANNOTATION_REQUEST
from healthd.core.api.remediations import Rung, RungAttempt
from healthd.core.remediation.hands.description import HandDescription, Verb
from healthd.core.remediation.hands.placeholders import Lacking, facts_of
from healthd.core.remediation.hands.requests import (
    as_hand,
    confirmation,
    labels_left,
    labels_missing,
    lacking_fact,
    request_of,
    request_seen,
    served_api,
    withdrawal_of,
)
from healthd.core.remediation.hands.shipped import BadHand, read_hands, shipped_hands
from tests.builders import a_node
from tests.fakes import START

OWN = """
- name: acme-power
  about: our own controller
  rung: power_cycle
  verb: create
  api: [power.example.com/v1]
  kind: PowerCycle
  namespace: power
  object: healthd-${node}-${attempt}
  body: {spec: {host: "${label:example.com/host}"}}
  failed: status.phase=Failed
"""
"""A further hand of an operator, in ten lines."""
IN_CAPI = {"cluster.x-k8s.io/cluster-namespace": "capi"}
NODE = a_node(
    "gpu-17",
    uid="uid-17",
    labels={"example.com/host": "rack-3-17"},
    annotations={**IN_CAPI, "cluster.x-k8s.io/machine": "m-17"},
)
FACTS = facts_of(NODE, "metal3://metal/host-17/m3m-17", attempt=4, rung="reboot", image="healthd:1")
SHIPPED = {hand.name: hand for hand in shipped_hands()}


def an_attempt(hand: HandDescription) -> RungAttempt:
    return RungAttempt(number=4, fault="f", rung=hand.rung, hand=hand.name, why="xid-79 asks for it", at=START)


def written(hand: HandDescription, facts: dict[str, str] = FACTS) -> dict[str, Any]:
    """What the hand writes, with the API that it is found by."""
    return request_of(hand, an_attempt(hand), hand.api[0] if hand.api else "v1", facts).body


def as_seen(hand: HandDescription, status: dict[str, Any] | None = None) -> dict[str, Any]:
    """The object after the write."""
    body = written(hand)
    return {"status": {"conditions": [body]}} if hand.verb is Verb.CONDITION else {**body, "status": status or {}}


def test_a_hand_of_an_operator_is_ten_lines() -> None:
    (hand,) = read_hands(OWN)

    assert (as_hand(hand).rung, as_hand(hand).timeout.total_seconds()) == (Rung.POWER_CYCLE, 1800)
    assert written(hand) == {
        "apiVersion": "power.example.com/v1",
        "kind": "PowerCycle",
        "metadata": {
            "name": "healthd-gpu-17-4",
            "namespace": "power",
            "annotations": {ANNOTATION_REQUEST: "4"},
        },
        "spec": {"host": "rack-3-17"},
    }


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_hand_can_be_written_seen_and_taken_back(name: str) -> None:
    hand = SHIPPED[name]
    api = hand.api[0] if hand.api else "v1"

    seen = request_seen(hand, an_attempt(hand), as_seen(hand))

    assert seen is not None
    assert (seen.attempt, seen.claims_done, seen.failed) == (4, False, "")
    assert withdrawal_of(hand, api, FACTS).target == request_of(hand, an_attempt(hand), api, FACTS).target


def test_there_is_a_hand_for_every_rung_but_the_restart_of_a_daemon() -> None:
    assert {hand.rung for hand in SHIPPED.values()} == {Rung.RESET_GPU, Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE}


def test_a_hand_is_found_by_what_its_controller_serves_under_either_group() -> None:
    reboot = SHIPPED["nvsentinel-reboot"]

    assert served_api(reboot, {("maintenance.nvidia.com/v1alpha1", "RebootNode")}) == "maintenance.nvidia.com/v1alpha1"
    assert served_api(reboot, {("janitor.dgxc.nvidia.com/v1alpha1", "GPUReset")}) is None


def test_what_is_written_on_the_node_needs_a_sign_of_who_acts_on_it() -> None:
    karpenter, hyperpod = SHIPPED["karpenter-node-repair"], SHIPPED["hyperpod-reboot"]

    assert served_api(karpenter, {("karpenter.sh/v1", "NodePool")}) == "v1"
    assert served_api(karpenter, set(), {"eks.amazonaws.com/nodegroup"}) == "v1"
    assert served_api(karpenter, set()) is None
    assert served_api(hyperpod, set(), {"sagemaker.amazonaws.com/node-health-status"}) == "v1"
    assert served_api(hyperpod, set()) is None


def test_no_shipped_hand_counts_as_there_in_a_cluster_that_serves_nothing_but_jobs() -> None:
    bare = {("batch/v1", "Job")}

    assert [name for name, hand in SHIPPED.items() if served_api(hand, bare) is not None] == []


def signs_of(name: str, status: dict[str, Any]) -> tuple[bool, str]:
    """Whether the hand claims to be done, and why it failed, when its object has *status*."""
    seen = request_seen(SHIPPED[name], an_attempt(SHIPPED[name]), as_seen(SHIPPED[name], status))
    assert seen is not None
    return seen.claims_done, seen.failed


def a_condition(kind: str, status: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "Because", "message": message}


def test_a_reset_is_done_or_failed_by_the_signs_of_its_controller() -> None:
    ended = [a_condition("Complete", "True"), "nonsense"]

    assert signs_of("nvsentinel-gpu-reset", {"phase": "InProgress", "conditions": []}) == (False, "")
    assert signs_of("nvsentinel-gpu-reset", {"phase": "Succeeded", "conditions": ended}) == (True, "")
    assert signs_of("nvsentinel-gpu-reset", {"phase": "Failed", "conditions": "none"}) == (
        False,
        "status.phase is Failed",
    )


def test_a_reset_that_failed_is_not_done_although_its_controller_calls_it_complete() -> None:
    ended = [a_condition("Complete", "True", "the Job failed")]

    assert signs_of("nvsentinel-gpu-reset", {"phase": "Failed", "conditions": ended}) == (
        False,
        "status.phase is Failed",
    )


@pytest.mark.parametrize(
    ("hand", "ends_with"), [("nvsentinel-reboot", "NodeReady"), ("nvsentinel-terminate", "NodeTerminated")]
)
def test_a_request_fails_when_its_signal_could_not_be_sent_or_it_had_no_end(hand: str, ends_with: str) -> None:
    begun = [a_condition("SignalSent", "Unknown"), a_condition(ends_with, "Unknown")]
    refused = [a_condition("SignalSent", "False", "the cloud refused"), a_condition(ends_with, "Unknown")]
    late = [a_condition("SignalSent", "True"), a_condition(ends_with, "False", "timed out")]

    assert signs_of(hand, {"conditions": begun}) == (False, "")
    assert signs_of(hand, {"conditions": refused}) == (False, "the cloud refused")
    assert signs_of(hand, {"conditions": late}) == (False, "timed out")


def test_an_object_that_shows_both_signs_has_failed() -> None:
    (hand,) = read_hands(OWN.replace("failed: status", "done: Ended\n  failed: status"))
    status = {"phase": "Failed", "conditions": [a_condition("Ended", "True")]}

    seen = request_seen(hand, an_attempt(hand), as_seen(hand, status))

    assert seen is not None
    assert (seen.claims_done, seen.failed) == (False, "status.phase is Failed")


def test_an_object_of_the_same_name_that_another_made_is_no_request_of_healthd() -> None:
    snr = SHIPPED["medik8s-self-node-remediation"]

    assert request_seen(snr, an_attempt(snr), {"metadata": {"name": "gpu-17"}}) is None
    assert request_seen(snr, an_attempt(snr), {"metadata": {"annotations": {ANNOTATION_REQUEST: "3"}}}) is None


def test_the_mark_stays_where_the_other_controller_takes_its_annotation_away() -> None:
    cycle = SHIPPED["metal3-power-cycle"]
    left = {"metadata": {"annotations": {ANNOTATION_REQUEST: "4"}}}

    assert request_seen(cycle, an_attempt(cycle), left) is not None


def test_a_patch_is_taken_back_key_by_key_and_a_condition_by_its_other_status() -> None:
    label = withdrawal_of(SHIPPED["hyperpod-reboot"], "v1", FACTS).body["metadata"]
    condition = withdrawal_of(SHIPPED["karpenter-node-repair"], "v1", FACTS).body

    assert label == {
        "labels": {"sagemaker.amazonaws.com/node-health-status": None},
        "annotations": {ANNOTATION_REQUEST: None},
    }
    assert (condition["type"], condition["status"]) == ("AcceleratedHardwareReady", "True")


def test_a_key_that_the_other_controller_has_written_since_is_not_taken_back() -> None:
    reboot = SHIPPED["hyperpod-reboot"]
    key = "sagemaker.amazonaws.com/node-health-status"
    asked = written(reboot)
    done = {"metadata": {"labels": {key: "Schedulable"}, "annotations": asked["metadata"]["annotations"]}}

    assert withdrawal_of(reboot, "v1", FACTS, asked).body["metadata"]["labels"] == {key: None}
    assert withdrawal_of(reboot, "v1", FACTS, done).body["metadata"] == {
        "labels": {},
        "annotations": {ANNOTATION_REQUEST: None},
    }
    assert withdrawal_of(reboot, "v1", FACTS, {"metadata": "gone"}).body["metadata"]["labels"] == {}


def test_a_machine_that_belongs_to_another_node_is_refused() -> None:
    machine = SHIPPED["cluster-api-remediate-machine"]

    assert confirmation(machine, {"status": {"nodeRef": {"name": "gpu-17"}}}, FACTS) == ""
    why = confirmation(machine, {"status": {"nodeRef": {"name": "gpu-18"}}}, FACTS)
    assert why == "its status.nodeRef.name is 'gpu-18', and not 'gpu-17'"
    assert confirmation(machine, {"status": "gone"}, FACTS) != ""


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (a_node("gpu-17"), "the node has no annotation cluster.x-k8s.io/machine"),
        (a_node("gpu-17", annotations={"cluster.x-k8s.io/machine": "a\x1bb"}), "is not usable"),
        (a_node("gpu-17", annotations={"cluster.x-k8s.io/machine": "a" * 600}), "is not usable"),
        (a_node("gpu-17", annotations={**IN_CAPI, "cluster.x-k8s.io/machine": "../m"}), "is no name of an object"),
    ],
)
def test_a_node_that_lacks_what_a_hand_needs_is_said_so(node: Any, says: str) -> None:
    with pytest.raises(Lacking, match=says):
        written(SHIPPED["cluster-api-remediate-machine"], facts_of(node, "", attempt=4, rung="replace"))


def test_what_a_label_holds_is_not_read_again() -> None:
    (hand,) = read_hands(OWN)
    node = a_node("gpu-17", labels={"example.com/host": "${image}"})

    body = written(hand, facts_of(node, "", attempt=4, rung="reboot", image="secret"))

    assert body["spec"]["host"] == "${image}"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("rung: power_cycle", "rung: explode", "Invalid enum value 'explode'"),
        ("rung: power_cycle", "rung: person", "person needs no hand"),
        ("rung: power_cycle", "rung: reset_gpu", "`done` must say by which sign it shows"),
        ("verb: create", "verb: patch", ""),
        ("healthd-${node}-${attempt}", "the-request", "`object` must hold ${node} or ${node_uid}"),
        ("healthd-${node}-${attempt}", "healthd-${node_uid}", ""),
        ("${label:example.com/host}", "${hostname}", "${hostname} is not known; these are: node, node_uid"),
        ("${label:example.com/host}", "${provider:x}", "${provider:x} is not known"),
        ("api: [power.example.com/v1]", "api: []", "`api` is missing"),
        ("failed: status.phase=Failed", "failed: '?'", "'?' is not a sign"),
        ("failed: status.phase=Failed", "failed: Ready=False,", "'' is not a sign"),
        ("failed: status.phase=Failed", "failed: 'Ready=False, Sent=False'", ""),
        ("failed: status.phase=Failed", "timeout: 5d", "timeout '5d' is not a duration such as 30m"),
        ("failed: status.phase=Failed", "timeout: 48h", "is not between 1m and 24h"),
        ("failed: status.phase=Failed", "failled: x", "Object contains unknown field `failled`"),
        ("failed: status.phase=Failed", "labels: [{key: k, value: '${host}'}]", "${host} is not known"),
        ("name: acme-power", "name: Acme Power", "must be lower-case words"),
        ("body: {spec:", "body: {kind: Pod, spec:", "leave kind out of `body`"),
        (OWN, "- [", "this is no list of hands"),
        (OWN, OWN + OWN, "there are two with this name"),
    ],
)
def test_a_description_that_cannot_work_is_refused_with_what_to_change(before: str, after: str, says: str) -> None:
    text = OWN.replace(before, after)
    if not says:
        assert read_hands(text)
        return
    with pytest.raises(BadHand) as refused:
        read_hands(text)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("hand", "says"),
    [
        ({"verb": "call", "object": "http://repair", "secret": "/s"}, "must be an https address"),
        ({"verb": "call", "object": "https://repair"}, "`secret` is missing"),
        ({"verb": "call", "object": "https://repair", "secret": "/s", "done": "A"}, "can have no `done`"),
        ({"verb": "call", "object": "https://${label:host}", "secret": "/s"}, "leave ${...} out of the address"),
        ({"verb": "condition", "body": {"type": "X"}}, "`body` needs status"),
        ({"verb": "taint", "body": {"key": "k", "effect": "NoSchedule"}, "kind": "Pod"}, "is of the Node"),
        ({"verb": "patch"}, "a patch changes nothing"),
        ({"verb": "patch", "body": {"a": 1}, "labels": [{"key": "k", "value": "v"}]}, "are for `verb: create`"),
        ({"verb": "patch", "found_by": ["karpenter"]}, "`found_by` 'karpenter' is neither"),
        (
            {"verb": "patch", "kind": "M", "api": ["m/v1"], "object": "${label:m}", "body": {"a": 1}},
            "`confirm` is missing",
        ),
    ],
)
def test_each_verb_says_what_it_needs(hand: dict[str, Any], says: str) -> None:
    import yaml

    with pytest.raises(BadHand) as refused:
        read_hands(yaml.safe_dump([{"name": "own", "rung": "reboot", **hand}]))
    assert says in str(refused.value)


def test_the_name_of_a_job_is_no_longer_than_a_label_may_be_however_long_the_name_of_the_node_is() -> None:
    node = a_node("n" * 253, uid="0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0")
    attempt = RungAttempt(number=4_102_444_800, fault="f", rung=Rung.REBOOT, hand="kured-sentinel", why="w", at=START)
    facts = facts_of(node, "", attempt=attempt.number, rung="reboot", image="i")

    assert len(request_of(SHIPPED["kured-sentinel"], attempt, "batch/v1", facts).target.name) <= 63


def test_a_call_posts_what_is_wanted_and_cannot_be_taken_back() -> None:
    (hand,) = read_hands("[{name: own, rung: reboot, verb: call, object: 'https://repair.example.com', secret: /s}]")

    request = request_of(hand, an_attempt(hand), "", FACTS)

    assert request.body == {"node": "gpu-17", "rung": "reboot", "attempt": 4, "why": "xid-79 asks for it"}
    assert withdrawal_of(hand, "", FACTS).body == {}


HELD = (
    OWN
    + """
  labels:
    - {key: example.com/let-in, value: "power.${boot_id}"}
    - {key: example.com/monitor, instead_of: "true", value: paused}
"""
)
"""A hand that keeps something off the node for its time."""
LET_IN, MONITOR = "example.com/let-in", "example.com/monitor"


@pytest.mark.parametrize(
    ("before", "set_to", "after"),
    [
        ({MONITOR: "true"}, {LET_IN: "power.b1", MONITOR: "paused"}, {LET_IN: None, MONITOR: "true"}),
        ({MONITOR: "false"}, {LET_IN: "power.b1"}, {LET_IN: None}),
        ({}, {LET_IN: "power.b1"}, {LET_IN: None}),
        ({LET_IN: "power.b0"}, {LET_IN: "power.b1"}, {LET_IN: None}),
    ],
)
def test_labels_are_set_where_they_have_the_value_of_before_and_get_it_again(
    before: dict[str, str], set_to: dict[str, str], after: dict[str, str | None]
) -> None:
    (hand,) = read_hands(HELD)
    facts = facts_of(NODE, "", attempt=4, rung="power_cycle", boot_id="b1")

    wanted = labels_missing(hand, an_attempt(hand), facts, a_node("gpu-17", labels=before))
    there = a_node("gpu-17", labels={**before, **set_to}, annotations={ANNOTATION_REQUEST: "4"})
    left = labels_left(hand, an_attempt(hand), facts, there)

    assert wanted["metadata"] == {"labels": set_to, "annotations": {ANNOTATION_REQUEST: "4"}}
    assert left["metadata"] == {"labels": after, "annotations": {ANNOTATION_REQUEST: None}}
    assert labels_missing(hand, an_attempt(hand), facts, there) == {}


def test_labels_of_another_attempt_are_not_taken_back() -> None:
    (hand,) = read_hands(HELD)
    there = a_node("gpu-17", labels={MONITOR: "paused"}, annotations={ANNOTATION_REQUEST: "3"})

    assert labels_left(hand, an_attempt(hand), FACTS, there) == {}


def test_a_node_of_which_no_boot_is_known_lacks_it_for_a_hand_that_names_the_boot() -> None:
    facts = facts_of(NODE, "", attempt=4, rung="reboot", image="i", boot_id="")

    assert lacking_fact(SHIPPED["healthd-reboot"], facts) == "the node has no boot_id"


def test_a_hand_may_be_found_by_the_namespace_of_its_pods() -> None:
    hand = SHIPPED["healthd-reboot"]

    assert served_api(hand, {("v1", "Pod"), ("namespace", "healthd-node-hands")}) == "v1"
    assert served_api(hand, {("v1", "Pod"), ("namespace", "default")}) is None


@pytest.mark.parametrize("name", ["healthd-gpu-reset", "healthd-reboot"])
def test_a_pod_of_healthd_is_let_in_and_acts_in_the_boot_on_record_alone(name: str) -> None:
    hand, boot = SHIPPED[name], "11111111-2222-3333-4444-555555555555"
    spec = written(hand, facts_of(NODE, "", attempt=4, rung="reboot", image="healthd:1", boot_id=boot))["spec"]
    what = name.removeprefix("healthd-")

    assert spec["nodeSelector"] == {"healthd.dev/node-hand": f"{what}.{boot}"}
    assert spec["containers"][0]["command"][:4] == ["healthd", "hand", what, f"--boot-id={boot}"]
    assert (spec["nodeName"], spec["restartPolicy"]) == ("gpu-17", "Never")
    assert "volumes" not in spec


def test_why_a_pod_failed_is_the_word_of_the_kubelet_or_of_its_container() -> None:
    def pod(**status: Any) -> tuple[bool, str]:
        return signs_of("healthd-reboot", status)

    def ended(code: int, message: str) -> list[dict[str, Any]]:
        return [{"state": {"terminated": {"exitCode": code, "message": message}}}]

    assert pod(phase="Failed", containerStatuses=ended(3, "in use by\x1b[31m x")) == (False, "in use by\\u001b[31m x")
    assert pod(phase="Failed", reason="NodeAffinity", message="Predicate failed") == (False, "Predicate failed")
    assert pod(phase="Failed", containerStatuses=ended(137, "killed")) == (False, "")
    assert pod(phase="Failed", containerStatuses=["nonsense"]) == (False, "")
