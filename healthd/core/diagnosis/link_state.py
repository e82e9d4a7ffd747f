"""
What the state of a network port means: whether it was in use and is down, or was never in use.

The kernel reports the same state for a port without a cable as for one whose cable broke. The earlier states of the
port, and the ports of the same kind on the same node, show which of the two it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

ENOUGH_PEERS = 3
"""A port that was never up counts as missing once this many others of its kind are up: of two, one may be a spare."""


class LinkState(StrEnum):
    """The value of the reading `ib.link` for a port."""

    UP = "up"
    DOWN = "down"
    """It was up in this boot, no longer is, and a GPU's traffic goes through it."""
    DOWN_OFF_RAIL = "down-off-rail"
    """The same for a port that is not the nearest port of any GPU."""
    NO_MANAGER = "no-manager"
    """The cable is fine, but no subnet manager makes the port active."""
    DISABLED = "disabled"
    """It is switched off on this side."""
    NEVER_UP = "never-up"
    """Not up since boot, though most ports of its kind are."""
    UNUSED = "unused"
    """Not up since boot, and nothing shows that it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSeen:
    """
    One port. *state* and *phys_state* are the kernel's words (`ACTIVE`, `LinkUp`). *is_off*: it is switched off on this
    side. *kind*: which ports it may be compared with.
    """

    state: str
    phys_state: str
    is_off: bool
    kind: str
    was_up: bool
    on_rail: bool


def judge_links(ports: Mapping[str, PortSeen]) -> dict[str, LinkState]:
    """The link reading of each port."""
    up = Counter(port.kind for port in ports.values() if _is_up(port))
    known = Counter(port.kind for port in ports.values())
    return {key: _judge(port, up[port.kind], known[port.kind]) for key, port in ports.items()}


def usual(rates: Counter[float]) -> float:
    """The rate of most ports of a kind. 0 where there are too few ports to know."""
    [(rate, count)] = rates.most_common(1)
    return rate if count >= ENOUGH_PEERS and 2 * count > rates.total() else 0


def _judge(port: PortSeen, up: int, of: int) -> LinkState:
    if _is_up(port):
        return LinkState.UP
    if port.is_off:
        return LinkState.DISABLED if port.was_up else LinkState.UNUSED
    if port.phys_state == "LinkUp":
        return LinkState.NO_MANAGER
    if port.was_up:
        return LinkState.DOWN if port.on_rail else LinkState.DOWN_OFF_RAIL
    return LinkState.NEVER_UP if up >= ENOUGH_PEERS and 2 * up > of else LinkState.UNUSED


def _is_up(port: PortSeen) -> bool:
    return port.state.startswith("ACTIVE")
