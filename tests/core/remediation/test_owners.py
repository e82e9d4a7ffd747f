"""Other remediators are seen by what they write on a node, and healthd's own requests are not taken for theirs."""

from __future__ import annotations

import pytest

from healthd.core.api import Node, Taint
from healthd.core.remediation.hands.shipped import shipped_hands
from healthd.core.remediation.owners import OWNER_SIGNS, other_remediator
from tests.builders import a_node

STATE = "dgxc.nvidia.com/nvsentinel-state"


@pytest.mark.parametrize(
    ("node", "who"),
    [
        (a_node(), ""),
        (a_node(labels={STATE: "draining"}), f"NVSentinel (label {STATE})"),
        (a_node(labels={STATE: "remediation-failed"}), ""),
        (a_node(taints=[Taint(key="medik8s.io/remediation", effect="NoExecute")]), "medik8s (taint"),
        (a_node(taints=[Taint(key="remediation.medik8s.io/self-node-remediation")]), "medik8s (taint"),
        (a_node(taints=[Taint(key="remediation.medik8s.io/fence-agents-remediation")]), "medik8s (taint"),
        (a_node(annotations={"weave.works/kured-reboot-in-progress": "now"}), "kured (annotation"),
    ],
)
def test_another_remediator_is_seen_by_its_sign(node: Node, who: str) -> None:
    assert other_remediator(node).startswith(who)
    assert bool(other_remediator(node)) == bool(who)


def test_the_sign_of_a_hand_that_healthd_asked_is_no_other_owner() -> None:
    node = a_node(labels={STATE: "remediating"})

    assert other_remediator(node, {"nvsentinel-reboot"}) == ""
    assert other_remediator(node, {"hyperpod-reboot"}) != ""


def test_the_signs_name_hands_that_there_are() -> None:
    known = {hand.name for hand in shipped_hands()}

    assert {name for sign in OWNER_SIGNS for name in sign.hands} <= known
