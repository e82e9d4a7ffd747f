"""
The rule about the comparison with other nodes: see `healthd.core.fabric.peer_comparison`.

The controller compares all nodes and writes on a node what it has less of than its peers. The agent reads that like any
other reading. It takes no node out of service: the operator may have built the node this way.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from healthd.core.api import ANNOTATION_BELOW_PEERS, LABEL_PEERS, Node
from healthd.core.api.model import Blame
from healthd.core.diagnosis.readings import NODE, Reading, Sample
from healthd.core.diagnosis.signals.rule import IsNot, Rule

SOURCE = "peers"
LIKE_ITS_PEERS = "like its peers"
"""The value of the reading while nothing is reported."""
LONGEST = 300
"""Characters of the report."""

BELOW_PEERS = Rule(
    name="below-peers",
    reads="peers.hardware",
    test=IsNot(frozenset({LIKE_ITS_PEERS})),
    tier="ticket",
    blame=Blame.NODE,
    summary="the node has less than other nodes of its kind, and had so since its first boot",
    advice=(
        f"Look for what is missing or slow; where it is meant so, label the node {LABEL_PEERS} with a name that it "
        "shares with nodes like it, or with `none`."
    ),
    clears_after=timedelta(minutes=1),
    source="own choice: at least four other nodes, and three of four, have more; for ten minutes",
)
RULES = (BELOW_PEERS,)


def peers_sample(node: Node, now: datetime) -> Sample:
    """What the controller wrote on *node* about its peers."""
    said = node.metadata.annotations.get(ANNOTATION_BELOW_PEERS, "")[:LONGEST]
    return Sample(source=SOURCE, at=now, readings=[Reading(NODE, BELOW_PEERS.reads, said or LIKE_ITS_PEERS)])
