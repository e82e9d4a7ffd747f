"""
Ethernet ports by `/sys/class/net` and, where this network namespace is the host's, by the statistics of `ethtool -S`.

Readings, by the function's address and `port N`:

- `eth.link`: `up`, `down` (it had a carrier before), `off` (set down by an administrator), `unused`;
- `eth.carrier_changes`, `eth.carrier_down_count`: how often the carrier came or went, and went;
- `eth.speed`, `eth.peer_speed`: Gb/s of a port with a carrier, and of most ports of its kind;
- `eth.<counter>`: a file of `statistics/`, or a statistic of the driver under one name for all drivers;
- `eth.rx_pause`, `eth.tx_pause`: pause frames of all priorities together; `eth.rx_pause_us`, `eth.tx_pause_us`: for how
many microseconds. Received: the fabric stops this host. Sent: this host stops the fabric.

A pod with a network namespace of its own has sysfs alone. Virtual functions are covered by their physical ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from healthd.core.diagnosis.link_state import usual
from healthd.core.diagnosis.readings import Reading, Sample
from healthd.core.diagnosis.signals.nics import ethernet
from healthd.probes.nics.counter_files import BackingOffReader, Read, parse_counter
from healthd.probes.nics.ethtool import Ethtool, Statistics, StatisticsReader
from healthd.probes.nics.netdevs import Interface, is_set_up, read_interfaces
from healthd.probes.nics.rdma import SYS
from healthd.probes.pace import pace
from healthd.probes.sysfs import KeptOpen, listed, read_number, read_text, read_word, trouble_with

LIST_EVERY = timedelta(minutes=1)
"""How often interfaces are listed again although their names are the same."""

WANTED = frozenset(rule.reads for rule in ethernet.RULES)
"""Only what a rule judges is read."""

_SOFTWARE = ("rx_crc_errors", "rx_frame_errors", "rx_fifo_errors", "rx_missed_errors", "tx_carrier_errors")
"""Files of `statistics/`."""
_CARRIER = ("carrier_down_count",)
_STATES = frozenset({"up", "down", "lowerlayerdown", "notpresent", "dormant", "testing", "unknown"})
"""The words of `operstate` (RFC 2863)."""


def _named() -> dict[str, str]:
    """Statistics of drivers, and the readings that they make."""
    same = {name.removeprefix("eth."): name for name in WANTED if name.removeprefix("eth.") not in _SOFTWARE}
    for way in ("rx", "tx"):
        pauses = [f"{way}_global_pause", *(f"{way}_prio{at}_pause" for at in range(8))]  # mlx5
        pauses += [f"{way}_pfc_ena_frames_pri{at}" for at in range(8)]  # bnxt_en
        pauses += [f"{way}_priority_{at}_xoff.nic" for at in range(8)]  # ice
        durations = [f"{way}_global_pause_duration", *(f"{way}_prio{at}_pause_duration" for at in range(8))]
        same |= dict.fromkeys(pauses, f"eth.{way}_pause") | dict.fromkeys(durations, f"eth.{way}_pause_us")
    return same


STATISTICS = _named()


class _Interfaces:
    """The physical interfaces, looked up again when their names changed, and now and then."""

    def __init__(self, sys: Path) -> None:
        self._sys = sys
        self._names: list[str] = []
        self._until: datetime | None = None
        self.all: list[Interface] = []

    def refresh(self, now: datetime) -> bool:
        """Whether they were listed again. Raises OSError where this is no /sys."""
        names = listed(str(self._sys), "net", self._names)
        if names == self._names and self._until and now < self._until:
            return False
        self._names, self._until = names, now + LIST_EVERY
        self.all = [one for one in read_interfaces(self._sys) if not one.is_virtual]
        return True


class Ethernet:
    """Whether ports have a carrier, and how often they lost it."""

    source = "ethernet"

    def __init__(self, sys: Path = SYS, read: Read | None = None) -> None:
        self._known = _Interfaces(sys)
        self._kept = KeptOpen()
        self._read = read or self._kept
        self._were_up: set[str] = set()

    @property
    def every(self) -> timedelta:
        """Every second, where there is an interface."""
        return pace(timedelta(seconds=1), has_devices=bool(self._known.all))

    def sample(self, now: datetime) -> Sample:
        """The state of every interface now."""
        try:
            if self._known.refresh(now):
                self._kept.close()
        except OSError as error:
            return Sample(source=self.source, at=now, trouble=trouble_with(error))
        read = [(interface, self._read_one(interface)) for interface in self._known.all]
        unread = ", ".join(interface.name for interface, readings in read if readings is None)
        return Sample(
            source=self.source,
            at=now,
            readings=[reading for _, readings in read for reading in readings or ()],
            unread=f"the state of {unread} is not readable or none that there is" if unread else "",
        )

    def _read_one(self, interface: Interface) -> list[Reading] | None:
        """None where its state cannot be read: that does not mean that it is down."""
        try:
            state = self._read(f"{interface.folder}/operstate")
            changes = parse_counter(self._read(f"{interface.folder}/carrier_changes"))
        except OSError:
            return None
        return list(self._readings(interface, state, changes)) if state in _STATES else None

    def _readings(self, interface: Interface, state: str, changes: int | None) -> Iterator[Reading]:
        yield Reading(interface.pci, "eth.link", self._link(interface, state), interface.part)
        if changes is not None:
            yield Reading(interface.pci, "eth.carrier_changes", changes, interface.part)

    def _link(self, interface: Interface, state: str) -> str:
        if state == "up" or interface.was_up:
            self._were_up.add(interface.name)
        if state == "up":
            return "up"
        if interface.name not in self._were_up:
            return "unused"
        return "down" if is_set_up(interface.folder) else "off"


class EthernetCounters:
    """The counters of interfaces in sysfs."""

    source = "ethernet-counters"
    every = timedelta(seconds=10)

    def __init__(self, sys: Path = SYS, read: Read = read_text) -> None:
        self._known = _Interfaces(sys)
        self._patient = BackingOffReader(read)

    def sample(self, now: datetime) -> Sample:
        """The value of every counter now, and every speed."""
        try:
            self._known.refresh(now)
        except OSError as error:
            return Sample(source=self.source, at=now, trouble=trouble_with(error))
        readings = [reading for interface in self._known.all for reading in self._read_counters(interface, now)]
        return Sample(source=self.source, at=now, readings=[*readings, *self._read_speeds()])

    def _read_counters(self, interface: Interface, now: datetime) -> Iterator[Reading]:
        folders = ((f"{interface.folder}/statistics", _SOFTWARE), (interface.folder, _CARRIER))
        for folder, names in folders:
            for name in names:
                value = self._patient.number(folder, name, now)
                if value is not None:
                    yield Reading(interface.pci, f"eth.{name}", value, interface.part)

    def _read_speeds(self) -> Iterator[Reading]:
        # A port that is down refuses to report its speed, or reports -1: it is read only while the port is up.
        up = [one for one in self._known.all if read_word(f"{one.folder}/operstate") == "up"]
        speeds = {one.name: read_number(f"{one.folder}/speed") or 0 for one in up}
        kinds: dict[str, Counter[float]] = {}
        for one in up:
            if speeds[one.name] > 0:
                kinds.setdefault(one.kind, Counter())[speeds[one.name] / 1000] += 1
        for one in up:
            if speeds[one.name] > 0:
                yield Reading(one.pci, "eth.speed", speeds[one.name] / 1000, one.part)
                if most := usual(kinds[one.kind]):
                    yield Reading(one.pci, "eth.peer_speed", most, one.part)


class EthernetStatistics:
    """Counters of drivers that only `ethtool -S` shows. Each sample makes a driver query firmware, so it is rare."""

    source = "ethtool"
    every = timedelta(seconds=30)

    def __init__(self, sys: Path = SYS, statistics: Statistics | None = None) -> None:
        self._known = _Interfaces(sys)
        self._statistics = statistics or Ethtool()
        self._chosen: dict[str, StatisticsReader] = {}

    def sample(self, now: datetime) -> Sample:
        """The counters of every driver now, for interfaces in this process's own network namespace."""
        try:
            if self._known.refresh(now):
                self._chosen = {
                    one.name: StatisticsReader(one.name, STATISTICS) for one in self._known.all if self._is_here(one)
                }
        except OSError as error:
            return Sample(source=self.source, at=now, trouble=trouble_with(error))
        readings = [reading for interface in self._known.all for reading in self._read_one(interface)]
        return Sample(source=self.source, at=now, readings=readings)

    def _is_here(self, interface: Interface) -> bool:
        """Whether it is not another interface of the same name: a pod has an `eth0`, and its node may have one too."""
        try:
            return self._statistics.bus(interface.name) == interface.pci
        except OSError:
            return False

    def _read_one(self, interface: Interface) -> Sequence[Reading]:
        chosen = self._chosen.get(interface.name)
        if chosen is None:
            return ()
        try:
            speeds = chosen.read(self._statistics)
        except OSError:
            return ()
        return [Reading(interface.pci, name, value, interface.part) for name, value in speeds.items()]
