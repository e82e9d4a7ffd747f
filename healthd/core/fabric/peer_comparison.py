"""
Compares the hardware of nodes that should be alike: which node has fewer devices than its peers, or slower links.

A node that was wrong since its first boot has no better past to be compared with, and its configuration may say nothing
about its devices. Its peers show what it should have. Nodes are peers when the operator says so by a label, or when
they have the same GPUs and the same instance type. A clear majority of the peers must agree; where half of a fleet is
broken, or two kinds of nodes are mixed, nothing is said. A result is only reported; it never takes a node out of
service. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from healthd.core.api import LABEL_PEERS, Device, Node, NodeHealth, NodeHealthStatus, Shape
from healthd.core.api.model import Verdict
from healthd.core.node.reporting import is_silent

PEERS = 4
"""At least so many other nodes must have the same."""
MAJORITY = 0.75
"""At least this share of the other nodes must have the same."""
NO_PEERS = "none"
"""The value of `LABEL_PEERS` on a node that is like no other."""
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_TOLERATED = 0.98
"""The kernel reserves a little more or less memory on each machine. A module is larger than this."""
_MEMORY_STEP_KB = 250_000
"""Memory is rounded to this, or each node would have an amount of its own."""
_KB_IN_GB = 1_000_000
_LONGEST_LABEL = 63


class Part(StrEnum):
    """What is compared. The value is the label of the metric."""

    GPUS = "gpus"
    RDMA_DEVICES = "rdma_devices"
    MEMORY = "memory_kb"
    IB_PORTS = "rdma_ports"
    IB_RATE = "rdma_gbps"
    ETH_PORTS = "ethernet_ports"
    ETH_RATE = "ethernet_gbps"


_PORTS = {"ib": (Part.IB_PORTS, Part.IB_RATE), "eth": (Part.ETH_PORTS, Part.ETH_RATE)}
_FOLLOWS = {Part.IB_PORTS: Part.RDMA_DEVICES, Part.IB_RATE: Part.IB_PORTS, Part.ETH_RATE: Part.ETH_PORTS}
"""A part that is short because another one is short: only the cause is reported."""
_WORDS = {
    Part.GPUS: "{:g} GPUs on the PCI bus",
    Part.RDMA_DEVICES: "{:g} RDMA devices",
    Part.MEMORY: "{:.0f} GB of memory",
    Part.IB_PORTS: "{:g} RDMA ports that were ever up",
    Part.IB_RATE: "{:g} Gb/s over all RDMA ports",
    Part.ETH_PORTS: "{:g} Ethernet ports that were ever up",
    Part.ETH_RATE: "{:g} Gb/s over all Ethernet ports",
}

Group = tuple[str, ...]
"""What nodes have in common that are compared."""
Amounts = Mapping[Part, float]


class Shortfall(NamedTuple):
    """A node has *has* of *part*, and *agree* of its *peers* other nodes have *usual*."""

    part: Part
    has: float
    usual: float
    agree: int
    peers: int

    @property
    def brief(self) -> str:
        """What is short, without the number of peers, which changes more often."""
        return f"{_amount(self.part, self.has)} (its peers: {_number(self.part, self.usual)})"


def message_of(short: Sequence[Shortfall]) -> str:
    """The message for people, in the Event on the node."""
    parts = "; ".join(f"{one.brief}, by {one.agree} of {one.peers}" for one in short)
    advice = f"Where it is meant so, give it the label {LABEL_PEERS}."
    return f"Since its first boot this node has less than its peers: {parts}. {advice}"


class PeerGroups:
    """
    All nodes in their groups. `enter` and `leave` keep it up to date; `short` compares.

    The cost of `short` depends on how many different values there are, and not on how many nodes.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[Group, Amounts]] = {}
        self._having: dict[Group, dict[Part, dict[float, set[str]]]] = {}
        """By group and part: the nodes that have each amount."""

    def enter(self, name: str, group: Group, amounts: Amounts) -> None:
        """Add a node, or replace it. Without a *group* it is compared with none."""
        if self._nodes.get(name) == (group, amounts):
            return
        self.leave(name)
        if not group:
            return
        self._nodes[name] = group, amounts
        parts = self._having.setdefault(group, {})
        for part, amount in amounts.items():
            parts.setdefault(part, defaultdict(set))[amount].add(name)

    def leave(self, name: str) -> None:
        """Remove a node."""
        group, amounts = self._nodes.pop(name, ((), {}))
        for part, amount in amounts.items():
            having = self._having[group][part]
            having[amount].discard(name)
            if not having[amount]:
                del having[amount]

    def __contains__(self, name: object) -> bool:
        return name in self._nodes

    def short(self) -> dict[str, list[Shortfall]]:
        """By node: where it has less than its peers, in the order of `Part`."""
        found: dict[str, dict[Part, Shortfall]] = defaultdict(dict)
        for parts in self._having.values():
            for part, having in parts.items():
                for name, one in _short(part, having):
                    found[name][part] = one
        return {name: [*_causes(by_part)] for name, by_part in sorted(found.items())}


def group_of(node: Node, status: NodeHealthStatus) -> Group:
    """
    Which nodes *node* is compared with; empty: none.

    Without GPUs and without a label there is nothing that says that two nodes are alike.
    """
    labels = node.metadata.labels
    own = labels.get(LABEL_PEERS, "")[:_LONGEST_LABEL]
    if own == NO_PEERS:
        return ()
    if own:
        return ("label", own)
    models = [one.name for one in models_of(status.inventory)]
    return ("gpus", *models, labels.get(_INSTANCE_TYPE, "")) if models else ()


def amounts_of(shape: Shape) -> dict[Part, float]:
    """What a node has of each part, by the best that its agent ever saw. Empty: its agent published nothing yet."""
    if shape == Shape():
        return {}
    amounts: dict[Part, float] = {
        Part.GPUS: shape.gpus,
        Part.RDMA_DEVICES: shape.rdma_devices,
        Part.MEMORY: shape.memory_kb // _MEMORY_STEP_KB * _MEMORY_STEP_KB,
    }
    for family, (ports, rate) in _PORTS.items():
        rates = [one for port, one in shape.rates.items() if port.startswith(f"{family} ")]
        amounts |= {ports: len(rates), rate: sum(rates)}
    return amounts


def is_comparable(status: NodeHealthStatus, now: datetime) -> bool:
    """Whether what the agent says of its node is complete: it is alive, and reads all that it should."""
    return status.verdict is not Verdict.UNKNOWN and not is_silent(status, now)


def models_of(inventory: Iterable[Device]) -> list[Device]:
    """Of an inventory the products alone, each once. Equal lists are shared between thousands of nodes in memory."""
    return _models(tuple(sorted({gpu.name for gpu in inventory if gpu.name})))


@lru_cache(maxsize=256)
def _models(names: tuple[str, ...]) -> list[Device]:
    return [Device(pci="", name=name) for name in names]


def compare(nodes: Mapping[str, Node], health: Mapping[str, NodeHealth], now: datetime) -> dict[str, list[Shortfall]]:
    """The result over all nodes, in one call."""
    groups = PeerGroups()
    for name, one in health.items():
        if name in nodes and is_comparable(one.status, now):
            groups.enter(name, group_of(nodes[name], one.status), amounts_of(one.status.best))
    return groups.short()


def _short(part: Part, having: Mapping[float, set[str]]) -> Iterator[tuple[str, Shortfall]]:
    """The nodes that have less of *part* than a clear majority of the others."""
    if len(having) < 2:
        return
    peers = sum(len(nodes) for nodes in having.values()) - 1
    usual = _usual(having)
    tolerated = _TOLERATED if part is Part.MEMORY else 1
    enough, most = usual * tolerated, usual / tolerated
    agree = sum(len(nodes) for amount, nodes in having.items() if enough <= amount <= most)
    if agree < max(PEERS, MAJORITY * peers):
        return
    for amount, nodes in having.items():
        if amount < enough:
            yield from ((name, Shortfall(part, amount, usual, agree, peers)) for name in nodes)


def _usual(having: Mapping[float, set[str]]) -> float:
    """The lower median."""
    half = (sum(len(nodes) for nodes in having.values()) + 1) // 2
    seen = 0
    for amount in sorted(having):
        seen += len(having[amount])
        if seen >= half:
            return amount
    return 0


def _causes(by_part: Mapping[Part, Shortfall]) -> Iterator[Shortfall]:
    """Without what only follows: a missing device has no port, and a port that is down has no rate."""
    for part in Part:
        if part in by_part and not (part in _FOLLOWS and _is_short(_FOLLOWS[part], by_part)):
            yield by_part[part]


def _is_short(part: Part, by_part: Mapping[Part, Shortfall]) -> bool:
    return part in by_part or (part in _FOLLOWS and _is_short(_FOLLOWS[part], by_part))


def _amount(part: Part, value: float) -> str:
    return _WORDS[part].format(value / _KB_IN_GB if part is Part.MEMORY else value)


def _number(part: Part, value: float) -> str:
    return _amount(part, value).partition(" ")[0]
