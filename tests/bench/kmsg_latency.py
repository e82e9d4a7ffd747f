"""
How long a kernel record takes to its consumer: `python -m tests.bench.kmsg_latency --json`.

Clock: the record's own time stamp -> CLOCK_MONOTONIC when the consumer on the event loop has the batch. The kernel
stamps records by a clock of its own; its distance to CLOCK_MONOTONIC is the least that is possible when no record was
stamped before its writer began to write. So the figures err on the long side, by a few microseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

from healthd.clock import SystemClock
from healthd.probes.klog.kmsg import open_kmsg, read_boot_id
from healthd.probes.klog.record import KernelTime
from tests.kernel_log import RealLog, Unwritable, kernel_log

BOOT = datetime(1970, 1, 1, tzinfo=UTC)
MARK = "NVRM: latency"
DEADLINE = 300.0


class UnfittedTime(KernelTime):
    """The kernel's stamps as they are, counted from 1970."""

    def __init__(self) -> None:
        super().__init__(SystemClock(), BOOT)

    def fit(self, microseconds: int) -> None:
        """Keeps them so."""


async def collect(log: RealLog, number: int, level: int, gap_ms: float) -> tuple[list[float], float]:
    """The latencies in seconds, and what was added to the kernel's stamps to have CLOCK_MONOTONIC."""
    reader = open_kmsg(clock=SystemClock(), boot_id=read_boot_id(), trust_user_space=True, kernel_time=UnfittedTime())
    command = [sys.executable, "-m", "tests.bench.kmsg_latency", "--as-writer"]
    writer = await asyncio.create_subprocess_exec(
        *command, log.tag, str(number), str(level), str(gap_ms), stdout=subprocess.PIPE
    )
    seen: dict[int, tuple[float, float]] = {}
    async with asyncio.timeout(DEADLINE), aclosing(reader.batches()) as batches:
        async for batch in batches:
            received = time.monotonic()
            for record in batch.records:
                if log.wrote(record) and record.text.startswith(MARK):
                    seen[int(record.text.split()[2])] = ((record.at - BOOT) / timedelta(seconds=1), received)
            if len(seen) == number:
                break
    written, _ = await writer.communicate()
    begun: list[float] = json.loads(written)
    offset = max(begun[i] - stamp for i, (stamp, _) in seen.items())
    return [received - (stamp + offset) for stamp, received in seen.values()], offset


def write_marks(tag: str, number: int, level: int, gap_ms: float) -> list[float]:
    """Write the records; CLOCK_MONOTONIC before each."""
    begun = []
    with open("/dev/kmsg", "wb", buffering=0) as device:
        for i in range(number):
            time.sleep(random.uniform(0.5, 1.5) * gap_ms / 1000)
            line = f"<{level}>{MARK} {i} {tag}\n".encode()
            begun.append(time.monotonic())
            device.write(line)
    return begun


def summary(latencies: list[float]) -> dict[str, float]:
    """In milliseconds."""
    ms = sorted(latency * 1000 for latency in latencies)
    percent = statistics.quantiles(ms, n=100)
    figures = {"min": ms[0], "p50": percent[49], "p90": percent[89], "p99": percent[98], "max": ms[-1]}
    return {f"{name}_ms": round(value, 3) for name, value in figures.items()}


def main() -> int:
    """Parse the arguments, run, print."""
    if sys.argv[1:2] == ["--as-writer"]:
        tag, number, level, gap_ms = sys.argv[2:]
        print(json.dumps(write_marks(tag, int(number), int(level), float(gap_ms))))
        return 0
    parser = argparse.ArgumentParser(prog="python -m tests.bench.kmsg_latency")
    parser.add_argument("--number", type=int, default=300)
    parser.add_argument("--level", type=int, default=3, help="3: also printed on the console; 6: usually not")
    parser.add_argument("--gap-ms", type=float, default=12.0, help="mean pause between two records")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        with kernel_log() as log:
            latencies, offset = asyncio.run(collect(log, options.number, options.level, options.gap_ms))
    except Unwritable as refusal:
        print(f"not measured: {refusal}", file=sys.stderr)
        return 1
    figures: dict[str, float | str] = {
        "n": len(latencies),
        "level": options.level,
        **summary(latencies),
        "stamp_to_monotonic_ms": round(offset * 1000, 3),
        "clock": "kernel's record stamp -> batch in the consumer's hands",
    }
    print(json.dumps(figures) if options.json else "  ".join(f"{name}={value}" for name, value in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
