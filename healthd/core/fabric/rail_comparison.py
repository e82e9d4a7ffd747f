"""
Compares the ports of one rail over all nodes: which ports have far higher counter growth, and is the rail congested.

On one node, a congested port and a broken port look alike. Over all nodes they differ: congestion hits many ports.
Only equal things are compared: the same rail, family and rate, and the same counter of the same driver. A result is
only reported; it never takes a node out of service. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from statistics import median_low
from sys import intern
from typing import NamedTuple

from healthd.core.api import Nic, NodeHealth
from healthd.core.fabric.counter_rates import QUIET
from healthd.core.node.reporting import is_silent

SCORE = 6.0
"""A port is an outlier from this many robust standard deviations above the median; the same as among the ports of one
node."""
SIGMA = 1.4826
"""The standard deviation of a normal distribution, divided by its median absolute deviation."""
LEAST_SIGMA = 0.5
"""In powers of two. When all ports are equal, six of these are a growth eight times that of the others."""
PEERS = 8
"""With fewer ports than this, nothing is known about the usual growth."""
CONGESTED_SHARE = 0.05
"""A larger share of a rail's ports does not break at the same time: when more are outliers, the cause is the rail."""
CONGESTED_LEAST = 3
"""On a small cluster, also more ports than this number must be outliers."""
CONGESTED = 0.25
"""A rail is congested when this share of its ports counts congestion marks, even if all count the same."""

LEAST: Mapping[str, int] = {
    "roce.np_cnp_sent": 17,
    "roce.cnpSent": 17,
    "ib.port_xmit_discards": 15,
    "roce.rx_roce_discards": 15,
    "roce.ip4InDiscards": 15,
}
"""By congestion counter: the power of two per hour from which it is worth a report; about 36 and 9 per second."""
_SUSPECTS = {
    True: "what is sent to this port, and the switch port",
    False: "its cable, its modules and the switch port",
}
"""The possible causes for a congestion counter (True) and for a loss counter (False)."""
LEAST_OTHERWISE = 12
"""For counters of loss and disorder: one per second."""
HIGHEST = 64
"""The highest power of two; no counter exceeds it."""
NODE_PORTS = 4
"""From this many ports on, the ports of a node show what its work does to all of them."""
NODE_FAR = 3
"""Powers of two by which a port must also be above the ports of its own node: the node's work moves all of them
alike."""


class Track(NamedTuple):
    """The key of a comparison: only ports and counters with an equal key are compared."""

    rail: int
    family: str
    rate_gbps: float
    counter: str

    @property
    def where(self) -> tuple[int, str, float]:
        """The key without the counter."""
        return self.rail, self.family, self.rate_gbps


class Usual(NamedTuple):
    """The usual growth on a track: the median of the powers, and one robust standard deviation."""

    median: float
    sigma: float

    def score(self, power: int) -> float:
        """How many robust standard deviations *power* is above the median."""
        return (power - self.median) / self.sigma


class Outlier(NamedTuple):
    """A port that is an outlier by one counter: its hourly growth is about 2^*power*, and 2^*usual* is usual."""

    node: str
    device: str
    port: int
    track: Track
    power: int
    usual: float
    score: float

    @property
    def message(self) -> str:
        """The message for people, in the Event on the node."""
        return (
            f"Port {self.port} of {self.device} (rail {self.track.rail}): {self.track.counter} grew by some "
            f"{1 << self.power:,} in an hour; {_amount(self.usual)} is usual on this rail. "
            f"The rail as a whole is not congested: look at {_SUSPECTS[self.track.counter in LEAST]}."
        )


class Congestion(NamedTuple):
    """So many nodes (*nodes*) of a track have high counts that the cause is the rail, and not the nodes."""

    track: Track
    nodes: int

    @property
    def message(self) -> str:
        """The message for people, in the log."""
        return (
            f"rail {self.track.rail} is congested by {self.track.counter}, {self.nodes} nodes: none of them is at fault"
        )


@dataclass(frozen=True, slots=True)
class Fabric:
    """The result of the comparison: on a congested rail there are no outliers."""

    outliers: Sequence[Outlier] = ()
    """The outlier with the highest score first."""
    congested: Sequence[Congestion] = ()
    rails: frozenset[int] = frozenset()
    """All rails that could be compared."""

    def ports_out(self) -> dict[int, int]:
        """By rail: how many ports are outliers."""
        ports = {(one.track.rail, one.node, one.device, one.port) for one in self.outliers}
        counted = Counter(rail for rail, *_ in ports)
        return {rail: counted[rail] for rail in self.rails}

    def nodes_congested(self) -> dict[int, int]:
        """By rail: how many nodes are congested, by the counter with the most nodes; 0 without congestion."""
        nodes = dict.fromkeys(self.rails, 0)
        for congestion in self.congested:
            nodes[congestion.track.rail] = max(nodes[congestion.track.rail], congestion.nodes)
        return nodes


class Survey:
    """Collects the nodes one by one, because ten thousand nodes take a while; `compare` then compares all of them."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str, float], dict[str, list[int]]] = {}
        """By rail, family, rate, and counter: how many ports reported each power."""
        self._raised: dict[Track, set[str]] = {}
        """Nodes with a port whose count is high enough for a report."""
        self._apart: dict[Track, list[tuple[str, Nic, int]]] = {}
        """Of these nodes, the ports that count more than the other ports of their node, and their power."""

    def enter(self, name: str, health: NodeHealth, now: datetime) -> None:
        """Add one node. The report of a silent agent is old and is ignored."""
        if is_silent(health.status, now):
            return
        usual: dict[tuple[str, float, str], float] = {}
        for nic in health.status.nics:
            if nic.rail is None or not nic.growth:
                continue
            counts = self._counts.setdefault((nic.rail, nic.family, nic.rate_gbps), {})
            for counter, count in nic.growth.items():
                power = min(max(count, 0), HIGHEST)
                if counter not in counts:
                    counts[counter] = [0] * (HIGHEST + 1)
                counts[counter][power] += 1
                if power < LEAST.get(counter, LEAST_OTHERWISE):
                    continue
                track = Track(nic.rail, nic.family, nic.rate_gbps, counter)
                self._raised.setdefault(track, set()).add(name)
                alike = track[1:]
                if alike not in usual:
                    usual[alike] = _of_node(health.status.nics, track)
                if power >= usual[alike] + NODE_FAR:
                    self._apart.setdefault(track, []).append((name, nic, power))

    def compare(self) -> Fabric:
        """The result over all nodes that were entered."""
        counted = {Track(*where, counter): of for where, each in self._counts.items() for counter, of in each.items()}
        ports = {track: sum(counts) for track, counts in counted.items() if sum(counts) >= PEERS}
        far = {track: list(self._far(track, _usual(counted[track]))) for track in ports}
        found = [_congestion(track, ports[track], self._raised.get(track, set()), far[track]) for track in ports]
        congested = sorted(congestion for congestion in found if congestion is not None)
        closed = {congestion.track.where for congestion in congested}
        out = [one for track, ones in far.items() if track.where not in closed for one in ones]
        out.sort(key=lambda one: (-one.score, one.node, one.device, one.port, one.track))
        return Fabric(out, congested, frozenset(track.rail for track in ports))

    def _far(self, track: Track, usual: Usual) -> Iterator[Outlier]:
        for name, nic, power in self._apart.get(track, ()):
            if (score := usual.score(power)) >= SCORE:
                yield Outlier(name, nic.pci, nic.port, track, power, usual.median, score)


def compared(nics: Iterable[Nic]) -> list[Nic]:
    """The fields of a node's ports that are compared. Equal values are shared between thousands of nodes in memory."""
    return [_compared(nic) for nic in nics if nic.rail is not None]


def _compared(nic: Nic) -> Nic:
    return Nic(
        pci=intern(nic.pci),
        port=nic.port,
        family=intern(nic.family),
        rate_gbps=nic.rate_gbps,
        rail=nic.rail,
        growth=_one_of(tuple(nic.growth.items())),
    )


@lru_cache(maxsize=4096)
def _one_of(growth: tuple[tuple[str, int], ...]) -> dict[str, int]:
    return dict(growth)


def _of_node(nics: Sequence[Nic], track: Track) -> float:
    """
    The usual power among the ports of one node that match *track*; with few such ports -NODE_FAR, which excludes none.

    When all of these ports count alike, the node has work that other nodes do not have.
    """
    powers = [
        nic.growth[track.counter]
        for nic in nics
        if track.counter in nic.growth
        and nic.rail is not None
        and (nic.family, nic.rate_gbps) == (track.family, track.rate_gbps)
    ]
    return median_low(powers) if len(powers) >= NODE_PORTS else -NODE_FAR


def _congestion(track: Track, ports: int, raised: AbstractSet[str], far: Sequence[Outlier]) -> Congestion | None:
    """The congestion of a rail with *ports* ports, if so many nodes have high counts; None when they are few."""
    if track.counter in LEAST and len(raised) >= CONGESTED * ports:
        return Congestion(track, len(raised))
    if len(far) > max(CONGESTED_LEAST, CONGESTED_SHARE * ports):
        return Congestion(track, len({one.node for one in far}))
    return None


def _amount(power: float) -> str:
    return f"some {1 << int(power):,}" if power else f"less than {1 << QUIET:,}"


def _usual(counts: Sequence[int]) -> Usual:
    """The usual growth; *counts* is how many ports reported each power."""
    middle = _middle(list(enumerate(counts)))
    deviations = sorted((abs(power - middle), count) for power, count in enumerate(counts) if count)
    return Usual(middle, max(SIGMA * _middle(deviations), LEAST_SIGMA))


def _middle(counted: Sequence[tuple[float, int]]) -> float:
    """The lower median of sorted values, each given with its number of occurrences."""
    half = (sum(count for _, count in counted) + 1) // 2
    seen = 0
    for value, count in counted:
        seen += count
        if seen >= half:
            return value
    return 0
