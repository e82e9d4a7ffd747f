"""An overview of the devices of a machine: what samples of several sources show of each GPU and RDMA port. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from healthd.core.api import Nic
from healthd.core.diagnosis.readings import NODE, Sample

Value = float | str
Places = Mapping[str, Mapping[tuple[str, str], Value]]
"""By the reading's name, then by device and part."""

_KEEPS = ("ecc.uncorrected", "row_remap.pending", "row_remap.failure", "processes")


class GpuInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One GPU. What is not reported is null."""

    pci: str
    index: int | None = None
    uuid: str = ""
    name: str = ""
    state: str
    """
    `ok`, `lost`, `reset-required`, `error`: NVML's word. `missing`: NVML should list it. Else by the PCI bus: `gone`,
    `silent`, `no driver`, `driver <another>`, `not read`, or `not given` to this container.
    """
    temperature_c: float | None = None
    ecc_uncorrected: float | None = None
    """Since the GPU was last reset."""
    remap: str | None = None
    """Of memory rows: `ok`, `pending` a reset, or `failed`."""
    nvlinks_up: int | None = None
    nvlinks: int | None = None
    pcie_width: float | None = None
    pcie_full_width: float | None = None
    pcie_generation: float | None = None
    """The best that both ends can do: an idle GPU runs slower."""
    processes: float | None = None


class PortInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One RDMA port."""

    device: str
    port: int
    pci: str
    family: str
    netdev: str = ""
    rail: int | None = None
    state: str
    """A word of `healthd.core.diagnosis.link_state.Link`, or the kernel's own where the port has no `ib.link`."""
    rate_gbps: float = 0


def by_name(samples: Iterable[Sample]) -> Places:
    """All readings of *samples*."""
    places: dict[str, dict[tuple[str, str], Value]] = {}
    for sample in samples:
        for reading in sample.readings:
            places.setdefault(reading.name, {})[reading.device, reading.part] = reading.value
    return places


def gpus(places: Places) -> list[GpuInfo]:
    """Every GPU in NVML or on the PCI bus, in the order of NVML and then of the bus."""
    known = {pci for name in ("nvml.listed", "nvml.state", "pcie.gpu_state") for pci, _ in places.get(name, {})}
    return sorted((_gpu(pci, places) for pci in known), key=_order)


def ports(nics: Sequence[Nic], places: Places) -> list[PortInfo]:
    """Every physical RDMA port."""
    return [_port(nic, places) for nic in nics if not nic.parent]


def machine(places: Places) -> list[str]:
    """The rest of the machine, in a few words for each part."""
    return list(_machine(places))


def value(places: Places, name: str, device: str, part: str = "") -> Value | None:
    """One reading."""
    return places.get(name, {}).get((device, part))


def number(places: Places, name: str, device: str, part: str = "") -> float | None:
    """One reading that is a number."""
    found = value(places, name, device, part)
    return found if isinstance(found, int | float) else None


def parts(places: Places, name: str, device: str) -> dict[str, Value]:
    """The reading of each part of *device*."""
    return {part: found for (where, part), found in places.get(name, {}).items() if where == device}


def _gpu(pci: str, places: Places) -> GpuInfo:
    index = number(places, "nvml.index", pci)
    links = parts(places, "nvml.nvlink.up", pci)
    ecc, pending, failed, processes = (number(places, f"nvml.{name}", pci) for name in _KEEPS)
    return GpuInfo(
        pci=pci,
        index=None if index is None else int(index),
        uuid=str(value(places, "nvml.uuid", pci) or ""),
        name=str(value(places, "nvml.product", pci) or ""),
        state=_state(pci, places),
        temperature_c=number(places, "nvml.temperature", pci),
        ecc_uncorrected=ecc,
        remap=None if pending is None and failed is None else "failed" if failed else "pending" if pending else "ok",
        nvlinks_up=sum(up == 1 for up in links.values()) if links else None,
        nvlinks=len(links) or None,
        pcie_width=_first(places, pci, "nvml.pcie.width", "pcie.gpu_width"),
        pcie_full_width=_first(places, pci, "nvml.pcie.width.most", "pcie.gpu_full_width"),
        pcie_generation=number(places, "nvml.pcie.generation.most", pci),
        processes=processes,
    )


def _first(places: Places, pci: str, *names: str) -> float | None:
    return next((found for name in names if (found := number(places, name, pci)) is not None), None)


def _state(pci: str, places: Places) -> str:
    if state := value(places, "nvml.state", pci):
        return str(state)
    on_bus = str(value(places, "pcie.gpu_state", pci) or "")
    driver = str(value(places, "pcie.gpu_driver", pci) or "")
    if value(places, "nvml.listed", pci) == "no" and on_bus in {"", "present"}:
        return "missing"
    if on_bus != "present":
        return on_bus or "unknown"
    if driver != "nvidia":
        return f"driver {driver}" if driver not in {"", "none"} else "no driver"
    return "not given" if places.get("nvml.state") else "not read"


def _order(gpu: GpuInfo) -> tuple[float, str]:
    return (float("inf") if gpu.index is None else gpu.index, gpu.pci)


def _port(nic: Nic, places: Places) -> PortInfo:
    part = f"port {nic.port}"
    state = value(places, "ib.link", nic.pci, part) or value(places, "ib.state", nic.pci, part)
    rate = number(places, "ib.rate", nic.pci, part)
    return PortInfo(
        device=nic.device,
        port=nic.port,
        pci=nic.pci,
        family=nic.family,
        netdev=nic.netdev,
        rail=nic.rail,
        state=str(state or "not reported"),
        rate_gbps=nic.rate_gbps if rate is None else rate,
    )


def _machine(places: Places) -> Iterator[str]:
    if (memory := number(places, "host.memory_kb", NODE)) is not None:
        yield f"memory {memory / (1 << 20):,.0f} GiB"
    if clock := value(places, "host.clock", NODE):
        yield f"clock {clock}"
    if disks := places.get("disk.writable"):
        broken = sorted(part or device for (device, part), writable in disks.items() if not writable)
        yield f"{len(disks)} disk{'' if len(disks) == 1 else 's'}" + (
            f", read-only: {', '.join(broken)}" if broken else ""
        )
    for (_, part), free in places.get("filesystem.free_bytes", {}).items():
        yield f"{float(free) / (1 << 30):,.0f} GiB free for {part}"
    if ethernet := places.get("eth.link"):
        up = sum(state == "up" for state in ethernet.values())
        yield f"{up} of {len(ethernet)} Ethernet ports up"
    margins = [float(margin) for margin in places.get("thermal.margin_c", {}).values()]
    if margins:
        yield f"the hottest of {len(margins)} sensors {min(margins):.0f} °C below its limit"
