"""
Where the next attempt runs: every member stays where it was, only bad nodes are replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from healthd.core.gang import GangView, Root
from healthd.core.objects import FencedPod, RecoveryStatus
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
    before = _last_places(status.pods, root.world)
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


def _last_places(pods: Sequence[FencedPod], world: int) -> dict[str, str]:
    """
    The node that each member was on, by index. *pods* are in the order in which they were made.

    A member that was made again elsewhere was on its last node. One whose last pod never got a node has a node of the
    gang that nobody else has now; when there is none it stands for itself, as if `member N` were a bad node.
    """
    if not any(pod.index.isdecimal() for pod in pods):
        return {}  # members without numbers: the scheduler alone knows what to do with them
    last = {pod.index: pod.node for pod in pods}
    indexes = [str(index) for index in range(world)]
    places = {index: last[index] for index in indexes if last.get(index)}
    for index in [index for index in indexes if index not in places]:
        left = [pod for pod in pods if pod.node and pod.node not in places.values()]
        own = [pod for pod in left if pod.index == index]
        places[index] = (own or left)[-1].node if left else f"member {index}"
    return {index: places[index] for index in indexes}


def _told(spares: dict[str, str]) -> str:
    if not spares:
        return "every member stays on its node"
    return ", ".join(f"{spare} in place of {bad}" for bad, spare in spares.items())


def _shortage(missing: list[str], smallest: int | None, left: int) -> str:
    message = f"no spare for {', '.join(missing)}: needs {len(missing)} more healthy node"
    message += "s" if len(missing) > 1 else ""
    return message if smallest is None else f"{message}, and {left} left are fewer than min-nodes {smallest}"
