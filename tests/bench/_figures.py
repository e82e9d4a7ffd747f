"""What every benchmark prints: how its samples are spread, and on which machine they were taken."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def spread(samples: Sequence[float], digits: int = 2) -> dict[str, float]:
    """Median, 90th and 99th percentile and the worst of *samples*, and how many there are."""
    ordered = sorted(samples)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], digits)

    return {"n": len(ordered), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": round(ordered[-1], digits)}


def peak_memory() -> int:
    """MB that this process had in memory at most. Not by `getrusage`, which begins with what the parent process had."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) // 1024


def machine() -> dict[str, Any]:
    """Cores, kernel, Python, and how busy the machine was with other work in the last minute."""
    return {
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }
