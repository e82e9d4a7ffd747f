"""
Run the scripts of `docs/trainers.md` as they stand there, with their own commands, and kill a rank of each.

`python -m tests.frameworks.snippets [NAME ...]`, run by hand where the frameworks, healthd's own dependencies and
pytest are installed; no GPU is needed, the driver is the stand-in. Each script is run twice by `healthd run`: once
undisturbed, and once with a rank that is killed with -9 after the second save. The second must resume once, from a
checkpoint, and end with the weights of the first, bit for bit.
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import importlib.util
import os
import re
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch

from tests.e2e import driver
from tests.e2e.driver import ROOT, Stage

PAGE = ROOT / "docs" / "trainers.md"
PACKAGES = {"ddp.py": "torch", "trainer.py": "transformers", "fit.py": "lightning", "engine.py": "deepspeed"}
"""What each needs."""
LONGEST = 240.0
"""Seconds for one script: imports alone take 10 on a small machine."""
MINE = Path(__file__).with_name("trainers") / "mine.py"


class Snippet(NamedTuple):
    """A script of the page, and the command below it."""

    name: str
    script: str
    command: list[str]


def snippets(page: str) -> list[Snippet]:
    """Every script of *page* with its command."""
    found = re.findall(r"```python\n# (\w+\.py)\n(.*?)```\n\n```sh\n(.*?)\n```", page, re.DOTALL)
    return [Snippet(name, script, shlex.split(line.rpartition("healthd run ")[2])) for name, script, line in found]


async def run(snippet: Snippet, folder: Path, *, kill: bool) -> list[str]:
    """By its own command; returns what each attempt of rank 0 was told to resume from."""
    folder.mkdir(parents=True)
    stage = Stage(folder)
    (folder / snippet.name).write_text(snippet.script)
    (folder / "mine.py").write_text(MINE.read_text())
    (folder / "out").mkdir()
    at = snippet.command.index("--")
    options, command = snippet.command[:at], snippet.command[at + 1 :]
    assert command[0] == "python", command
    try:
        async with stage.life(
            *options, command=[sys.executable, *command[1:]], environ={"DS_ACCELERATOR": "cpu"}
        ) as life:
            if kill:
                await life.lives_until(saved(folder / "out", 2))
                os.kill(pid_of(stage, "1"), signal.SIGKILL)
            if code := await life.ended():
                logs = [path.read_text()[-2000:] for path in sorted(folder.glob("state/logs/*/*"))]
                raise SystemExit("\n".join([f"healthd run ends with {code}: {life.log[-3000:]}", *logs]))
    finally:
        stage.close()
    return (folder / "resumed").read_text().splitlines()


async def saved(folder: Path, number: int) -> None:
    """Return when there are so many checkpoints."""
    while len(whole(folder)) < number:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.3)  # the framework may still write the last


def whole(folder: Path) -> list[str]:
    """The names there that no framework gives to what it has not finished."""
    names = [path.name for path in folder.iterdir()]
    return [name for name in names if not name.endswith(".tmp") and not name.startswith("tmp-")]


def pid_of(stage: Stage, rank: str) -> int:
    """The process of a rank that runs now."""
    for pid in stage.marked():
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if f"RANK={rank}".encode() in environ and any(one.startswith(b"HEALTHD_POD_UID=") for one in environ):
            return pid
    raise SystemExit(f"rank {rank} does not run")


def try_out(snippet: Snippet) -> str:
    """What is wrong; empty where nothing is."""
    with tempfile.TemporaryDirectory(prefix="healthd-snippets-") as scratch:
        folder = Path(scratch)
        first = asyncio.run(run(snippet, folder / "undisturbed", kill=False))
        second = asyncio.run(run(snippet, folder / "killed", kill=True))
        weights = [torch.load(folder / life / "weights.pt") for life in ("undisturbed", "killed")]
    if first != ["-"]:
        return f"undisturbed, it was told {first}"
    if len(second) != 2 or second[1] == "-":
        return f"with a rank killed, it was told {second}"
    is_equal = weights[0].keys() == weights[1].keys() and all(
        torch.equal(weights[0][key], weights[1][key]) for key in weights[0]
    )
    return "" if is_equal else "other weights than undisturbed"


def main() -> int:
    """Read the command line and run."""
    driver.PATIENCE = LONGEST
    found = {snippet.name: snippet for snippet in snippets(PAGE.read_text())}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(found))
    failed = 0
    for name in parser.parse_args().names:
        package = PACKAGES[name]
        if importlib.util.find_spec(package) is None:
            print(f"{name}: LEFT OUT, {package} is not installed")
            continue
        began = time.monotonic()
        wrong = try_out(found[name])
        failed += bool(wrong)
        version = importlib.metadata.version(package)
        print(f"{name} ({package} {version}): {wrong or 'resumed'} in {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
