"""
What asking NVML costs: `python -m tests.bench.nvml_child [--seconds N] [--gpus N] [--use SECONDS]`.

A stand-in for the driver's library lies beneath the real binding, so this is the cost of healthd and of the binding
alone; a real driver adds its own system calls. `--use`: how often it is read how much the GPUs are used, as an agent
does each second where it samples pods. At the end the driver hangs: the clock runs from the call that hangs to
the reading that says so, asked for every second. The child looks at the usual pace, and the parent asks it every second
as an agent does. CPU is the scheduler's own count of nanoseconds; memory is read at the end. `one look` is all readings
of all GPUs, taken from the child's words and judged, in the parent.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from healthd.core.diagnosis.signals.engine import Engine
from healthd.core.diagnosis.signals.gpus.nvml import RULES
from healthd.probes.nvml.health import Nvml, NvmlPulse
from healthd.probes.nvml.process import USUAL, ChildProcess, Pace, asking
from tests.bench._figures import machine, spread
from tests.bench.idle import children, cpu, megabytes, switches
from tests.standin.nvml import StandIn, build

START = datetime(2026, 11, 21, tzinfo=UTC)


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--use", type=float, default=1.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        standin = StandIn(build(Path(folder) / "lib"), Path(folder) / "script")
        standin.play(f"gpus {args.gpus}")
        figures = measure(standin, replace(USUAL, use=timedelta(seconds=args.use)), args.seconds)
    print(
        json.dumps(
            {**figures, "GPUs": args.gpus, "use": args.use, "seconds": args.seconds, "machine": machine()}, indent=2
        )
    )
    return 0


def measure(standin: StandIn, pace: Pace, seconds: int) -> dict[str, Any]:
    """Let a probe run beside its child for so long."""
    probe = Nvml(ChildProcess(pace, spawn=asking(standin.environ)))
    pulse, engine = NvmlPulse(probe), Engine(RULES)
    begun = time.monotonic()
    while not probe.sample(START).readings:
        probe.wait(1.0)
    first_answer = time.monotonic() - begun
    (child,) = children(os.getpid())
    ours, theirs, woken, at = cpu(os.getpid()), cpu(child), switches(child), time.monotonic()
    looks, last = [], None
    for _ in range(seconds):
        time.sleep(1.0)
        before = time.perf_counter()
        now = datetime.now(UTC)  # noqa: TID251 - a benchmark has no clock of its own
        engine.ingest(pulse.sample(now))
        sample = probe.sample(now)
        probe.use(now)
        if sample is not last:
            engine.ingest(sample)
            looks.append(1000 * (time.perf_counter() - before))
        last = sample
    spent = time.monotonic() - at
    figures = {
        "first answer ms, exec to look": round(1000 * first_answer),
        "child CPU %": round(100 * (cpu(child) - theirs) / spent, 3),
        "child PSS MB": megabytes(child, "Pss"),
        "child RSS MB": megabytes(child, "Rss"),
        "child wake-ups/s": round((switches(child) - woken) / spent, 2),
        "parent CPU %, looks and judging": round(100 * (cpu(os.getpid()) - ours) / spent, 3),
        "one look ms": spread(looks),
        "readings": len(last.readings) if last else 0,
    }
    return {**figures, **hang(standin, probe, pulse)}


def hang(standin: StandIn, probe: Nvml, pulse: NvmlPulse) -> dict[str, float]:
    """Let the driver hang, and ask on."""
    standin.play("hang nvmlDeviceGetTemperature *")
    while not standin.hangs:
        pulse.sample(START)
        time.sleep(0.01)
    begun, asked, answer = time.monotonic(), [], ""
    while answer != "no":
        time.sleep(1.0)
        before = time.monotonic()
        answer = str(pulse.sample(START).readings[0].value)
        asked.append(1000 * (time.monotonic() - before))
    probe.close()
    return {"hang seen after s": round(time.monotonic() - begun, 2), "longest look meanwhile ms": round(max(asked), 2)}


if __name__ == "__main__":
    sys.exit(main())
