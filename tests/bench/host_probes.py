"""
What looking at the machine around the GPUs costs: `python -m tests.bench.host_probes [--minutes N]`.

A machine with eight GPUs, eight NICs and eight disks behind four PCIe switches, 300 other PCI functions, 32 memory
modules, 96 sensors and a dcgm-exporter is laid out in a folder. Every probe looks at it at its own pace, in simulated
time; the engine with all rules about it takes each look. The clock is the CPU time of this process, from before the
first look to after the last. A read of a file in /sys instead of one in a folder, and the network, are not in it.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from healthd.agent.probing import Probe
from healthd.core.diagnosis.signals import host, pcie
from healthd.core.diagnosis.signals.engine import Engine
from healthd.core.diagnosis.signals.gpus import dcgm
from healthd.probes.dcgm.exporter import Dcgm
from healthd.probes.dcgm.fields import NUMBERS, PULSE
from healthd.probes.host.disks import Disks, FileSystems
from healthd.probes.host.edac import Edac
from healthd.probes.host.machine import Host
from healthd.probes.host.services import Services
from healthd.probes.host.thermal import Thermal
from healthd.probes.pci.pcie import PcieAdvice, PcieErrors, PcieLinks
from tests.bench._figures import machine
from tests.probes.pci.tree import (
    BRIDGE_CLASS,
    BROADCOM,
    DISK_CLASS,
    GPU_CLASS,
    MELLANOX,
    NIC_CLASS,
    NVIDIA,
    SAMSUNG,
    PciTree,
)

GPUS = {f"GPU-{number}": f"0000:{number:02x}:00.0" for number in range(8)}
BEHIND_A_SWITCH = [(GPU_CLASS, NVIDIA), (NIC_CLASS, MELLANOX), (DISK_CLASS, SAMSUNG)] * 2


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=10)
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory() as folder:
        sys = Path(folder)
        lay_out(sys)
        costs = {probe.source: cost(probe, timedelta(minutes=minutes)) for probe in probes(sys)}
    reported = {"percent_of_a_core": costs, "all": round(sum(costs.values()), 4)}
    print(json.dumps({**reported, "simulated_minutes": minutes, "machine": machine()}, indent=2))
    return 0


def probes(sys: Path) -> list[Probe]:
    """All of them; what stands in /proc and on disks is this machine's own."""
    links, errors, advice = PcieLinks(sys), PcieErrors(sys), PcieAdvice(sys)
    exporter = Dcgm("http://exporter/metrics", gpus=lambda: GPUS, fetch=pages())
    return [links, errors, advice, Host(), Disks(), FileSystems(), Thermal(sys), Services(sys), Edac(sys), exporter]


def cost(probe: Probe, span: timedelta) -> float:
    """Per cent of a core that its looks and their judgement need at its pace."""
    engine = Engine([*pcie.RULES, *host.RULES, *dcgm.RULES])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    looks = max(span // probe.every, 1)
    start = time.process_time()
    for _ in range(looks):
        now += probe.every
        engine.ingest(probe.sample(now))
    return round((time.process_time() - start) / (looks * probe.every.total_seconds()) * 100, 4)


def lay_out(sys: Path) -> None:
    """The machine."""
    tree = PciTree(sys)
    for switch in range(4):
        _add_switch(tree, 0x10 + 0x20 * switch)
    for number in range(300):
        tree.add(f"0000:f0:{number // 8:02x}.{number % 8}", "0x088000", "0x8086")
    for module in range(32):
        _write(sys / f"devices/system/edac/mc/mc{module // 2}/dimm{module % 2}", dimm_ce_count=0, dimm_ue_count=0)
    for chip in range(12):
        files = {f"temp{sensor}_{file}": 50_000 for sensor in range(8) for file in ("input", "crit", "label")}
        _write(sys / f"class/hwmon/hwmon{chip}", name="coretemp", **files)


def _add_switch(tree: PciTree, bus: int) -> None:
    root, upstream = f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0"
    tree.add(root, BRIDGE_CLASS, "0x8086")
    tree.add(upstream, BRIDGE_CLASS, BROADCOM, below=root)
    for number, (kind, vendor) in enumerate(BEHIND_A_SWITCH):
        port, device = f"0000:{bus + 2:02x}:{number:02x}.0", f"0000:{bus + 3 + number:02x}:00.0"
        tree.add(port, BRIDGE_CLASS, BROADCOM, below=upstream)
        tree.add(device, kind, vendor, below=port)
        tree.put(device, "infiniband/mlx5", "")


def _write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")


def pages() -> Callable[[str], str]:
    """An exporter with every field that is read and 40 others; of a GPU, some values change from page to page."""
    pick = random.Random(1)
    labels = 'pci_bus_id="{bus}",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",hostname="node-1",pod="train-0"'
    others = [f"DCGM_FI_DEV_OTHER_{number}" for number in range(40)]

    def page(_url: str) -> str:
        changing = {name: pick.random() for name in (*others, *PULSE)}
        return "\n".join(
            f'{name}{{UUID="{gpu}",{labels.format(bus="0000" + bus)}}} {changing.get(name, 0)}'
            for gpu, bus in GPUS.items()
            for name in (*NUMBERS, *changing)
        )

    return page


if __name__ == "__main__":
    raise SystemExit(main())
