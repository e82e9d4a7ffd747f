"""
PCI Express as sysfs shows it: GPUs, RDMA devices, NVMe disks, and the bridges on their way to the processor.

Everything here may be read without privileges, also in a container: /sys/bus/pci and /sys/devices have no namespaces.
Three probes, because a lost device matters at once, an error counter within a minute, and a setting once an hour.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from healthd.core.diagnosis.readings import NODE, Reading, Sample
from healthd.probes.pci.config_space import redirects_peers
from healthd.probes.sysfs import link_name, names_in, parse_number, read_bytes, read_lines, read_number, read_word

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NVIDIA = 0x10DE
_ALL_ONES = b"\xff\xff\xff\xff"
"""The result of reading a device that is not there: no vendor has this number."""

_LINK_ERRORS = frozenset({"RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout"})
"""Correctable errors that a bad link makes. The others (advisory, internal) also come from software that probes."""


class FunctionKind(StrEnum):
    """What a watched function is; part of the names of its readings."""

    GPU = "gpu"
    SWITCH = "switch"
    """An NVSwitch."""
    RDMA = "rdma"
    NVME = "nvme"
    UPLINK = "uplink"
    """The upper link of a PCIe switch, which several of the others share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One PCI function at the lower end of a link. *full_…* is what both ends of the link can do; 0: not reported."""

    address: str
    kind: FunctionKind
    path: str
    full_width: int
    full_speed: float
    """Giga-transfers a second."""
    upper: str
    """The port at the upper end of the link; empty where there is none, as in most virtual machines."""
    part: str = ""


class Bus:
    """The functions worth watching under *sys*. Keeps what does not change, so that listing them again is cheap."""

    def __init__(self, sys: Path) -> None:
        self._folder = sys / "bus" / "pci" / "devices"
        self._known: dict[str, Function] = {}
        self._others: set[str] = set()
        """Never worth watching, whatever driver is loaded later."""
        self._uplinks: dict[str, Function] = {}
        self.trouble = ""
        """Why the last answer cannot be the whole bus, for a machine that has one."""

    def functions(self) -> dict[str, Function]:
        """Those that are there now, by address. Without a bus there are none."""
        there = [name for name in names_in(str(self._folder)) if _ADDRESS.fullmatch(name)]
        self.trouble = "" if there else f"{self._folder} lists no device at all: mount the host's /sys there"
        self._others &= set(there)
        self._known = {name: function for name, function in self._known.items() if name in there}
        for name in there:
            if name not in self._known and name not in self._others:
                self._meet(name)
        return dict(self._known)

    def uplinks(self) -> list[Function]:
        """The upper links of the PCIe switches above the results of `functions`."""
        return list(self._uplinks.values())

    def _meet(self, name: str) -> None:
        path = (self._folder / name).resolve()
        kind = _kind(path)
        if kind is not None:
            self._known[name] = function = _function(path, kind)
            self._add_uplinks(function)
        elif not _is_network(path) or (path / "physfn").exists():
            self._others.add(name)

    def _add_uplinks(self, function: Function) -> None:
        """Above a function behind a switch stand a downstream port, the upstream port (a lower end), a root port."""
        way = [parent for parent in Path(function.path).parents if _ADDRESS.fullmatch(parent.name)]
        for port in way[1:-1:2]:
            name = f"the switch above {function.address}"
            self._uplinks.setdefault(port.name, _function(port, FunctionKind.UPLINK, part=name))


class PcieLinks:
    """
    Whether devices are there and answer, and how wide and fast their links are.

    *expected*: addresses that an earlier agent saw in GPUs and RDMA devices, with their kind. Readings:
    `pcie.<kind>_state` (`present`, `silent`: does not answer, `gone`: was there before), `pcie.<kind>_driver` of GPUs
    (a name or `none`), `pcie.<kind>_width` (lanes) and `pcie.<kind>_speed` (GT/s), each with `…_full_…`, what both ends
    can do; and of the node `pcie.gpus`, how many this boot showed. No speed for GPUs: they slow their links when idle.
    """

    source = "pcie"
    every = timedelta(seconds=10)

    def __init__(self, sys: Path = Path("/sys"), expected: Iterable[tuple[str, FunctionKind]] = ()) -> None:
        self._bus = Bus(sys)
        self._seen = dict(expected)

    def sample(self, now: datetime) -> Sample:
        """Costs a few config space reads for each device."""
        functions = self._bus.functions()
        if self._seen and self._bus.trouble:  # a bus never loses all its devices at once
            return Sample(source=self.source, at=now, trouble=self._bus.trouble)
        self._seen.update({function.address: function.kind for function in functions.values()})
        readings = [
            Reading(address, f"pcie.{kind}_state", "gone")
            for address, kind in self._seen.items()
            if address not in functions
        ]
        if not self._bus.trouble:
            gpus = sum(kind is FunctionKind.GPU for kind in self._seen.values())
            readings.append(Reading(NODE, "pcie.gpus", gpus))
        for function in functions.values():
            readings += _read_function(function)
        for uplink in self._bus.uplinks():
            readings += _read_link(uplink)
        return Sample(source=self.source, at=now, readings=readings)


class PcieErrors:
    """
    Error counters of Advanced Error Reporting at both ends of each watched link.

    Readings, each a count since boot: `pcie.aer_correctable` by error (part), `pcie.aer_nonfatal` without unsupported
    requests, which software causes, and `pcie.aer_fatal`. No readings where the firmware keeps AER to itself.
    """

    source = "pcie-aer"
    every = timedelta(seconds=30)

    def __init__(self, sys: Path = Path("/sys")) -> None:
        self._bus = Bus(sys)

    def sample(self, now: datetime) -> Sample:
        """Reads three small files for each end."""
        watched = [*self._bus.functions().values(), *self._bus.uplinks()]
        ends = {function.path for function in watched} | {function.upper for function in watched if function.upper}
        readings = [reading for end in sorted(ends) for reading in _read_aer(end)]
        return Sample(source=self.source, at=now, readings=readings)


class PcieAdvice:
    """
    Settings that slow GPUDirect down.

    `pcie.iommu`: the kind of IOMMU domain of each GPU and RDMA device (`identity`, `DMA`, `DMA-FQ`, …); absent without
    an IOMMU. `pcie.acs_redirect` of the ports above them: `on` where peer-to-peer traffic is sent up to the processor.
    The latter lies beyond the first 64 bytes of the config space, which only CAP_SYS_ADMIN may read.

    *kernel*: /sys/kernel, where it is not below *sys*.
    """

    source = "pcie-advice"
    every = timedelta(hours=1)

    def __init__(self, sys: Path = Path("/sys"), kernel: Path | None = None) -> None:
        self._bus = Bus(sys)
        self._groups = (kernel or sys / "kernel") / "iommu_groups"

    def sample(self, now: datetime) -> Sample:
        """Reads config spaces of up to 4 KiB."""
        watched = [
            function
            for function in self._bus.functions().values()
            if function.kind in {FunctionKind.GPU, FunctionKind.RDMA}
        ]
        readings = [
            Reading(function.address, "pcie.iommu", domain)
            for function in watched
            if (domain := self._domain(function))
        ]
        for port in sorted({function.upper for function in watched if function.upper}):
            redirects = redirects_peers(read_bytes(f"{port}/config", 4096))
            if redirects is not None:
                readings.append(Reading(Path(port).name, "pcie.acs_redirect", "on" if redirects else "off"))
        return Sample(source=self.source, at=now, readings=readings)

    def _domain(self, function: Function) -> str:
        group = link_name(f"{function.path}/iommu_group")
        return read_word(f"{self._groups}/{group}/type") if group else ""


def _kind(path: Path) -> FunctionKind | None:
    """None: not worth watching. A virtual function has no link of its own."""
    if (path / "physfn").exists():
        return None
    code = _class(path)
    is_nvidia = read_number(f"{path}/vendor") == _NVIDIA
    if code in {0x0302, 0x1200} or (code == 0x0300 and is_nvidia):
        return FunctionKind.GPU
    if code == 0x0680 and is_nvidia:
        return FunctionKind.SWITCH
    if code == 0x0108:
        return FunctionKind.NVME
    # Clouds plug and unplug ordinary network cards as pods come and go; RDMA devices stay.
    return FunctionKind.RDMA if _is_network(path) and (path / "infiniband").exists() else None


def _class(path: Path) -> int:
    """Class and subclass, as in `pci.ids`."""
    return (read_number(f"{path}/class") or 0) >> 8


def _is_network(path: Path) -> bool:
    return _class(path) >> 8 == 0x02


def _function(path: Path, kind: FunctionKind, part: str = "") -> Function:
    upper = path.parent if _ADDRESS.fullmatch(path.parent.name) else None
    ends = [path, upper] if upper else [path]
    widths = [width for end in ends if 0 < (width := _width(f"{end}/max_link_width")) < _UNKNOWN_WIDTH]
    speeds = [speed for end in ends if (speed := _speed(f"{end}/max_link_speed"))]
    return Function(
        address=path.name,
        kind=kind,
        path=str(path),
        full_width=min(widths, default=0),
        full_speed=min(speeds, default=0.0),
        upper=str(upper) if upper else "",
        part=part,
    )


def _read_function(function: Function) -> Iterator[Reading]:
    is_silent = _is_silent(function)
    yield Reading(function.address, f"pcie.{function.kind}_state", "silent" if is_silent else "present")
    if is_silent:
        return
    if function.kind is FunctionKind.GPU:
        yield Reading(function.address, "pcie.gpu_driver", link_name(f"{function.path}/driver") or "none")
    yield from _read_link(function)


def _is_silent(function: Function) -> bool:
    """A device that sleeps gives all ones too. Reading its config space could wake it, so it is not read."""
    if read_word(f"{function.path}/power/runtime_status") in {"suspended", "suspending", "resuming"}:
        return False
    return read_bytes(f"{function.path}/config", 4) == _ALL_ONES


_UNKNOWN_WIDTH = 63
"""All bits of the field: the register could not be read."""


def _read_link(function: Function) -> Iterator[Reading]:
    name = f"pcie.{function.kind}"
    width = _width(f"{function.path}/current_link_width")
    if function.full_width and 0 < width < _UNKNOWN_WIDTH:
        yield Reading(function.address, f"{name}_width", width, function.part)
        yield Reading(function.address, f"{name}_full_width", function.full_width, function.part)
    if function.kind is FunctionKind.GPU:
        return
    speed = _speed(f"{function.path}/current_link_speed")
    if function.full_speed and speed:
        yield Reading(function.address, f"{name}_speed", speed, function.part)
        yield Reading(function.address, f"{name}_full_speed", function.full_speed, function.part)


def _width(path: str) -> int:
    return read_number(path) or 0


def _speed(path: str) -> float:
    """`16.0 GT/s PCIe`, `8 GT/s` of older kernels, `Unknown`."""
    number, _, unit = read_word(path).partition(" ")
    try:
        return float(number) if unit.startswith("GT/s") else 0.0
    except ValueError:
        return 0.0


def _read_aer(end: str) -> Iterator[Reading]:
    address = end.rpartition("/")[2]
    for error, count in _counts(f"{end}/aer_dev_correctable").items():
        if error in _LINK_ERRORS:
            yield Reading(address, "pcie.aer_correctable", count, error)
    if nonfatal := _counts(f"{end}/aer_dev_nonfatal"):
        errors = nonfatal.get("TOTAL_ERR_NONFATAL", 0) - nonfatal.get("UnsupReq", 0)
        yield Reading(address, "pcie.aer_nonfatal", max(errors, 0))
    if fatal := _counts(f"{end}/aer_dev_fatal"):
        yield Reading(address, "pcie.aer_fatal", fatal.get("TOTAL_ERR_FATAL", 0))


def _counts(path: str) -> dict[str, int]:
    """Lines such as `BadTLP 0`."""
    pairs = [line.split() for line in read_lines(path)]
    return {pair[0]: count for pair in pairs if len(pair) == 2 and (count := parse_number(pair[1])) is not None}
