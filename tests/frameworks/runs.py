"""
What the commands share that run real trainers by `healthd run`: a folder, a fault after some saves, the end, the
comparison.
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import torch

from tests.e2e import driver
from tests.e2e.driver import HealthdProcess, RunFolder

LONGEST = 240.0
"""Seconds for one script: imports alone take 10 on a small machine."""
ON_CPU = {"DS_ACCELERATOR": "cpu"}
"""For DeepSpeed."""
SAVES_BEFORE_A_FAULT = 2


@contextmanager
def stage_in(folder: Path) -> Iterator[RunFolder]:
    """A new folder for one run, with `out` in it for the checkpoints."""
    (folder / "out").mkdir(parents=True)
    stage = RunFolder(folder)
    try:
        yield stage
    finally:
        stage.close()


def life_of(
    stage: RunFolder, options: Sequence[str], script: Sequence[str]
) -> AbstractAsyncContextManager[HealthdProcess]:
    """`healthd run` with these options; *script* and its arguments run with this Python."""
    return stage.life(*options, command=[sys.executable, *script], environ=ON_CPU)


async def train(
    stage: RunFolder, options: Sequence[str], script: Sequence[str], *, fault: Callable[[], None] | None = None
) -> None:
    """Train to the end. The *fault*, if any, happens after the second save."""
    async with life_of(stage, options, script) as life:
        if fault:
            await life.lives_until(saved(stage.folder / "out", SAVES_BEFORE_A_FAULT))
            fault()
        await finished(life, stage.folder)


async def saved(folder: Path, number: int) -> None:
    """Return when there are so many checkpoints; the framework is given time to finish the last."""
    while len(whole(folder)) < number:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.3)


def whole(folder: Path) -> list[str]:
    """The names there that no framework gives to what it has not finished."""
    names = [path.name for path in folder.iterdir()]
    return [name for name in names if not name.endswith(".tmp") and not name.startswith("tmp-")]


def pid_of(stage: RunFolder, rank: int) -> int:
    """The process of a rank that runs now."""
    for pid in stage.marked():
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if f"RANK={rank}".encode() in environ and any(one.startswith(b"HEALTHD_POD_UID=") for one in environ):
            return pid
    raise SystemExit(f"rank {rank} does not run")


async def finished(life: HealthdProcess, folder: Path) -> None:
    """Return when healthd has ended with 0. Raises SystemExit with what it and the ranks said."""
    if code := await life.ended():
        logs = [path.read_text()[-2000:] for path in sorted(folder.glob("state/logs/*/*"))]
        raise SystemExit("\n".join([f"healthd run ends with {code}: {life.log[-3000:]}", *logs]))


def are_equal(first: Path, second: Path) -> bool:
    """Whether two files hold the same weights, bit for bit."""
    one, other = torch.load(first), torch.load(second)
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def try_all(description: str, packages: Mapping[str, str], try_out: Callable[[str], str], well: str) -> int:
    """
    Try what the command line names, or all of *packages*, each with the package that it needs. The answer is the exit
    code.

    Args:
        try_out: answers what is wrong with the one of that name; empty where nothing is.
        well: what is printed then.
    """
    driver.PATIENCE = LONGEST
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(packages))
    failed = 0
    for name in parser.parse_args().names:
        package = packages[name]
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            print(f"{name}: LEFT OUT, {package} is not installed")
            continue
        began = time.monotonic()
        wrong = try_out(name)
        failed += bool(wrong)
        print(f"{name} ({package} {version}): {wrong or well} in {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed else 0
