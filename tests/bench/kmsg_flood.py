"""
How many faults the kernel-log reader still finds in a flood: `python -m tests.bench.kmsg_flood --rate max --json`.

Two writers put 200,000 lines with 20 XIDs among them into the machine's own kernel log; the reader that ships reads
them, in this process. Takes the log's lock, replaces everything in the ring, needs root.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from pathlib import Path

from healthd.clock import SystemClock
from healthd.core.diagnosis.readings import RecordBatch
from healthd.probes.klog.kmsg import Kmsg, open_kmsg, read_boot_id
from tests.kernel_log import RealLog, Unwritable, kernel_log

SOURCE = Path(__file__).with_name("kmsg_writer.c")
DEADLINE = 60.0
"""Seconds after which the reader must have come to the end mark."""


@dataclass(frozen=True, kw_only=True)
class Flood:
    """What the writers do."""

    lines: int = 200_000
    writers: int = 2
    xids: int = 20
    rate: int = 0
    """Lines a second of all writers together; 0 = as fast as they can."""
    work_ms: float = 0.0
    """What the consumer does with each batch of faults: so long it computes, as a judge would."""


@dataclass(kw_only=True)
class Tally:
    """What the reader made of it, between the two marks."""

    begin: int = -1
    end: int = -1
    found: set[str] = field(default_factory=set)
    read: int = 0
    lost: int = 0
    batches: int = 0

    def add(self, batch: RecordBatch, log: RealLog) -> None:
        """Count one batch. A mark may stand in the midst of it."""
        self.read, self.lost, self.batches = self.read + batch.count, self.lost + batch.lost, self.batches + 1
        for record in filter(log.wrote, batch.records):
            if record.text.startswith("NVRM: flood begins"):
                self.begin, self.lost = record.sequence, 0
                self.read = batch.last_sequence - record.sequence
            elif record.text.startswith("NVRM: flood ends"):
                self.end = record.sequence
                self.read -= batch.last_sequence - record.sequence
            else:
                self.found.add(record.text.partition("pid=")[2].partition(",")[0])


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of figures."""

    found: int
    of: int
    written: int
    """Lines that the kernel took from the writers."""
    others: int
    """Records of the rest of the machine meanwhile, from the kernel's numbers."""
    read: int
    lost: int
    """As the reader counted."""
    missing: int
    """The truth: what was put in and not read. Must equal *lost*."""
    batches: int
    flood_s: float
    lines_per_s: int
    cpu_s: float
    """Of the reading process, start of the writers until the end mark was in the consumer's hands."""
    rss_before_kib: int
    rss_peak_kib: int
    priority: str
    writer: str
    clock: str = "CLOCK_MONOTONIC, before the writers start -> the last one has ended"


def writer_command(folder: Path) -> list[str]:
    """The C writer where there is a compiler; Python writes perhaps a third as fast."""
    compiler = shutil.which("cc")
    if compiler is None:
        return [sys.executable, "-m", "tests.bench.kmsg_flood", "--as-writer"]
    program = folder / "kmsg_writer"
    subprocess.run([compiler, "-O2", "-o", str(program), str(SOURCE)], check=True)
    return [str(program)]


async def write_flood(flood: Flood, command: list[str], tag: str) -> tuple[int, float]:
    """Run all writers to their end: how many lines they wrote, and seconds."""
    start = time.monotonic()
    writers = [
        await asyncio.create_subprocess_exec(
            *command,
            *(tag, str(first), str(flood.writers), str(flood.lines), str(flood.xids), str(flood.rate / flood.writers)),
            stdout=asyncio.subprocess.PIPE,
        )
        for first in range(flood.writers)
    ]
    answers = [(await writer.communicate())[0] for writer in writers]
    return sum(int(answer) for answer in answers), time.monotonic() - start


async def measure(flood: Flood, log: RealLog, command: list[str]) -> Result:
    """One flood through the shipped reader."""
    reader = open_kmsg(clock=SystemClock(), boot_id=read_boot_id(), trust_user_space=True)
    tally, begun = Tally(), asyncio.Event()
    reading = asyncio.create_task(_read(reader, log, tally, begun, flood.work_ms / 1000))
    log.write("NVRM: flood begins")
    await begun.wait()
    cpu, before = time.process_time(), _kib("VmRSS")
    written, seconds = await write_flood(flood, command, log.tag)
    log.write("NVRM: flood ends")
    async with asyncio.timeout(DEADLINE):
        await reading
    cpu = time.process_time() - cpu
    others = tally.end - tally.begin - 1 - written
    return Result(
        found=len(tally.found),
        of=flood.xids,
        written=written,
        others=others,
        read=tally.read,
        lost=tally.lost,
        missing=written + others + 1 - tally.read,
        batches=tally.batches,
        flood_s=round(seconds, 3),
        lines_per_s=round(written / seconds),
        cpu_s=round(cpu, 3),
        rss_before_kib=before,
        rss_peak_kib=_kib("VmHWM"),
        priority=reader._urgency.priority,
        writer=Path(command[0]).name,
    )


async def _read(reader: Kmsg, log: RealLog, tally: Tally, begun: asyncio.Event, work: float) -> None:
    async with aclosing(reader.batches()) as batches:
        async for batch in batches:
            tally.add(batch, log)
            if tally.begin >= 0:
                begun.set()
            if tally.end >= 0:
                return
            if batch.records:
                _compute(work)


def _compute(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def _kib(field: str) -> int:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[field].split()[0])


def write_as_python(tag: str, first: int, step: int, lines: int, xids: int, rate: float) -> int:
    """What kmsg_writer.c does, where no compiler is."""
    every, start, taken = lines // xids, time.monotonic(), 0
    with open("/dev/kmsg", "wb", buffering=0) as device:
        for i in range(first, lines, step):
            fault = f"<3>NVRM: Xid (PCI:0000:3b:00): 79, pid={i // every}, name={tag}, GPU has fallen off the bus.\n"
            taken += device.write((fault if i % every == every // 2 else f"<6>flood {tag} line {i:07}\n").encode()) > 0
            if rate and taken % 16 == 0:
                time.sleep(max(0.0, start + taken / rate - time.monotonic()))
    return taken


def main() -> int:
    """Parse the arguments, run, print."""
    if sys.argv[1:2] == ["--as-writer"]:
        tag, first, step, lines, xids, rate = sys.argv[2:]
        print(write_as_python(tag, int(first), int(step), int(lines), int(xids), float(rate)))
        return 0
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.kmsg_flood", description="Flood the kernel log and count what the reader finds."
    )
    parser.add_argument("--rate", default="max", help="lines a second of both writers together, or `max`")
    parser.add_argument("--work-ms", type=float, default=0.0, help="what the consumer computes at each batch of faults")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object a run instead of a table")
    options = parser.parse_args()
    flood = Flood(rate=0 if options.rate == "max" else int(options.rate), work_ms=options.work_ms)
    try:
        with tempfile.TemporaryDirectory() as folder:
            command = writer_command(Path(folder))
            for _ in range(options.runs):
                with kernel_log() as log:
                    result = asyncio.run(measure(flood, log, command))
                show(result, as_json=options.json)
    except Unwritable as refusal:
        print(f"not measured: {refusal}", file=sys.stderr)
        return 1
    return 0


def show(result: Result, *, as_json: bool) -> None:
    """One object, or one line for people."""
    figures = asdict(result)
    print(
        json.dumps(figures) if as_json else "  ".join(f"{name}={value}" for name, value in figures.items()), flush=True
    )


if __name__ == "__main__":
    sys.exit(main())
