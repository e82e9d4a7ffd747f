"""
Whether RDMA ports are up, by `/sys/class/infiniband`.

Readings, by the function's address and `port N`:

- `ib.link`: a word of `healthd.core.diagnosis.link_state.Link`, from `ib.state` and `ib.phys_state`, the kernel's own
words;
- `ib.rail_link`: `up` or `down` where one of both is certain and a GPU's traffic goes through the port; a link that was
down is good again only once it is seen to be up;
- `ib.link_downed`: how often the link was lost while the port was not switched off on this side;
- `ib.present`: `no` once a physical device that was listed no longer is, without a part;
- `ib.devices` of the node: how many physical devices were listed in this run of the agent;
- `ib.ports_up` and `ib.ports_up.expected` of the node, where the configuration sets how many must be up.

EFA's driver reports every port as active, whatever happens, so its state is not read. Neither are virtual functions
whose physical one is visible: the wire belongs to the physical one, and the program that gives functions to pods
switches them on and off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from healthd.core.diagnosis.link_state import LinkState, PortSeen, judge_links
from healthd.core.diagnosis.readings import NODE, Reading, Sample
from healthd.probes.nics.counter_files import BackingOffReader, Read, is_full
from healthd.probes.nics.netdevs import is_set_up
from healthd.probes.nics.rdma import SYS, Family, Ports, RdmaPort, parse_state
from healthd.probes.pace import pace
from healthd.probes.sysfs import KeptOpen, read_number, read_word, trouble_with


class _PortState(NamedTuple):
    """The kernel's words for one port. *downed*: how often its link was lost, where that is counted."""

    state: str
    phys_state: str
    downed: float | None


class _LostLinks:
    """Counts how often the link of one port was lost. Losses that come from switching the port off do not count."""

    def __init__(self) -> None:
        self._before: float | None = None
        self._meant = 0.0

    def count(self, downed: float, *, is_off: bool) -> float:
        """The losses that count, of the *downed* that the device has counted. *is_off*: the port is switched off."""
        before = downed if self._before is None else self._before
        if is_off:
            self._meant += max(downed - before, 0)
        elif max(before, downed) < self._meant:  # in two samples, so it is no glitch: the driver was loaded anew
            self._meant = 0.0
        self._before = downed
        return max(downed - self._meant, 0)


class Infiniband:
    """Whether ports are up. Keeps its few files open, so that a sample costs microseconds of the agent's time."""

    source = "infiniband"

    def __init__(self, sys: Path = SYS, read: Read | None = None, *, expected: int | None = None) -> None:
        """*expected*: how many ports must be up, where the configuration sets that."""
        self._expected = expected
        self._sys = str(sys)
        self._known = Ports(sys)
        self._kept = KeptOpen()
        self._read = read or self._kept
        self._patient = BackingOffReader(self._read)
        self._present: set[str] = set()
        self._were_up: set[str] = set()
        self._lost_links: dict[str, _LostLinks] = {}

    @property
    def every(self) -> timedelta:
        """Every second, where there is a port, was one, or should be one."""
        has_devices = bool(self._known.physical or self._present or self._expected)
        return pace(timedelta(seconds=1), has_devices=has_devices)

    def sample(self, now: datetime) -> Sample:
        """The state of every port now."""
        try:
            if self._known.refresh(now):
                self._kept.close()  # files of devices that are gone, or are back under the same name
        except OSError as error:
            return Sample(source=self.source, at=now, trouble=trouble_with(error))
        ports = [port for port in self._known.physical if port.family is not Family.EFA]
        read = [(port, self._read_state(port, now)) for port in ports]
        readable = [(port, state_read) for port, state_read in read if state_read]
        unread = ", ".join(f"{port.device} {port.part}" for port, state_read in read if not state_read)
        links = judge_links({port.key: self._seen(port, state_read) for port, state_read in readable})
        readings = [
            reading for port, state_read in readable for reading in self._readings(port, state_read, links[port.key])
        ]
        return Sample(
            source=self.source,
            at=now,
            readings=[*readings, *self._read_presence(), *self._counted(links.values())],
            unread=f"the state of {unread} is not readable or none that there is" if unread else "",
        )

    def _read_state(self, port: RdmaPort, now: datetime) -> _PortState | None:
        """None where they cannot be read or are not the kernel's: an unreadable port is not down."""
        try:
            state = parse_state(self._read(f"{port.folder}/state"))
            phys_state = parse_state(self._read(f"{port.folder}/phys_state"))
        except OSError:
            return None
        if not state or not phys_state:
            return None
        downed = self._patient.number(f"{port.folder}/counters", "link_downed", now)
        return _PortState(state, phys_state, None if downed is None or is_full("link_downed", downed) else downed)

    def _readings(self, port: RdmaPort, state_read: _PortState, link: LinkState) -> Iterator[Reading]:
        yield Reading(port.pci, "ib.state", state_read.state, port.part)
        yield Reading(port.pci, "ib.phys_state", state_read.phys_state, port.part)
        yield Reading(port.pci, "ib.link", link, port.part)
        if self._known.is_on_rail(port) and link in {LinkState.UP, LinkState.DOWN}:
            yield Reading(port.pci, "ib.rail_link", link, port.part)
        if state_read.downed is not None:
            lost = self._lost_links.setdefault(port.key, _LostLinks())
            is_off = link is LinkState.DISABLED and self._is_seen_off(port)
            downed = lost.count(state_read.downed, is_off=is_off)
            yield Reading(port.pci, "ib.link_downed", downed, port.part)

    def _seen(self, port: RdmaPort, state_read: _PortState) -> PortSeen:
        if state_read.state.startswith("ACTIVE") or state_read.downed or self._had_carrier(port):
            self._were_up.add(port.key)
        return PortSeen(
            state=state_read.state,
            phys_state=state_read.phys_state,
            is_off=self._is_off(port, state_read),
            kind=self._known.kind(port),
            was_up=port.key in self._were_up,
            on_rail=self._known.is_on_rail(port),
        )

    def _is_off(self, port: RdmaPort, state_read: _PortState) -> bool:
        """
        Drivers of RoCE report every port without a carrier as Disabled, so its interface is checked. An interface that
        is not visible (it may be in the network namespace of a pod) is no evidence of a fault.
        """
        if state_read.phys_state != "Disabled" or port.family is not Family.ROCE:
            return state_read.phys_state == "Disabled"
        return not is_set_up(f"{self._sys}/class/net/{port.netdev}")

    def _is_seen_off(self, port: RdmaPort) -> bool:
        """False where its interface is not visible: then a lost cable looks the same."""
        if port.family is not Family.ROCE:
            return True
        return bool(port.netdev and read_word(f"{self._sys}/class/net/{port.netdev}/flags"))

    def _had_carrier(self, port: RdmaPort) -> bool:
        """Some drivers do not count lost links, but every interface counts its carrier changes."""
        if port.key in self._were_up or not port.netdev:
            return False
        return read_number(f"{self._sys}/class/net/{port.netdev}/carrier_up_count") not in {None, 0}

    def _counted(self, links: Iterable[LinkState]) -> Iterator[Reading]:
        """EFA's driver reports no link state: its ports count as up while they are present."""
        efa = sum(port.family is Family.EFA for port in self._known.physical)
        if self._expected is not None:
            yield Reading(NODE, "ib.ports_up", efa + sum(link is LinkState.UP for link in links))
            yield Reading(NODE, "ib.ports_up.expected", self._expected)

    def _read_presence(self) -> list[Reading]:
        """Virtual functions come and go with the pods that get them. Physical ones do not."""
        now_here = {port.pci for port in self._known.physical if not port.parent}
        self._present |= now_here
        readable = [Reading(pci, "ib.present", "yes" if pci in now_here else "no") for pci in sorted(self._present)]
        return [*readable, Reading(NODE, "ib.devices", len(readable))] if readable else []
