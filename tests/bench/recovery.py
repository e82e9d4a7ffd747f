"""
How long `healthd run` takes to bring a gang back: `python -m tests.bench.recovery [--rounds N] [--ranks N]`.

The demo's trainer runs with a spare, and the record of a dead GPU comes through a pipe in the place of /dev/kmsg. The
clock starts just before the record is written. It stops when every rank is proven dead (the recovery has fenced all
pods), and when rank 0 of the next attempt has printed its first step. The configuration is the default; every round is
a new run. The GPUs are made up, the processes are real.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from healthd.clock import SystemClock
from healthd.core.api import Recovery
from healthd.core.api.model import Phase
from healthd.local.demo import trainer
from tests.bench._figures import machine, spread
from tests.e2e.driver import HealthdProcess, RunFolder

CONFIG = """\
kernel_log: {{source: kmsg, path: "{log}"}}
log: {{format: json}}
"""
LOOK_EVERY = 0.001
"""Seconds between looks at the trainer's output: as exact as its end of the clock is."""
PHASES = [Phase.DETECTED, Phase.STOPPING, Phase.FENCING, Phase.CHOOSING, Phase.RESERVING, Phase.STARTING]


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=4)
    args = parser.parse_args()
    rounds = [asyncio.run(one_round(args.ranks)) for _ in range(args.rounds)]
    print(json.dumps(report(rounds, args.ranks), indent=2))
    return 0


async def one_round(ranks: int) -> dict[str, float]:
    """Milliseconds from the record to each event of one run."""
    with tempfile.TemporaryDirectory() as folder:
        stage = RunFolder(Path(folder))
        stage.config.write_text(CONFIG.format(log=stage.folder / "kmsg"))
        options = ["--nproc", str(ranks), "--spares", "1"]
        command = [sys.executable, trainer.__file__, "--steps", "100000", "--pace", "0.02", "--checkpoint"]
        try:
            async with stage.life(*options, command=[*command, str(stage.checkpoints)]) as life:
                return await measure(stage, life)
        finally:
            stage.close()


async def measure(stage: RunFolder, life: HealthdProcess) -> dict[str, float]:
    """Break a GPU once something was saved, and see what becomes of it."""
    clock = SystemClock()
    await said(stage, attempt=0, what="saved step-000020")
    began = clock.now()
    stage.break_gpu(0)
    await said(stage, attempt=1, what="step ")
    resumed = clock.now()
    await life.says("recovery.phase", phase=Phase.RECOVERED)
    [recovery] = await stage.recoveries()
    life.signal(signal.SIGINT)
    life.signal(signal.SIGINT)
    await life.ended()
    return since(began, recovery) | {"first step after the restart": milliseconds(began, resumed)}


async def said(stage: RunFolder, *, attempt: int, what: str) -> None:
    """Return when rank 0 of *attempt* has printed a line that begins so."""
    log = stage.state / "logs" / f"attempt-{attempt}" / "rank-0.log"
    while not (log.exists() and any(line.startswith(what) for line in log.read_text().splitlines())):  # noqa: ASYNC110 - a file rings no bell
        await asyncio.sleep(LOOK_EVERY)


def since(began: datetime, recovery: Recovery) -> dict[str, float]:
    """When each phase began."""
    at = {entry.phase: milliseconds(began, entry.at) for entry in recovery.status.timeline}
    return {f"{phase.value} begins": at[phase] for phase in PHASES} | {"every rank is proven dead": at[Phase.CHOOSING]}


def milliseconds(begin: datetime, end: datetime) -> float:
    """From one wall time to another."""
    return (end - begin).total_seconds() * 1000


def report(rounds: list[dict[str, float]], ranks: int) -> dict[str, Any]:
    """In milliseconds after the record."""
    return {
        "clock": {
            "start": "just before the write() of the record to the pipe that stands for /dev/kmsg",
            "ends": "the time stamps in the recovery's timeline; the trainer's first line `step …` of attempt 1",
            "unit": "ms",
        },
        "ranks": ranks,
        "since the record": {name: spread([taken[name] for taken in rounds], 1) for name in rounds[0]},
        "machine": machine(),
    }


if __name__ == "__main__":
    sys.exit(main())
