"""The reference run: the same training as plain processes, without healthd and without faults."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from healthd.local.demo import trainer
from healthd.local.demo.script import DemoFolders, Script
from healthd.local.environment import ADDRESS, inherited
from healthd.local.machine.machine import free_port

TRAINER = str(Path(trainer.__file__).resolve())


class TrainingFailed(Exception):
    """The training failed even without faults, so the demo cannot run. The message has the trainer's output."""


async def train_undisturbed(script: Script, place: DemoFolders) -> None:
    """Train from the first step to the last, without a pause between steps. Raises TrainingFailed."""
    port = free_port()
    command = [sys.executable, TRAINER, "--checkpoint", str(place.calm), *script.calm_arguments]
    environments = [_environment(rank, script.ranks, port) for rank in range(script.ranks)]
    async with _processes(command, environments) as ranks:
        outputs = await asyncio.gather(*(rank.communicate() for rank in ranks))
    failed = [number for number, rank in enumerate(ranks) if rank.returncode]
    if failed:
        output = outputs[failed[0]][0].decode(errors="replace").strip()
        raise TrainingFailed(f"the trainer failed without any fault (rank {failed[0]}): {output[-500:]}")


@asynccontextmanager
async def _processes(
    command: list[str], environments: list[dict[str, str]]
) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """One process for each environment. No process is left when the block ends."""
    started: list[asyncio.subprocess.Process] = []
    try:
        for environment in environments:
            process = await asyncio.create_subprocess_exec(
                *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
            started.append(process)
        yield started
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _environment(rank: int, world: int, port: int) -> dict[str, str]:
    place = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": ADDRESS, "MASTER_PORT": str(port)}
    return {**inherited(os.environ), **place}
