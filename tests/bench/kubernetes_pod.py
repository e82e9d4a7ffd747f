"""
What the agent's pod weighs and costs on a real node: `python -m tests.bench.kubernetes_pod [--seconds N] [--settle N]`.

The shipped manifests on one real kubelet, without GPUs and NICs. Memory is read a minute after the pod was ready, three
times: by the processes' mappings with every page of a file counted once (the bound that tests hold), by the kernel's
PSS, and by the pod's own control group, which holds the sandbox's idle process, page cache and kernel memory, too. CPU
is what the pod's control group counts from then on, over N seconds in which nothing happens.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench._figures import machine
from tests.bench.idle import cpu, megabytes
from tests.deploy.manifests import ROOT
from tests.kubernetes.real.installation import Installation
from tests.kubernetes.real.memory_use import weight
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.real.node import RealNode
from tests.lab.real.nodes import RealNodes
from tests.lab.real.prerequisites import why_not

MB = 1024 * 1024


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="in which nothing happens")
    parser.add_argument("--settle", type=float, default=60.0, help="seconds from ready to the first reading")
    args = parser.parse_args()
    if reason := why_not():
        print(f"cannot measure here: {reason}", file=sys.stderr)
        return 1
    with ControlPlane() as control_plane, RealNodes(control_plane, 1) as nodes:
        installation = Installation(control_plane, nodes, overlay=ROOT / "tests" / "lab" / "deploy")
        installation.roll_out()
        time.sleep(args.settle)
        figures = measure(installation, nodes[0], args.seconds)
    print(json.dumps({**figures, "machine": machine()}, indent=2))
    return 0


def measure(installation: Installation, node: RealNode, seconds: float) -> dict[str, Any]:
    """One pod of one node."""
    (agent,) = installation.pods("agent", node.name)
    pids = sorted(node.processes(agent["metadata"]["uid"]))
    memory = {
        "every_page_once_mb": round(weight(*pids), 1),
        "pss_mb": {_name(pid): megabytes(pid, "Pss") for pid in pids},
        "rss_mb": {_name(pid): megabytes(pid, "Rss") for pid in pids},
        "cgroup": of_group(node, agent),
    }
    before, began = {pid: cpu(pid) for pid in pids}, time.monotonic()
    counted = _read(node, agent, "cpuacct.usage")
    time.sleep(seconds)
    took = time.monotonic() - began
    return {
        "memory": memory,
        "seconds": round(took, 1),
        "cpu_percent": {
            "pod": round((_read(node, agent, "cpuacct.usage") - counted) / 1e7 / took, 4),
            **{_name(pid): round(100 * (cpu(pid) - before[pid]) / took, 4) for pid in pids},
        },
        "memory_afterwards_mb": round(weight(*pids), 1),
    }


def of_group(node: RealNode, pod: Json) -> dict[str, float]:
    """MB that the control group of a pod is charged with, and of what."""
    rows = (line.split() for line in _group(node, pod, "memory.stat").read_text().splitlines())
    stat = {name: int(value) / MB for name, value in rows}
    usage = _read(node, pod, "memory.usage_in_bytes") / MB
    kernel = _read(node, pod, "memory.kmem.usage_in_bytes") / MB
    parts = {name: stat[f"total_{name}"] for name in ("rss", "cache", "mapped_file", "inactive_file")}
    found = {"usage": usage, "working_set": usage - parts["inactive_file"], "kernel": kernel, **parts}
    return {name: round(value, 1) for name, value in found.items()}


def _read(node: RealNode, pod: Json, name: str) -> int:
    return int(_group(node, pod, name).read_text())


def _group(node: RealNode, pod: Json, name: str) -> Path:
    """A file of the pod's own directory, in the hierarchy that has it."""
    uid = pod["metadata"]["uid"]
    tops = node.machine.cgroup.directories
    return next(path for top in tops for path in top.glob(f"**/pod{uid}/{name}"))


def _name(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return "opener" if any(word.endswith("opener.py") for word in words) else "agent"


if __name__ == "__main__":
    sys.exit(main())
