"""
What RDMA ports count, by `/sys/class/infiniband`: the counters that a rule is about, and no others.

Readings, by the function's address and `port N`:

- `ib.<counter>`: a file of `counters/`; and of `hw_counters/` with the family's name in front: `ib.`, `roce.`, `efa.`;
- `ib.saturated`: counters that stand at the end of their range and count no more, or `none`;
- `ib.rate`, `ib.peer_rate`: Gb/s of an active port, and of most active ports of its kind; `ib.rate.expected` where the
configuration sets it;
- `ib.verbs`: `no` for a device that programs cannot open, without a part, where the kernel lists those that they can.

Files are opened for each read: that is cheap at this pace, and no descriptor can be stale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from healthd.core.diagnosis.link_state import usual
from healthd.core.diagnosis.readings import NODE, Reading, Sample
from healthd.core.diagnosis.signals.nics import efa, infiniband, roce
from healthd.core.diagnosis.signals.rule import Grows, OutOfLine
from healthd.probes.nics.counter_files import RANGES, BackingOffReader, Read, is_full
from healthd.probes.nics.rdma import SYS, Family, Ports, RdmaPort, parse_rate, parse_state, read_usable
from healthd.probes.sysfs import names_in, read_text, trouble_with

_RULES = (*infiniband.RULES, *roce.RULES, *efa.RULES)
COUNTERS = frozenset(rule.reads for rule in _RULES if isinstance(rule.test, Grows | OutOfLine))
"""Only what a rule judges is read: each read is a query to firmware."""


class _File(NamedTuple):
    """A counter's file in *folder*, and the name and part of its reading."""

    folder: str
    name: str
    reading: str
    part: str


class InfinibandCounters:
    """The counters of physical ports, and their rates."""

    source = "infiniband-counters"
    every = timedelta(seconds=10)

    def __init__(
        self,
        sys: Path = SYS,
        read: Read = read_text,
        wanted: frozenset[str] = COUNTERS,
        *,
        expected_rate: float | None = None,
    ) -> None:
        """*expected_rate*: Gb/s of every port, where the configuration sets it."""
        self._expected_rate = expected_rate
        self._sys = sys
        self._known = Ports(sys)
        self._patient = BackingOffReader(read)
        self._read = read
        self._wanted = wanted
        self._files: list[tuple[RdmaPort, list[_File]]] = []

    def sample(self, now: datetime) -> Sample:
        """The value of every counter now."""
        try:
            if self._known.refresh(now):
                self._files = [(port, list(self._files_of(port))) for port in self._known.physical]
        except OSError as error:
            return Sample(source=self.source, at=now, trouble=trouble_with(error))
        readings = [reading for port, files in self._files for reading in self._read_port(port, files, now)]
        return Sample(source=self.source, at=now, readings=[*readings, *self._read_rates(), *self._read_verbs()])

    def _files_of(self, port: RdmaPort) -> Iterator[_File]:
        """Existing files are listed, never assumed."""
        if port.family is not Family.EFA:
            folder = f"{port.folder}/counters"
            for name in names_in(folder):
                if name in RANGES or f"{Family.IB}.{name}" in self._wanted:
                    yield _File(folder, name, f"{Family.IB}.{name}", port.part)
        yield from _hardware(port, self._wanted)

    def _read_port(self, port: RdmaPort, files: Sequence[_File], now: datetime) -> Iterator[Reading]:
        full = []
        for file in files:
            value = self._patient.number(file.folder, file.name, now)
            if value is None:
                continue
            if is_full(file.name, value):
                full.append(file.name)
            elif file.name != "link_downed":  # the other probe reports it every second
                yield Reading(port.pci, file.reading, value, file.part)
        if any(file.name in RANGES for file in files):
            yield Reading(port.pci, "ib.saturated", ", ".join(full) or "none", port.part)

    def _read_rates(self) -> Iterator[Reading]:
        asked = [
            port for port in self._known.physical if port.family is not Family.EFA and _is_active(port, self._read)
        ]
        rates = {port.key: rate for port in asked if (rate := parse_rate(_text(port, "rate", self._read)))}
        active = [port for port in asked if port.key in rates]
        kinds: dict[str, Counter[float]] = {}
        for port in active:
            kinds.setdefault(self._known.kind(port), Counter())[rates[port.key]] += 1
        for port in active:
            yield Reading(port.pci, "ib.rate", rates[port.key], port.part)
            if self._expected_rate is not None:
                yield Reading(port.pci, "ib.rate.expected", self._expected_rate, port.part)
            if most := usual(kinds[self._known.kind(port)]):
                yield Reading(port.pci, "ib.peer_rate", most, port.part)

    def _read_verbs(self) -> list[Reading]:
        usable = read_usable(self._sys)
        devices = {port.pci: port.device for port in self._known.physical if usable}
        return [Reading(pci, "ib.verbs", "yes" if device in usable else "no") for pci, device in devices.items()]


class VirtualFunctions:
    """
    The counters of virtual functions for their own transport. There may be a hundred, so they are sampled rarely.

    A virtual function whose physical one is down has no readings: the rules about the physical one cover the effects,
    and its own series starts anew.
    """

    source = "infiniband-virtual"
    every = timedelta(minutes=1)

    def __init__(self, sys: Path = SYS, read: Read = read_text, wanted: frozenset[str] = COUNTERS) -> None:
        self._known = Ports(sys)
        self._patient = BackingOffReader(read)
        self._read = read
        self._wanted = wanted

    def sample(self, now: datetime) -> Sample:
        """The value of every counter now."""
        try:
            self._known.refresh(now)
        except OSError as error:
            return Sample(source=self.source, at=now, trouble=trouble_with(error))
        active = {port.key for port in self._known.physical if self._known.virtual and _is_active(port, self._read)}
        readings = [
            Reading(port.pci, file.reading, value, file.part)
            for port in self._known.virtual
            if port.parent_key in active
            for file in _hardware(port, self._wanted)
            if (value := self._patient.number(file.folder, file.name, now)) is not None
        ]
        if self._known.physical:
            # They come and go with the pods that get them: that there are none is an answer too.
            readings.append(Reading(NODE, "ib.virtual_functions", len(self._known.virtual)))
        return Sample(source=self.source, at=now, readings=readings)


def _hardware(port: RdmaPort, wanted: frozenset[str]) -> Iterator[_File]:
    """The files of `hw_counters/`: some drivers count at the port, some at the device, some at both."""
    folders = [(f"{port.folder}/hw_counters", port.part)]
    if port.number == 1:
        folders.append((f"{port.folder.removesuffix('/ports/1')}/hw_counters", ""))
    for folder, part in folders:
        for name in names_in(folder):
            if f"{port.family}.{name}" in wanted:
                yield _File(folder, name, f"{port.family}.{name}", part)


def _is_active(port: RdmaPort, read: Read) -> bool:
    return parse_state(_text(port, "state", read)).startswith("ACTIVE")


def _text(port: RdmaPort, name: str, read: Read) -> str:
    try:
        return read(f"{port.folder}/{name}")
    except OSError:
        return ""
