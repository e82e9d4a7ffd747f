"""
RDMA ports by `/sys/class/infiniband`: whether they are up, every second, and what they count, every ten.

Readings, by the function's address and `port N`:

- `ib.link`: a word of `healthd.core.links.Link`, from `ib.state` and `ib.phys_state`, the kernel's own words;
- `ib.rail_link`: `up` or `down` where one of both is certain and a GPU's traffic goes through the port; only a link
  that is seen to be up makes good one that was down;
- `ib.link_downed`: how often the link was lost;
- `ib.present`: `no` once a physical device is no longer listed that was, without a part;
- `ib.verbs`: `no` for a device that programs cannot open, without a part, where the kernel lists those that they can;
- `ib.rate`, `ib.peer_rate`: Gb/s of an active port, and of most active ports of its kind;
- `ib.saturated`: counters that stand at the end of their range and count no more, or `none`;
- `ib.<counter>`: a file of `counters/`; and of `hw_counters/` with the family's name in front: `ib.`, `roce.`, `efa.`.

EFA's driver says of every port that it is active at 100 Gb/s, whatever happens, so of EFA only counters are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from healthd.core.links import Link, PortSeen, judge_links, usual
from healthd.core.rails import Rail
from healthd.core.readings import Look, Reading
from healthd.core.signals import efa, infiniband, roce
from healthd.probes.netdevs import is_set_up
from healthd.probes.rdma import (
    SYS,
    Family,
    Port,
    device_names,
    parse_rate,
    parse_state,
    read_ports,
    read_rails,
    read_usable,
)
from healthd.probes.sysfs import KeptOpen, Patient, Read, as_number, names_in, read_or_empty, read_text, trouble_with

LOOK_AGAIN = timedelta(minutes=1)
"""So often devices are looked up anew though their names are the same: links, interfaces and functions can move."""

COUNTERS = frozenset(rule.reads for rule in (*infiniband.RULES, *roce.RULES, *efa.RULES))
"""What somebody judges is read, and nothing else: each read is a question to firmware."""

RANGES = {
    "symbol_error": 16,
    "link_error_recovery": 8,
    "link_downed": 8,
    "port_rcv_errors": 16,
    "port_rcv_remote_physical_errors": 16,
    "port_rcv_switch_relay_errors": 16,
    "port_xmit_discards": 16,
    "port_xmit_constraint_errors": 8,
    "port_rcv_constraint_errors": 8,
    "local_link_integrity_errors": 4,
    "excessive_buffer_overrun_errors": 4,
    "VL15_dropped": 16,
}
"""Bits of the counters that stop at their end (PortCounters, InfiniBand specification 16.1.3.5)."""


class _Ports:
    """The ports of this machine, looked up again when the names of devices changed, and now and then."""

    def __init__(self, sys: Path) -> None:
        self._sys = sys
        self._names: list[str] = []
        self._until: datetime | None = None
        self.ports: list[Port] = []
        self.rails: Mapping[str, Rail] = {}

    def refresh(self, now: datetime) -> bool:
        """Whether they were looked up anew. Raises OSError where this is no /sys."""
        names = device_names(self._sys)
        if names == self._names and self._until and now < self._until:
            return False
        self._names, self._until = names, now + LOOK_AGAIN
        self.ports = read_ports(self._sys)
        self.rails = read_rails(self.ports, self._sys)
        return True

    def kind(self, port: Port) -> str:
        """What it may be compared with: a port of the storage network may be the same product and run slower."""
        return f"{port.place.kind} {'on' if port.pci in self.rails else 'off'} rail"


class _Words(NamedTuple):
    """What the kernel says of one port. *downed*: how often its link was lost, where that is counted."""

    state: str
    phys_state: str
    downed: float | None


class Infiniband:
    """Whether ports are up. Keeps its few files open, so that a look costs microseconds of our own."""

    source = "infiniband"
    every = timedelta(seconds=1)

    def __init__(self, sys: Path = SYS, read: Read | None = None) -> None:
        self._sys = str(sys)
        self._known = _Ports(sys)
        self._kept = KeptOpen()
        self._read = read or self._kept
        self._patient = Patient(self._read)
        self._present: set[str] = set()
        self._were_up: set[str] = set()

    def look(self, now: datetime) -> Look:
        """What the ports say now."""
        try:
            if self._known.refresh(now):
                self._kept.close()  # of devices that are gone, or have come back under the same name
        except OSError as error:
            return Look(source=self.source, at=now, trouble=trouble_with(error))
        ports = [port for port in self._known.ports if port.family is not Family.EFA]
        told = [(port, words) for port in ports if (words := self._read_words(port, now))]
        links = judge_links({port.key: self._seen(port, words) for port, words in told})
        readings = [reading for port, words in told for reading in self._readings(port, words, links[port.key])]
        return Look(source=self.source, at=now, readings=[*readings, *self._read_presence()])

    def _read_words(self, port: Port, now: datetime) -> _Words | None:
        try:
            state = parse_state(self._read(f"{port.folder}/state"))
            phys_state = parse_state(self._read(f"{port.folder}/phys_state"))
        except OSError:
            return None
        is_own_wire = not port.parent
        downed = self._patient.number(f"{port.folder}/counters", "link_downed", now) if is_own_wire else None
        return _Words(state, phys_state, downed)

    def _readings(self, port: Port, words: _Words, link: Link) -> Iterator[Reading]:
        yield Reading(port.pci, "ib.state", words.state, port.part)
        yield Reading(port.pci, "ib.phys_state", words.phys_state, port.part)
        yield Reading(port.pci, "ib.link", link, port.part)
        if port.pci in self._known.rails and link in {Link.UP, Link.DOWN}:
            yield Reading(port.pci, "ib.rail_link", link, port.part)
        if words.downed is not None:
            yield Reading(port.pci, "ib.link_downed", words.downed, port.part)

    def _seen(self, port: Port, words: _Words) -> PortSeen:
        if words.state.startswith("ACTIVE") or words.downed or self._had_carrier(port):
            self._were_up.add(port.key)
        return PortSeen(
            state=words.state,
            phys_state=words.phys_state,
            is_off=self._is_off(port, words),
            kind=self._known.kind(port),
            was_up=port.key in self._were_up,
            on_rail=port.pci in self._known.rails,
            parent=port.parent_key,
        )

    def _is_off(self, port: Port, words: _Words) -> bool:
        """
        Drivers of RoCE call every port Disabled that has no carrier, so its interface is asked. One that is not in
        sight (it may be in the network namespace of a pod) says nothing for a fault.
        """
        if words.phys_state != "Disabled" or port.family is not Family.ROCE:
            return words.phys_state == "Disabled"
        return not is_set_up(f"{self._sys}/class/net/{port.netdev}")

    def _had_carrier(self, port: Port) -> bool:
        """Some drivers do not count lost links, but every interface counts its carrier's comings."""
        if port.key in self._were_up or not port.netdev:
            return False
        return as_number(read_or_empty(f"{self._sys}/class/net/{port.netdev}/carrier_up_count")) not in {None, 0}

    def _read_presence(self) -> list[Reading]:
        """Virtual functions come and go with the pods that get them; physical ones do not."""
        now_here = {port.pci for port in self._known.ports if not port.parent}
        self._present |= now_here
        return [Reading(pci, "ib.present", "yes" if pci in now_here else "no") for pci in sorted(self._present)]


class InfinibandCounters:
    """
    What ports count. Only counters that a rule is about, each opened for its read: that is cheap at this pace, and no
    descriptor can be stale.
    """

    source = "infiniband-counters"
    every = timedelta(seconds=10)

    def __init__(self, sys: Path = SYS, read: Read = read_text, wanted: frozenset[str] = COUNTERS) -> None:
        self._sys = sys
        self._known = _Ports(sys)
        self._patient = Patient(read)
        self._read = read
        self._wanted = wanted
        self._files: list[tuple[Port, list[tuple[str, str, str, str]]]] = []

    def look(self, now: datetime) -> Look:
        """What every counter shows now."""
        try:
            if self._known.refresh(now):
                self._files = [(port, list(self._files_of(port))) for port in self._known.ports]
        except OSError as error:
            return Look(source=self.source, at=now, trouble=trouble_with(error))
        active = {port.key: port for port in self._known.ports if self._is_active(port)}
        physical = {port.key for port in self._known.ports if not port.parent}
        readings = [
            reading
            for port, files in self._files
            # A wire that is down is the physical function's to tell, and so is all that its virtual ones suffer by it.
            if port.parent_key not in physical or port.parent_key in active
            for reading in self._read_port(port, files, now)
        ]
        readings += self._read_rates([port for port in active.values() if port.family is not Family.EFA])
        readings += self._read_verbs()
        return Look(source=self.source, at=now, readings=readings)

    def _files_of(self, port: Port) -> Iterator[tuple[str, str, str, str]]:
        """Folder, file, name of the reading and its part. What is there is listed, never assumed."""
        if not port.parent and port.family is not Family.EFA:  # the wire is the physical function's
            yield from self._wanted_in(f"{port.folder}/counters", Family.IB, port.part)
        yield from self._wanted_in(f"{port.folder}/hw_counters", port.family, port.part)
        if port.number == 1:
            device = port.folder.removesuffix("/ports/1")
            yield from self._wanted_in(f"{device}/hw_counters", port.family, "")

    def _wanted_in(self, folder: str, prefix: str, part: str) -> Iterator[tuple[str, str, str, str]]:
        for name in names_in(folder):
            if f"{prefix}.{name}" in self._wanted or (folder.endswith("/counters") and name in RANGES):
                yield folder, name, f"{prefix}.{name}", part

    def _read_port(self, port: Port, files: Sequence[tuple[str, str, str, str]], now: datetime) -> Iterator[Reading]:
        full = []
        for folder, name, reading, part in files:
            value = self._patient.number(folder, name, now)
            if value is None:
                continue
            if name != "link_downed":  # told every second by the other probe
                yield Reading(port.pci, reading, value, part)
            if folder.endswith("/counters") and value == (1 << RANGES.get(name, 64)) - 1:
                full.append(name)
        if any(folder.endswith("/counters") for folder, *_ in files):
            yield Reading(port.pci, "ib.saturated", ", ".join(full) or "none", port.part)

    def _read_rates(self, active: Sequence[Port]) -> Iterator[Reading]:
        rates = {port.key: rate for port in active if (rate := parse_rate(self._text(port, "rate")))}
        kinds: dict[str, Counter[float]] = {}
        for port in active:
            if port.key in rates:
                kinds.setdefault(self._known.kind(port), Counter())[rates[port.key]] += 1
        for port in active:
            if port.key in rates:
                yield Reading(port.pci, "ib.rate", rates[port.key], port.part)
                if most := usual(kinds[self._known.kind(port)]):
                    yield Reading(port.pci, "ib.peer_rate", most, port.part)

    def _read_verbs(self) -> list[Reading]:
        usable = read_usable(self._sys)
        devices = {port.pci: port.device for port in self._known.ports if usable}
        return [Reading(pci, "ib.verbs", "yes" if device in usable else "no") for pci, device in devices.items()]

    def _is_active(self, port: Port) -> bool:
        return parse_state(self._text(port, "state")).startswith("ACTIVE")

    def _text(self, port: Port, name: str) -> str:
        try:
            return self._read(f"{port.folder}/{name}")
        except OSError:
            return ""
