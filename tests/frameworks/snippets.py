"""
Run the scripts of `docs/trainers.md` as they stand there, with their own commands, and kill a rank of each.

`python -m tests.frameworks.snippets [NAME ...]`, run by hand where the frameworks, healthd's own dependencies and
pytest are installed; no GPU is needed, the driver is the stand-in. Each script is run twice by `healthd run`: once
undisturbed, and once with a rank that is killed with -9 after the second save. The second must resume once, from a
checkpoint, and end with the weights of the first, bit for bit.
"""

# mypy: ignore-errors
from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tests.e2e.driver import ROOT, Life, Stage
from tests.frameworks.runs import ON_CPU, are_equal, finished, pid_of, saved, try_all

PAGE = ROOT / "docs" / "trainers.md"
PACKAGES = {"ddp.py": "torch", "trainer.py": "transformers", "fit.py": "lightning", "engine.py": "deepspeed"}
"""What each needs."""
MINE = Path(__file__).with_name("trainers") / "mine.py"


class Snippet(NamedTuple):
    """A script of the page, and the command below it."""

    name: str
    script: str
    command: list[str]


def snippets() -> dict[str, Snippet]:
    """Every script of the page with its command, by its name."""
    found = re.findall(r"```python\n# (\w+\.py)\n(.*?)```\n\n```sh\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    told = [Snippet(name, script, shlex.split(line.rpartition("healthd run ")[2])) for name, script, line in found]
    return {snippet.name: snippet for snippet in told}


def a_stage(snippet: Snippet, folder: Path) -> Stage:
    """With the script in it, and the user's own module."""
    folder.mkdir(parents=True)
    (folder / snippet.name).write_text(snippet.script)
    (folder / "mine.py").write_text(MINE.read_text())
    (folder / "out").mkdir()
    return Stage(folder)


@asynccontextmanager
async def life_of(snippet: Snippet, stage: Stage) -> AsyncIterator[Life]:
    """By its own command."""
    at = snippet.command.index("--")
    options, command = snippet.command[:at], snippet.command[at + 1 :]
    assert command[0] == "python", command
    async with stage.life(*options, command=[sys.executable, *command[1:]], environ=ON_CPU) as life:
        yield life


def resumed_from(stage: Stage) -> list[str]:
    """What each attempt of rank 0 was told to resume from; `-`: nothing."""
    return (stage.folder / "resumed").read_text().splitlines()


async def run(snippet: Snippet, folder: Path, *, kill: bool) -> list[str]:
    """To its end. Returns what each attempt of rank 0 was told to resume from."""
    stage = a_stage(snippet, folder)
    try:
        async with life_of(snippet, stage) as life:
            if kill:
                await life.lives_until(saved(folder / "out", 2))
                os.kill(pid_of(stage, 1), signal.SIGKILL)
            await finished(life, folder)
    finally:
        stage.close()
    return resumed_from(stage)


def try_out(name: str) -> str:
    """What is wrong; empty where nothing is."""
    snippet = snippets()[name]
    with tempfile.TemporaryDirectory(prefix="healthd-snippets-") as scratch:
        folder = Path(scratch)
        first = asyncio.run(run(snippet, folder / "undisturbed", kill=False))
        second = asyncio.run(run(snippet, folder / "killed", kill=True))
        is_equal = are_equal(folder / "undisturbed/weights.pt", folder / "killed/weights.pt")
    if first != ["-"]:
        return f"undisturbed, it was told {first}"
    if len(second) != 2 or second[1] == "-":
        return f"with a rank killed, it was told {second}"
    return "" if is_equal else "other weights than undisturbed"


if __name__ == "__main__":
    sys.exit(try_all(__doc__, PACKAGES, try_out, "resumed"))
