"""
Hourly growth of the RDMA port counters that grow on a busy fabric, so coarse that a quiet fabric causes no writes.

An agent publishes powers of two, because ten thousand agents share one API server. The judgement is in
`healthd.core.fabric.rail_comparison`, against the same rail of all other nodes; a single node cannot judge. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from healthd.core.api import Nic
from healthd.core.api.health import MOST_POWER

WATCHED: Mapping[str, tuple[str, ...]] = {
    "ib": ("ib.out_of_sequence", "ib.packet_seq_err", "ib.local_ack_timeout_err", "ib.port_xmit_discards"),
    "roce": (
        *("roce.out_of_sequence", "roce.packet_seq_err", "roce.roce_adp_retrans", "roce.np_cnp_sent"),
        *("roce.oos_drop_count", "roce.seq_err_naks_rcvd", "roce.to_retransmits", "roce.rx_roce_discards"),
        *("roce.tcpRetransSegs", "roce.ip4InDiscards", "roce.cnpSent"),
    ),
}
"""By family: the readings that are published. Each driver has three or four of its own: mlx5, bnxt_re, irdma."""

QUIET = 10
"""The power of two below which growth is published as 0: less than 2^10 in an hour is too little to compare."""
SPAN = timedelta(hours=1)
MEASURE_EVERY = timedelta(minutes=5)
SLACK = 1.5
"""Hysteresis: another power is published only when growth is beyond the range of the last power by this factor. So
growth that varies around a limit causes no writes."""


class Count(NamedTuple):
    """A counter of one port: the function's address, the port as readings name it, and the reading's name."""

    device: str
    part: str
    reading: str


class RateTracker:
    """
    Computes the growth of counters in the last hour, from a few samples of their totals.

    A counter that was not sampled for a whole hour has no growth yet, nor has a counter that was reset.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[datetime, Mapping[Count, float]]] = deque()

    def is_due(self, now: datetime) -> bool:
        """Whether it is time for the next sample."""
        return not self._marks or now - self._marks[-1][0] >= MEASURE_EVERY

    def take(self, totals: Mapping[Count, float], now: datetime) -> None:
        """Add a sample: the growth of each counter since it was first read."""
        self._marks.append((now, totals))
        while len(self._marks) > 1 and now - self._marks[1][0] >= SPAN:
            self._marks.popleft()

    def hourly(self) -> dict[Count, float]:
        """The growth of each counter in an hour."""
        (began, before), (ended, after) = self._marks[0], self._marks[-1]
        if ended - began < SPAN:
            return {}
        share = SPAN / (ended - began)
        return {
            count: (total - before[count]) * share
            for count, total in after.items()
            if count in before and total >= before[count]
        }

    def settle(self) -> None:
        """Drop all samples: the node was repaired, and earlier counts do not apply any more."""
        self._marks.clear()


def power_of(grown: float, before: int | None = None) -> int:
    """The power of two that *grown* reaches, 0 for little; *before*, the last published one, while that nearly fits."""
    if before is not None and _nearly_fits(grown, before):
        return before
    power = min(int(grown).bit_length() - 1, MOST_POWER)  # a larger sum comes from jumps that no real counter makes
    return power if power >= QUIET else 0


def _nearly_fits(grown: float, power: int) -> bool:
    low, high = (float(1 << power), float(2 << power)) if power else (0.0, float(1 << QUIET))
    return low / SLACK <= grown < high * SLACK


def watched_of(nic: Nic) -> Sequence[str]:
    """The published readings of a port. A port without a rail has none, because there is nothing to compare it with."""
    return WATCHED.get(nic.family, ()) if nic.rail is not None else ()


def port_count(nic: Nic, reading: str) -> Count:
    """The key of the counter *reading* of *nic*."""
    return Count(nic.pci, f"port {nic.port}", reading)


def with_growth(nic: Nic, hourly: Mapping[Count, float]) -> Nic:
    """The port with the growth of its counters in an hour."""
    grown = {reading: hourly[count] for reading in watched_of(nic) if (count := port_count(nic, reading)) in hourly}
    powers = {reading: power_of(amount, nic.growth.get(reading)) for reading, amount in grown.items()}
    return nic if powers == nic.growth else msgspec.structs.replace(nic, growth=powers)
