"""
Compares the ports of one rail over all nodes: whose counters grow far more than elsewhere, and is the rail congested.

Seen from one node, a port that congestion hits and one that is broken look alike; seen from all, the first has company.
Only what is alike is compared: the same rail, family and rate, and the same counter of the same driver. What is found
is told and never takes a node out of service. Pure.
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
"""Robust standard deviations above the median from which a port stands out; as among the ports of one node."""
SIGMA = 1.4826
"""Of a normal distribution, by its median absolute deviation."""
LEAST_SIGMA = 0.5
"""In powers of two. Where all are equal, six of these are a growth eight times that of the others."""
PEERS = 8
"""Fewer ports say nothing about what is usual."""
CROWD = 0.05
"""So many of a rail's ports do not break at the same time: when more are out of line, it is the rail."""
CROWD_LEAST = 3
"""And more than this, on a small cluster."""
CONGESTED = 0.25
"""A rail is congested when so many of its ports count marks of congestion, however equally."""

LEAST: Mapping[str, int] = {
    "roce.np_cnp_sent": 17,
    "roce.cnpSent": 17,
    "ib.port_xmit_discards": 15,
    "roce.rx_roce_discards": 15,
    "roce.ip4InDiscards": 15,
}
"""By counter of congestion: the power of two an hour from which it is worth a word; that is some 36 and 9 a second."""
_SUSPECTS = {
    True: "what is sent to this port, and the switch port",
    False: "its cable, its modules and the switch port",
}
"""What may be behind a counter of congestion, and behind one of loss."""
LEAST_OTHERWISE = 12
"""For counters of loss and disorder: one a second."""
HIGHEST = 64
"""Powers that no counter exceeds."""
NODE_PORTS = 4
"""So many ports of a node tell what its work does to all of them."""
NODE_FAR = 3
"""Powers of two by which a port must also be above the ports of its own node: its work moves them alike."""


class Track(NamedTuple):
    """What is compared with each other."""

    rail: int
    family: str
    rate_gbps: float
    counter: str

    @property
    def where(self) -> tuple[int, str, float]:
        """Less the counter."""
        return self.rail, self.family, self.rate_gbps


class Usual(NamedTuple):
    """What is usual on a track: the median of the powers, and one robust standard deviation."""

    median: float
    sigma: float

    def score(self, power: int) -> float:
        """How far *power* is above what is usual."""
        return (power - self.median) / self.sigma


class Outlier(NamedTuple):
    """One port that stands out by one counter, whose hourly growth is about 2^*power* while 2^*usual* is usual."""

    node: str
    device: str
    port: int
    track: Track
    power: int
    usual: float
    score: float

    @property
    def message(self) -> str:
        """For a person, on the event of the node."""
        return (
            f"Port {self.port} of {self.device} (rail {self.track.rail}): {self.track.counter} grew by some "
            f"{1 << self.power:,} in an hour; {_amount(self.usual)} is usual on this rail. "
            f"The rail as a whole is not congested: look at {_SUSPECTS[self.track.counter in LEAST]}."
        )


class Congestion(NamedTuple):
    """*nodes* nodes of a track count so much that it is the rail, and not them."""

    track: Track
    nodes: int

    @property
    def message(self) -> str:
        """For a person, in the log."""
        return (
            f"rail {self.track.rail} is congested by {self.track.counter}, {self.nodes} nodes: none of them is at fault"
        )


@dataclass(frozen=True, slots=True)
class Fabric:
    """What the comparison shows: on a rail that is congested nobody stands out."""

    outliers: Sequence[Outlier] = ()
    """The farthest first."""
    congested: Sequence[Congestion] = ()
    rails: frozenset[int] = frozenset()
    """All that could be compared."""

    def ports_out(self) -> dict[int, int]:
        """By rail: how many ports stand out."""
        ports = {(one.track.rail, one.node, one.device, one.port) for one in self.outliers}
        counted = Counter(rail for rail, *_ in ports)
        return {rail: counted[rail] for rail in self.rails}

    def nodes_congested(self) -> dict[int, int]:
        """By rail: how many nodes are in its congestion, by the counter that tells of most; 0 where it has none."""
        nodes = dict.fromkeys(self.rails, 0)
        for crowd in self.congested:
            nodes[crowd.track.rail] = max(nodes[crowd.track.rail], crowd.nodes)
        return nodes


class Survey:
    """Ten thousand nodes take a while: they are entered one by one, and `compare` says what they show together."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str, float], dict[str, list[int]]] = {}
        """By rail, family, rate, and counter: how many ports told each power."""
        self._raised: dict[Track, set[str]] = {}
        """Nodes with a port that counts enough to be worth a word."""
        self._apart: dict[Track, list[tuple[str, Nic, int]]] = {}
        """Of these the ports that count more than the others of their node, and their power."""

    def enter(self, name: str, health: NodeHealth, now: datetime) -> None:
        """One node. What a silent agent said is old, and counts for nothing."""
        if is_silent(health.status, now):
            return
        usual: dict[tuple[str, float, str], float] = {}
        for nic in health.status.nics:
            if nic.rail is None or not nic.growth:
                continue
            counts = self._counts.setdefault((nic.rail, nic.family, nic.rate_gbps), {})
            for counter, told in nic.growth.items():
                power = min(max(told, 0), HIGHEST)
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
        """What all nodes together show."""
        counted = {Track(*where, counter): of for where, each in self._counts.items() for counter, of in each.items()}
        ports = {track: sum(counts) for track, counts in counted.items() if sum(counts) >= PEERS}
        far = {track: list(self._far(track, _usual(counted[track]))) for track in ports}
        crowds = [_crowd(track, ports[track], self._raised.get(track, set()), far[track]) for track in ports]
        congested = sorted(crowd for crowd in crowds if crowd is not None)
        closed = {crowd.track.where for crowd in congested}
        out = [one for track, ones in far.items() if track.where not in closed for one in ones]
        out.sort(key=lambda one: (-one.score, one.node, one.device, one.port, one.track))
        return Fabric(out, congested, frozenset(track.rail for track in ports))

    def _far(self, track: Track, usual: Usual) -> Iterator[Outlier]:
        for name, nic, power in self._apart.get(track, ()):
            if (score := usual.score(power)) >= SCORE:
                yield Outlier(name, nic.pci, nic.port, track, power, usual.median, score)


def compared(nics: Iterable[Nic]) -> list[Nic]:
    """Of the ports of a node what is compared with others, without what is the same on thousands of nodes twice."""
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


def look_across(health: Mapping[str, NodeHealth], now: datetime) -> Fabric:
    """What all nodes together show, at once."""
    survey = Survey()
    for name, one in health.items():
        survey.enter(name, one, now)
    return survey.compare()


def _of_node(nics: Sequence[Nic], track: Track) -> float:
    """
    What the ports of one node that are like those of *track* count usually; nothing where they are few.

    Where all of them count alike, the node has work that others have not.
    """
    powers = [
        nic.growth[track.counter]
        for nic in nics
        if track.counter in nic.growth
        and nic.rail is not None
        and (nic.family, nic.rate_gbps) == (track.family, track.rate_gbps)
    ]
    return median_low(powers) if len(powers) >= NODE_PORTS else -NODE_FAR


def _crowd(track: Track, ports: int, raised: AbstractSet[str], far: Sequence[Outlier]) -> Congestion | None:
    """The nodes that count so much that it is the doing of the rail, which has *ports* ports; None: they are few."""
    if track.counter in LEAST and len(raised) >= CONGESTED * ports:
        return Congestion(track, len(raised))
    if len(far) > max(CROWD_LEAST, CROWD * ports):
        return Congestion(track, len({one.node for one in far}))
    return None


def _amount(power: float) -> str:
    return f"some {1 << int(power):,}" if power else f"less than {1 << QUIET:,}"


def _usual(counts: Sequence[int]) -> Usual:
    """From how often each power was told."""
    middle = _middle(list(enumerate(counts)))
    deviations = sorted((abs(power - middle), count) for power, count in enumerate(counts) if count)
    return Usual(middle, max(SIGMA * _middle(deviations), LEAST_SIGMA))


def _middle(counted: Sequence[tuple[float, int]]) -> float:
    """The lower median of values, each told with how often it is there, in order."""
    half = (sum(count for _, count in counted) + 1) // 2
    seen = 0
    for value, count in counted:
        seen += count
        if seen >= half:
            return value
    return 0
