"""
Signs that another remediator works on a node. healthd yields to it, and says so. Pure; a table of data.

A sign that a hand of healthd set itself, or that its controller sets for healthd's request, is no other owner.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from healthd.core.api import Node


class OwnerSign(NamedTuple):
    """*where* is `label`, `annotation` or `taint`. *values*: those that count; empty: any. *hands*: whose own it is."""

    who: str
    where: str
    key: str
    values: frozenset[str] = frozenset()
    hands: frozenset[str] = frozenset()


_NVSENTINEL = frozenset({"nvsentinel-gpu-reset", "nvsentinel-reboot", "nvsentinel-terminate"})
OWNER_SIGNS = (
    OwnerSign(
        "NVSentinel",
        "label",
        "dgxc.nvidia.com/nvsentinel-state",
        frozenset({"quarantined", "draining", "drain-succeeded", "remediating"}),
        _NVSENTINEL,
    ),
    OwnerSign(
        "HyperPod",
        "label",
        "sagemaker.amazonaws.com/node-health-status",
        frozenset({"UnschedulablePendingReboot", "UnschedulablePendingReplacement"}),
        frozenset({"hyperpod-reboot", "hyperpod-replace"}),
    ),
    *(
        OwnerSign("medik8s", "taint", key, hands=frozenset({"medik8s-self-node-remediation", "node-condition-reboot"}))
        for key in (
            "remediation.medik8s.io/self-node-remediation",
            "medik8s.io/remediation",
            "remediation.medik8s.io/fence-agents-remediation",
            "medik8s.io/fence-agents-remediation",
        )
    ),
    OwnerSign("kured", "annotation", "weave.works/kured-reboot-in-progress", hands=frozenset({"kured-sentinel"})),
    OwnerSign("Karpenter", "taint", "karpenter.sh/disrupted", hands=frozenset({"karpenter-node-repair"})),
    OwnerSign("the cluster autoscaler", "taint", "ToBeDeletedByClusterAutoscaler"),
)


def other_remediator(node: Node, own_hands: Collection[str] = ()) -> str:
    """Who else works on *node*, and by which sign; empty: none. *own_hands*: those with a request of healthd on it."""
    places = {
        "label": node.metadata.labels,
        "annotation": node.metadata.annotations,
        "taint": {taint.key: taint.value for taint in node.spec.taints},
    }
    for sign in OWNER_SIGNS:
        value = places[sign.where].get(sign.key)
        if value is None or (sign.values and value not in sign.values) or not sign.hands.isdisjoint(own_hands):
            continue
        return f"{sign.who} ({sign.where} {sign.key})"
    return ""
