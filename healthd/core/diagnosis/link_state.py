"""
What the state of a network port means: whether it was in use and is down, or was never in use.

Of a port that nobody cabled the kernel says the same as of one whose cable broke. They are told apart by what was seen
before and by what ports of the same kind on the same node do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

ENOUGH_PEERS = 3
"""So many other ports of a kind must be up before one that never was is missed: two may be one in use and one spare."""


class Link(StrEnum):
    """What is said of a port in the reading `ib.link`."""

    UP = "up"
    DOWN = "down"
    """It was up in this boot, no longer is, and a GPU's traffic goes through it."""
    DOWN_OFF_RAIL = "down-off-rail"
    """The same of a port that is no GPU's nearest."""
    NO_MANAGER = "no-manager"
    """The cable is fine, but no subnet manager makes the port active."""
    DISABLED = "disabled"
    """Somebody switched it off on this side."""
    NEVER_UP = "never-up"
    """Not up since boot, though most ports of its kind are."""
    UNUSED = "unused"
    """Not up since boot, and nothing says that it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSeen:
    """
    One port: *state* and *phys_state* are the kernel's words (`ACTIVE`, `LinkUp`), *is_off* says that somebody switched
    it off on this side, *kind* tells what it may be compared with.
    """

    state: str
    phys_state: str
    is_off: bool
    kind: str
    was_up: bool
    on_rail: bool


def judge_links(ports: Mapping[str, PortSeen]) -> dict[str, Link]:
    """What is to be said of each port."""
    up = Counter(port.kind for port in ports.values() if _is_up(port))
    known = Counter(port.kind for port in ports.values())
    return {key: _judge(port, up[port.kind], known[port.kind]) for key, port in ports.items()}


def usual(rates: Counter[float]) -> float:
    """What most ports of a kind run at; 0 where there are not enough of them to say so."""
    [(rate, count)] = rates.most_common(1)
    return rate if count >= ENOUGH_PEERS and 2 * count > rates.total() else 0


def _judge(port: PortSeen, up: int, of: int) -> Link:
    if _is_up(port):
        return Link.UP
    if port.is_off:
        return Link.DISABLED if port.was_up else Link.UNUSED
    if port.phys_state == "LinkUp":
        return Link.NO_MANAGER
    if port.was_up:
        return Link.DOWN if port.on_rail else Link.DOWN_OFF_RAIL
    return Link.NEVER_UP if up >= ENOUGH_PEERS and 2 * up > of else Link.UNUSED


def _is_up(port: PortSeen) -> bool:
    return port.state.startswith("ACTIVE")
