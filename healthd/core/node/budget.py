"""
The budget: how many nodes may be quarantined at once, exact without a leader.

The budget is a set of slots with fixed names, one Lease each. An agent takes a slot by creating its Lease. The API
server refuses the second creation, so there are never more quarantined nodes than slot names, however many agents ask
at once.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from healthd.core.api import Node
from healthd.core.config import QuarantinePolicy


@dataclass(frozen=True, slots=True)
class SlotSet:
    """One limit: a node needs any one of these slots to be within it."""

    scope: str
    """`cluster`, or the failure domain; for messages to people."""
    names: tuple[str, ...]

    def by_preference(self, node_name: str) -> Iterator[str]:
        """
        All names, in an order that depends on the node's name.

        Agents that ask at the same time rarely want the same first slot, and after a collision they continue in
        different orders. With a common order all agents would ask for the same last free slots of a large budget.
        """
        if self.names:
            first = _number(node_name) % len(self.names)
            yield self.names[first]
            others = self.names[:first] + self.names[first + 1 :]
            yield from sorted(others, key=lambda name: zlib.crc32(f"{node_name}/{name}".encode()))

    def held(self, names: Collection[str]) -> str | None:
        """The slot of this set that is among *names*."""
        return next((name for name in self.names if name in names), None)


def _number(node_name: str) -> int:
    """The number in the node's name, if it has one: numbered neighbours, which tend to fail together, then never want
    the same slot."""
    digits = re.sub(r"\D", "", node_name.partition(".")[0], flags=re.ASCII)
    return int(digits) if digits else zlib.crc32(node_name.encode())


def slot_sets(node: Node, policy: QuarantinePolicy) -> tuple[SlotSet, ...]:
    """Every set in which *node* needs a slot: the cluster's, and its failure domain's if domains have a limit."""
    domain = node.metadata.labels.get(policy.domain_label, "")
    return limits_of("healthd-quarantine", policy.budget, policy.per_domain, domain)


def limits_of(prefix: str, budget: int, per_domain: int, domain: str) -> tuple[SlotSet, ...]:
    """The limit of the cluster, and that of *domain* where there is one. Names of slots begin with *prefix*."""
    sets = [SlotSet("cluster", _names(f"{prefix}-cluster", budget))]
    if per_domain > 0 and domain:
        sets.append(SlotSet(domain, _names(f"{prefix}-domain-{_dns_label(domain)}", per_domain)))
    return tuple(sets)


def _names(stem: str, size: int) -> tuple[str, ...]:
    return tuple(f"{stem}-{number}" for number in range(size))


def _dns_label(text: str) -> str:
    # Two domain names may become equal when they are cleaned; the checksum keeps their budgets separate.
    return f"{re.sub('[^a-z0-9]+', '-', text.lower()).strip('-')}-{zlib.crc32(text.encode()):08x}"
