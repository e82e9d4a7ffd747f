"""What other detectors say about a node."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from healthd.core.api import Condition, Node, Taint
from healthd.core.api.model import CauseKind
from healthd.core.config import ForeignPolicy, parse_duration
from healthd.core.recovery.nodes.foreign_signs import (
    Carrier,
    Effect,
    Sign,
    check_name,
    known_rows,
    parse_row,
    reader,
    rules_of,
    signs_on,
)
from tests.builders import a_node
from tests.fakes import START

NOW = START + timedelta(hours=1)
DEFAULT = rules_of(ForeignPolicy())


def with_condition(kind: str, status: str, *, for_seconds: float = 3600, reason: str = "", message: str = "") -> Node:
    """A node of which somebody has said this for so long."""
    since = NOW - timedelta(seconds=for_seconds)
    condition = Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=since)
    return a_node(conditions=[condition])


def found(node: Node, policy: ForeignPolicy | None = None) -> list[tuple[str, Effect]]:
    """The signs on *node*, as (row, effect)."""
    rules = DEFAULT if policy is None else rules_of(policy)
    return [(sign.row, sign.effect) for sign in signs_on(node, rules, NOW)]


def test_a_healthy_node_carries_no_sign() -> None:
    assert found(a_node()) == []


@pytest.mark.parametrize(
    ("status", "seconds", "signs"),
    [
        ("Unknown", 59, []),
        ("Unknown", 60, [("node-unreachable", Effect.RESTART)]),
        ("False", 60, []),
        ("False", 240, [("node-not-ready", Effect.RESTART)]),
        ("True", 3600, []),
    ],
)
def test_a_node_that_is_not_ready_counts_only_after_a_while(
    status: str, seconds: float, signs: list[tuple[str, Effect]]
) -> None:
    assert found(with_condition("Ready", status, for_seconds=seconds)) == signs


def test_a_condition_of_unknown_age_has_not_lasted_yet() -> None:
    assert found(a_node(conditions=[Condition(type="Ready", status="Unknown")])) == []


@pytest.mark.parametrize(
    ("node", "sign"),
    [
        pytest.param(
            a_node(taints=[Taint(key="node.kubernetes.io/out-of-service", value="nodeshutdown", effect="NoExecute")]),
            ("out-of-service", Effect.RESTART),
            id="declared out of service",
        ),
        pytest.param(a_node(deletion_timestamp=START), ("node-deleting", Effect.RESTART), id="being deleted"),
        pytest.param(
            a_node(labels={"dgxc.nvidia.com/nvsentinel-state": "draining"}),
            ("nvsentinel-quarantine", Effect.RESTART),
            id="NVSentinel",
        ),
        pytest.param(
            with_condition("InfiniBandStateCheck", "True"),
            ("nvsentinel-ib-port", Effect.RESTART),
            id="NVSentinel: port",
        ),
        pytest.param(
            with_condition("EthernetDegradationCheck", "True"),
            ("nvsentinel-roce-counters", Effect.AVOID),
            id="NVSentinel: counters",
        ),
        pytest.param(
            with_condition("AcceleratedHardwareReady", "False"), ("eks-accelerator", Effect.RESTART), id="EKS"
        ),
        pytest.param(with_condition("GPUMissing", "True"), ("aks-gpu-missing", Effect.RESTART), id="AKS"),
        pytest.param(
            a_node(labels={"cloud.google.com/active-node-maintenance": "ONGOING"}),
            ("gke-maintenance", Effect.RESTART),
            id="GKE",
        ),
        pytest.param(with_condition("KernelDeadlock", "True"), ("npd-kernel-deadlock", Effect.AVOID), id="NPD"),
        pytest.param(
            a_node(taints=[Taint(key="ToBeDeletedByClusterAutoscaler", value="1767225600")]),
            ("autoscaler-deletes", Effect.RESTART),
            id="cluster autoscaler",
        ),
        pytest.param(
            a_node(annotations={"weave.works/kured-reboot-in-progress": "2026"}),
            ("kured-reboots", Effect.AVOID),
            id="kured",
        ),
    ],
)
def test_the_signs_of_other_detectors_are_known(node: Node, sign: tuple[str, Effect]) -> None:
    assert found(node) == [sign]


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(with_condition("AcceleratedHardwareReady", "True"), id="EKS: ready"),
        pytest.param(with_condition("AcceleratedHardwareReady", "Unknown"), id="EKS: not known"),
        pytest.param(with_condition("GpuMemWatch", "False"), id="NVSentinel: no fault"),
        pytest.param(with_condition("EFAStateCheck", "False"), id="NVSentinel: no fault of a port"),
        pytest.param(
            a_node(labels={"dgxc.nvidia.com/nvsentinel-state": "remediation-succeeded"}), id="NVSentinel: done"
        ),
        pytest.param(a_node(labels={"autopilot.ibm.com/gpuhealth": "PASS"}), id="Autopilot: passed"),
        pytest.param(a_node(taints=[Taint(key="nvidia.com/gpu")]), id="a taint that only reserves GPUs"),
        pytest.param(a_node(unschedulable=True), id="a cordon of a person"),
    ],
)
def test_what_says_nothing_bad_is_no_sign(node: Node) -> None:
    assert found(node) == []


def test_the_strongest_sign_speaks_for_the_node() -> None:
    node = a_node(taints=[Taint(key="karpenter.sh/disrupted")], labels={"autopilot.ibm.com/gpuhealth": "WARN"})

    assert [effect for _, effect in found(node)] == [Effect.RESTART, Effect.AVOID]
    assert strongest(node) == ("karpenter-disrupts", CauseKind.INTERRUPTED)


def strongest(node: Node) -> tuple[str, CauseKind] | None:
    """What is read for the node."""
    sign = reader({"node-a": node}, DEFAULT, NOW)("node-a")
    return (sign.row, sign.cause) if sign else None


def test_nothing_is_read_of_a_node_that_is_gone() -> None:
    assert reader({}, DEFAULT, NOW)("gone") is None


def test_a_sign_says_what_who_and_since_when() -> None:
    node = with_condition(
        "Ready", "Unknown", for_seconds=90, reason="NodeStatusUnknown", message="Kubelet stopped posting node status."
    )

    (sign,) = signs_on(node, DEFAULT, NOW)

    assert sign == Sign(
        row="node-unreachable",
        node="node-a",
        effect=Effect.RESTART,
        cause=CauseKind.HARDWARE,
        message="node-a: its kubelet does not answer for 1m or more "
        "(Ready is Unknown, NodeStatusUnknown: Kubelet stopped posting node status.)",
        since=NOW - timedelta(seconds=90),
        of_readiness=True,
    )


def test_rows_are_switched_off_by_name_and_all_of_them_at_once() -> None:
    node = with_condition("Ready", "Unknown")

    assert found(node, ForeignPolicy(off=("node-unreachable",))) == []
    assert found(node, ForeignPolicy(enabled=False, rows=("condition Ready=Unknown -> restart",))) == []


@pytest.mark.parametrize(
    ("row", "node"),
    [
        ("condition DiskFailing -> avoid", with_condition("DiskFailing", "True")),
        ("condition  DiskOk=False,Unknown  ->  avoid", with_condition("DiskOk", "Unknown")),
        ("condition Fabric reason Down,Lost -> avoid", with_condition("Fabric", "True", reason="Lost")),
        ("condition Slow after 5m -> avoid", with_condition("Slow", "True", for_seconds=300)),
        ("taint example.com/broken -> avoid", a_node(taints=[Taint(key="example.com/broken", value="x")])),
        ("label example.com/state=bad,worse -> avoid", a_node(labels={"example.com/state": "worse"})),
        ("annotation example.com/note -> avoid", a_node(annotations={"example.com/note": ""})),
    ],
)
def test_an_operator_adds_rows(row: str, node: Node) -> None:
    assert found(node, ForeignPolicy(rows=(row,))) == [(parse_row(row).name, Effect.AVOID)]


def test_of_two_rows_about_one_sign_the_stronger_effect_counts() -> None:
    key = "aws-node-termination-handler/scheduled-maintenance"
    node = a_node(taints=[Taint(key=key)])

    assert found(node) == [("aws-maintenance", Effect.AVOID)]
    assert found(node, ForeignPolicy(rows=(f"taint {key} -> move",)))[0][1] is Effect.MOVE


@pytest.mark.parametrize(
    ("row", "node"),
    [
        ("condition Fabric reason Down -> avoid", with_condition("Fabric", "True", reason="Lost")),
        ("condition Slow after 5m -> avoid", with_condition("Slow", "True", for_seconds=299)),
        ("taint example.com/broken=now -> avoid", a_node(taints=[Taint(key="example.com/broken", value="x")])),
    ],
)
def test_an_operators_row_counts_only_where_all_of_it_is_there(row: str, node: Node) -> None:
    assert found(node, ForeignPolicy(rows=(row,))) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("taint example.com/broken", "must be a row such as"),
        ("taint example.com/broken -> explode", "must be a row such as"),
        ("condition Slow after soon -> avoid", "'soon' is not a duration"),
        ("taint a/b reason Down -> avoid", "only a condition has a reason"),
    ],
)
def test_a_row_that_cannot_be_read_says_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_row(text)


def test_a_row_that_does_not_exist_cannot_be_switched_off() -> None:
    with pytest.raises(ValueError, match="there is no row 'node-unreachabel'"):
        check_name("node-unreachabel")


@pytest.mark.parametrize("row", known_rows().values(), ids=lambda row: row.name)
def test_every_row_of_the_table_names_its_source_and_a_cause_that_blames_the_node(row: Any) -> None:
    assert row.source.startswith("https://")
    assert row.cause in (CauseKind.HARDWARE, CauseKind.INTERRUPTED)
    assert parse_duration(row.after) >= timedelta()
    assert bool(row.key) == (row.on is not Carrier.DELETION)


def test_a_time_is_read_as_a_time() -> None:
    since: datetime | None = signs_on(with_condition("GPUMissing", "True", for_seconds=5), DEFAULT, NOW)[0].since

    assert since == NOW - timedelta(seconds=5)
