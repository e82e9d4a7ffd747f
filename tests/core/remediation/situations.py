"""Nodes out of service, for tests of single decisions."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from healthd.core.api import (
    ANNOTATION_QUARANTINE,
    Node,
    NodeHealth,
    NodeHealthStatus,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
    ObjectMeta,
)
from healthd.core.api.model import Blame, Finding, RepairAction, Severity
from healthd.core.api.remediations import NodePhase, NodeRemediationStatus, Rung, RungAttempt
from healthd.core.config.remediation import RemediationPolicy
from healthd.core.node.budget import SlotSet
from healthd.core.remediation.situation import Hand, NodeSituation
from healthd.core.remediation.taking_over import COUNTED
from tests.fakes import START

NOW = START + timedelta(hours=1)
DEVICE = "0000:3b:00.0"
SLOT = "healthd-remediation-cluster-0"


def a_finding(rule: str = "xid-79", action: RepairAction = RepairAction.REBOOT_NODE, **fields: Any) -> Finding:
    """One that takes the node out of service, seen last at START."""
    usual: dict[str, Any] = {
        "device": DEVICE,
        "severity": Severity.FATAL,
        "blame": Blame.DEVICE,
        "message": "broken",
        "raised_at": START,
        "last_at": START,
        "quarantines": True,
    }
    return Finding(id=f"{DEVICE}/{rule}", rule=rule, action=action, **{**usual, **fields})


def a_hand(rung: Rung, **fields: Any) -> Hand:
    """One that has half an hour."""
    return Hand(name=f"the-{rung}", rung=rung, **{"timeout": timedelta(minutes=30), **fields})


def a_quarantined_node(boot: str = "boot-1", machine: str = "m1", *, cordoned: bool = True, **meta: Any) -> Node:
    """One that its agent took out of service at START."""
    record = {"finding": f"{DEVICE}/xid-79", "message": "broken", "since": START.isoformat()}
    notes = {ANNOTATION_QUARANTINE: json.dumps(record), **meta.pop("annotations", {})}
    return Node(
        metadata=ObjectMeta(name="gpu-17", uid=meta.pop("uid", f"uid-{machine}"), annotations=notes, **meta),
        spec=NodeSpec(unschedulable=cordoned),
        status=NodeStatus(node_info=NodeSystemInfo(boot_id=boot, system_uuid=machine)),
    )


FAULT = f"{START.isoformat()} {DEVICE}/xid-79"


def an_attempt(rung: Rung = Rung.REBOOT, number: int = 1, **fields: Any) -> RungAttempt:
    """One that began five minutes ago."""
    usual: dict[str, Any] = {"hand": f"the-{rung}", "at": NOW - timedelta(minutes=5), "timeout_s": 1800.0}
    started = {"boot_ids": ["boot-1"], "machine": "m1", "node_uid": "uid-m1", "fault": FAULT}
    return RungAttempt(number=number, rung=rung, **{**usual, **started, **fields})


def a_status(phase: NodePhase, *attempts: RungAttempt, **fields: Any) -> NodeRemediationStatus:
    """The record of the fault at START."""
    usual: dict[str, Any] = {"phase_since": NOW - timedelta(minutes=5), "machine": "m1", "fault": FAULT}
    return NodeRemediationStatus(phase=phase, attempts=list(attempts), **{**usual, **fields})


def a_situation(phase: NodePhase, *attempts: RungAttempt, **fields: Any) -> NodeSituation:
    """A quarantined node with a slot and a hand for every rung; *status* are fields of its record."""
    findings = fields.pop("findings", [a_finding()])
    node = fields.pop("node", a_quarantined_node())
    health = NodeHealth(metadata=ObjectMeta(name="gpu-17"), status=NodeHealthStatus(findings=findings))
    usual: dict[str, Any] = {
        "health": health,
        "hands": tuple(a_hand(rung) for rung in (Rung.RESET_GPU, Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE)),
        "slot_sets": (SlotSet("cluster", (SLOT,)),),
        "slots_held": frozenset({SLOT}) if phase in COUNTED else frozenset(),
        "policy": RemediationPolicy(at_once=1),
    }
    status = a_status(phase, *attempts, **fields.pop("status", {}))
    return NodeSituation(name="gpu-17", status=status, node=node, **{"now": NOW, **usual, **fields})
