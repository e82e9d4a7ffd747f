"""
DCGM's readings of the GPUs, scraped from a dcgm-exporter: a second witness beside the kernel and NVML.

Nothing of DCGM is needed here, no library and no privilege. When the exporter is gone, hangs, repeats itself or reports
another machine's GPUs, the sample has trouble and no readings: that is no evidence about the hardware.

For Xids, DCGM reports the last one for ever, or those of a sliding window, or a total since the exporter's start. What
happened before the first sample does not count in any of the three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta

from healthd.core.diagnosis.readings import Reading, Sample
from healthd.core.diagnosis.signals.gpus.nvml import XIDS
from healthd.probes.dcgm.fields import (
    LAST_XID,
    PULSE,
    WANTED,
    XIDS_EVER,
    XIDS_LATELY,
    DcgmValue,
    parse_line,
    readings_of,
)
from healthd.probes.dcgm.web import fetch_page
from healthd.probes.errors import CannotRead

DEADLINE = 5.0
"""Seconds for the whole page. The exporter answers from memory, but may wait for the pods' names."""
MOST = 2 * 1024 * 1024
"""Bytes of a page. Eight GPUs with every field and 7 MIG instances each make about 1 MB."""
MOST_LINES = 4000
"""The most lines of interest. A page with more is not an exporter's page."""
STALE = timedelta(minutes=5)
"""The exporter collects every 30 s by default. An energy counter that does not move for this long is not being read."""

Fetch = Callable[[str], str]
"""The page at a URL. Raises CannotRead."""


def fetch(url: str) -> str:
    """The page of an exporter. Raises CannotRead."""
    return fetch_page(url, deadline=DEADLINE, most=MOST)


class Dcgm:
    """
    The exporter at *url*.

    *gpus*: PCI address by UUID of every GPU of this machine that was ever seen, as NVML lists them. A row counts when
    it names one of these, or has the label of *node*: the Service in front of the exporters may lead to another
    machine, whose GPUs have the same addresses. Readings, by GPU: those of `fields`, `dcgm.xid.<code>` (how often since
    the first sample) for each of *xids*, and `dcgm.listed` (`yes`, or `no` for one that was listed before).
    """

    source = "dcgm"
    every = timedelta(seconds=30)

    def __init__(
        self,
        url: str,
        *,
        node: str = "",
        gpus: Callable[[], Mapping[str, str]] = dict,
        xids: Collection[int] = XIDS,
        fetch: Fetch = fetch,
    ) -> None:
        self._url = url
        self._node = node
        self._gpus = gpus
        self._fetch = fetch
        self._known: dict[str, DcgmValue | None] = {}
        """The parsed lines of the previous page: most lines do not change."""
        self._listed: set[str] = set()
        self._xids = _Xids(xids)
        self._pulse: tuple[list[str], datetime] | None = None

    def sample(self, now: datetime) -> Sample:
        """Blocks for DEADLINE at most, plus the DNS lookup."""
        try:
            readings = self._read(now)
        except CannotRead as trouble:
            return Sample(source=self.source, at=now, trouble=str(trouble))
        return Sample(source=self.source, at=now, readings=readings)

    def _read(self, now: datetime) -> list[Reading]:
        lines = self._fetch(self._url).split("\n")
        self._check_pulse([line for line in lines if line.startswith(PULSE)], now)
        values = self._parse([line for line in lines if line.partition("{")[0] in WANTED])
        ours = self._ours(values)
        listed = {device for device, _ in ours}
        self._listed |= listed
        presence = {device: "yes" if device in listed else "no" for device in sorted(self._listed)}
        readings = [Reading(device, "dcgm.listed", word) for device, word in presence.items()]
        readings += _merged(ours)
        readings += self._xids.take(ours, listed)
        return readings

    def _parse(self, lines: list[str]) -> list[DcgmValue]:
        if len(lines) > MOST_LINES:
            raise CannotRead(self._url, f"{len(lines)} lines of GPU metrics", "see that it is a dcgm-exporter")
        self._known = {line: self._known[line] if line in self._known else parse_line(line) for line in lines}
        return [value for value in self._known.values() if value is not None]

    def _check_pulse(self, pulse: list[str], now: datetime) -> None:
        """The exporter goes on serving its last values when DCGM no longer answers it."""
        if not pulse:
            return
        if self._pulse is None or self._pulse[0] != pulse:
            self._pulse = pulse, now
        since = self._pulse[1]
        if now - since >= STALE:
            raise CannotRead(self._url, f"nothing has changed since {since:%H:%M:%S}", "see that DCGM answers it")

    def _ours(self, values: Iterable[DcgmValue]) -> list[tuple[str, DcgmValue]]:
        """The values of this machine's GPUs with their addresses."""
        gpus, ours, others = self._gpus(), list[tuple[str, DcgmValue]](), set[str]()
        for value in values:
            if value.gpu in gpus:
                ours.append((gpus[value.gpu], value))
            elif value.device and self._node and value.host == self._node:
                ours.append((value.device, value))
            else:
                others.add(value.host[:253])
        if not ours and others:
            whose = ", ".join(sorted(filter(None, others))[:3]) or "unknown"
            raise CannotRead(
                self._url,
                f"it reports GPUs of another machine ({whose})",
                "name an exporter on this node: a Service with internalTrafficPolicy: Local",
            )
        if not ours:
            raise CannotRead(self._url, "it reports no GPU", "see that it is a dcgm-exporter and that DCGM answers it")
        return ours


class _Xids:
    """Counts Xids from one page to the next, by each metric that reports them. No metric reports all of them."""

    def __init__(self, xids: Collection[int]) -> None:
        self._names = {xid: f"dcgm.xid.{xid}" for xid in xids}
        self._shown: dict[tuple[str, str], dict[int, float]] = {}
        self._counts: Counter[tuple[str, str, int]] = Counter()

    def take(self, ours: Iterable[tuple[str, DcgmValue]], listed: Collection[str]) -> list[Reading]:
        """The counts after one more page, for each of the devices in *listed*."""
        shown = _xids_shown(ours)
        # Its first row comes with the first event after the exporter's start. The others always have rows.
        shown = {(XIDS_EVER, device): dict[int, float]() for device in listed} | shown
        for (metric, device), times in shown.items():
            before = self._shown.get((metric, device), times)
            for xid, often in times.items():
                self._counts[metric, device, xid] += max(int(often - before.get(xid, 0)), 0)
        self._shown |= shown
        return [
            Reading(device, name, max(self._counts[metric, device, xid] for metric in _METRICS))
            for device in sorted(listed)
            for xid, name in self._names.items()
        ]


_METRICS = (XIDS_EVER, XIDS_LATELY, *LAST_XID)


def _xids_shown(ours: Iterable[tuple[str, DcgmValue]]) -> dict[tuple[str, str], dict[int, float]]:
    """How often the page shows each Xid, by metric and device."""
    shown: dict[tuple[str, str], dict[int, float]] = {}
    for device, value in ours:
        if value.metric in _METRICS:
            times = shown.setdefault((value.metric, device), {})
            if value.xid:
                often = 1 if value.metric in LAST_XID else value.value
                times[value.xid] = max(times.get(value.xid, 0), often)
    return shown


def _merged(ours: Iterable[tuple[str, DcgmValue]]) -> list[Reading]:
    """A GPU that several pods share has a row for each of them: the largest number counts, and the worst state."""
    merged: dict[tuple[str, str, str], float | str] = {}
    for device, value in ours:
        for name, part, reading in readings_of(value):
            place = device, name, part
            merged[place] = _worse(merged.get(place, reading), reading)
    return [Reading(device, name, value, part) for (device, name, part), value in merged.items()]


_STATES = ("no", "pass", "history", "unknown", "warn", "yes", "fail")


def _worse(one: float | str, other: float | str) -> float | str:
    if isinstance(one, str) or isinstance(other, str):
        return max(str(one), str(other), key=_STATES.index)
    return max(one, other)
