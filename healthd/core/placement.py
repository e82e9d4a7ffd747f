"""
Where the next attempt runs: every member stays where it was, only bad nodes are replaced.
"""

from __future__ import annotations

from dataclasses import dataclass

from healthd.core.gang import GangView, Root
from healthd.core.objects import RecoveryStatus
from healthd.core.spares import choose, is_fit


@dataclass(frozen=True, slots=True)
class Plan:
    """A place for every member. *replacements* is bad node -> spare."""

    placement: dict[str, str]
    replacements: dict[str, str]
    message: str


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is missing for the gang to run."""

    message: str


def place(status: RecoveryStatus, view: GangView, root: Root, recovery: str) -> Plan | Shortage:
    """
    Plan the next attempt of the gang whose last one had the pods of *status*.

    With too few spares the gang shrinks where its owner allowed that (`healthd.dev/min-nodes`), else nothing runs:
    a gang that waits for a missing member wastes every other node.
    """
    before = {pod.index: pod.node for pod in status.pods if pod.node and pod.index.isdecimal()}
    before = dict(sorted(before.items(), key=lambda item: int(item[0])))
    bad = [node for node in before.values() if not is_fit(view.nodes.get(node), view.health.get(node))]
    spares = choose(bad, view.nodes, view.health, kept=status.replacements, recovery=recovery)
    placement = {index: spares.get(node, node) for index, node in before.items() if node not in bad or node in spares}
    missing = [node for node in bad if node not in spares]
    if not missing:
        return Plan(placement, spares, _told(spares))
    smallest = root.options.min_nodes
    if smallest is None or len(placement) < smallest:
        return Shortage(_shortage(missing, smallest, len(placement)))
    compact = {str(rank): node for rank, node in enumerate(placement.values())}
    message = f"no spare for {', '.join(missing)}: shrinks from {root.world} to {len(compact)} members"
    return Plan(compact, spares, message)


def _told(spares: dict[str, str]) -> str:
    if not spares:
        return "every member stays on its node"
    return ", ".join(f"{spare} in place of {bad}" for bad, spare in spares.items())


def _shortage(missing: list[str], smallest: int | None, left: int) -> str:
    message = f"no spare for {', '.join(missing)}: needs {len(missing)} more healthy node"
    message += "s" if len(missing) > 1 else ""
    return message if smallest is None else f"{message}, and {left} left are fewer than min-nodes {smallest}"
