"""
Run the scripts of `examples/trainers` with the commands of `docs/trainers.md`, and kill a rank of each.

`python -m tests.frameworks.snippets [NAME ...]`, run by hand where the frameworks, healthd's own dependencies and
pytest are installed; no GPU is needed, the driver is the stand-in. Each script is run twice by `healthd run`: once
undisturbed, and once with a rank that is killed with -9 after the second save. The second must resume once, from a
checkpoint, and end with the weights of the first, bit for bit.
"""

# mypy: ignore-errors
from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.trainers_page import EXAMPLES, Example, examples
from tests.e2e.driver import RunFolder
from tests.frameworks.runs import are_equal, pid_of, stage_in, train, try_all

PACKAGES = {"ddp.py": "torch", "trainer.py": "transformers", "fit.py": "lightning", "engine.py": "deepspeed"}
"""What each needs."""
MINE = Path(__file__).with_name("trainers") / "mine.py"


@contextmanager
def stage_of(example: Example, folder: Path) -> Iterator[RunFolder]:
    """With the script in it, and the model and data of the examples, observed."""
    with stage_in(folder) as stage:
        (folder / example.name).write_text(example.path.read_text())
        (folder / "mine_example.py").write_text((EXAMPLES / "mine.py").read_text())
        (folder / "mine.py").write_text(MINE.read_text())
        yield stage


def resumed_from(stage: RunFolder) -> list[str]:
    """What each attempt of rank 0 was to resume from; `-`: nothing."""
    return (stage.folder / "resumed").read_text().splitlines()


def run(example: Example, folder: Path, *, kill: bool) -> list[str]:
    """To its end. Returns what each attempt of rank 0 was to resume from."""
    with stage_of(example, folder) as stage:
        fault = (lambda: os.kill(pid_of(stage, 1), signal.SIGKILL)) if kill else None
        asyncio.run(train(stage, example.options, example.script, fault=fault))
        return resumed_from(stage)


def try_out(name: str) -> str:
    """What is wrong; empty where nothing is."""
    example = examples()[name]
    with tempfile.TemporaryDirectory(prefix="healthd-snippets-") as scratch:
        folder = Path(scratch)
        first = run(example, folder / "undisturbed", kill=False)
        second = run(example, folder / "killed", kill=True)
        is_equal = are_equal(folder / "undisturbed/weights.pt", folder / "killed/weights.pt")
    if first != ["-"]:
        return f"undisturbed, it resumed from {first}"
    if len(second) != 2 or second[1] == "-":
        return f"with a rank killed, it resumed from {second}"
    return "" if is_equal else "other weights than undisturbed"


if __name__ == "__main__":
    sys.exit(try_all(__doc__, PACKAGES, try_out, "resumed"))
