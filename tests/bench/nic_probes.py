"""
What looking at eight NICs costs: `python -m tests.bench.nic_probes [--minutes N]`.

A machine with eight GPUs and eight NICs is laid out in a folder, once with InfiniBand and once with RoCE, and every NIC
probe looks at it at its own pace, in simulated time; the engine with all rules takes each sample. The clock is the CPU
time of this process, from before the first sample (which finds the devices) to after the last. What firmware needs to
answer, and the read of a file in /sys instead of one in a folder, are not in it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from healthd.core.diagnosis.readings import Sample
from healthd.core.diagnosis.signals.engine import Engine
from healthd.core.diagnosis.signals.nics import efa, ethernet, infiniband, roce
from healthd.probes.nics.counter_files import RANGES
from healthd.probes.nics.ethernet import Ethernet, EthernetCounters, EthernetStatistics
from healthd.probes.nics.infiniband import Infiniband
from healthd.probes.nics.rdma_counters import COUNTERS, InfinibandCounters
from tests.bench._figures import machine
from tests.sysfs import Sysfs, write

NICS = 8
PROBES = (Infiniband, InfinibandCounters, Ethernet, EthernetCounters, EthernetStatistics)


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=10)
    minutes = parser.parse_args().minutes
    figures = {layer: measure(layer, timedelta(minutes=minutes)) for layer in ("InfiniBand", "Ethernet")}
    print(json.dumps({**figures, "nics": NICS, "simulated_minutes": minutes, "machine": machine()}, indent=2))
    return 0


def measure(link_layer: str, span: timedelta) -> dict[str, object]:
    """Shares of one core, in per cent, by probe and in all."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "sys"
        lay_out(root, link_layer)
        costs = {probe.source: cost(probe(root), span) for probe in PROBES}
    return {"percent_of_a_core": costs, "all": round(sum(costs.values()), 4)}


def lay_out(root: Path, link_layer: str) -> None:
    """Every counter that is read is there, so this is the most that it can cost."""
    sysfs = Sysfs(root)
    family = "roce." if link_layer == "Ethernet" else "ib."
    for at in range(NICS):
        nic, below = f"0000:{at:02x}:06.0", f"pci0000:{at:02x}/0000:{at:02x}:01.0"
        sysfs.gpu(f"0000:{at:02x}:05.0", below)
        port = sysfs.rdma(f"mlx5_{at}", nic, below=below, link_layer=link_layer)
        write(port / "counters", dict.fromkeys(RANGES, "0"))
        write(port / "hw_counters", {name.removeprefix(family): "0" for name in COUNTERS if name.startswith(family)})
        if link_layer == "Ethernet":
            sysfs.net(f"ens{at}", nic, below=below)


def cost(
    probe: Infiniband | InfinibandCounters | Ethernet | EthernetCounters | EthernetStatistics, span: timedelta
) -> float:
    """Per cent of a core that its samples and their judgement need at its pace."""
    tables = (infiniband.RULES, roce.RULES, efa.RULES, ethernet.RULES)
    engine = Engine(rule for table in tables for rule in table)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    start = time.process_time()
    for _ in range(span // probe.every):
        now += probe.every
        sample: Sample = probe.sample(now)
        engine.ingest(sample)
    return round((time.process_time() - start) / span.total_seconds() * 100, 4)


if __name__ == "__main__":
    raise SystemExit(main())
