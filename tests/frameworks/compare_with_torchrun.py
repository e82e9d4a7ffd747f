"""
Start the scripts of `tests/frameworks/trainers` by `healthd run`, break a GPU under them, and compare with torchrun.

`python -m tests.frameworks.compare_with_torchrun [NAME ...]`, run by hand where the frameworks, healthd's own
dependencies and pytest are installed; no GPU is needed, the driver is the stand-in. For each script: torchrun trains;
`healthd run` trains, loses the GPU of rank 0 after the second save, and goes on with the spare. Both must have seen a
world of two ranks, and end with the same weights, bit for bit.
"""

# mypy: ignore-errors
from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e.driver import ROOT
from tests.frameworks.runs import ON_CPU, are_equal, stage_in, train, try_all
from tests.frameworks.trainers.task import RANKS

SCRIPTS = {
    "ddp": "torch",
    "megatron_start": "torch",
    "megatron_core": "megatron-core",
    "lightning_fit": "lightning",
    "accelerate_loop": "accelerate",
    "hugging_face": "transformers",
    "deepspeed_engine": "deepspeed",
}
"""And the package of each."""
TRAINERS = Path(__file__).with_name("trainers")


def by_torchrun(script: Path, folder: Path) -> None:
    """Undisturbed."""
    (folder / "out").mkdir(parents=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **ON_CPU}
    done = subprocess.run([*command, script, folder / "out"], env=environ, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"torchrun ends with {done.returncode}: {done.stderr[-3000:]}")


def by_healthd(script: Path, folder: Path) -> int:
    """With a GPU that breaks after the second save. Returns how many attempts there were."""
    out = str(folder / "out")
    options = ("--nproc", str(RANKS), "--spares", "1", "--checkpoint", out)
    with stage_in(folder) as stage:
        asyncio.run(train(stage, options, [str(script), out], fault=lambda: stage.break_gpu(0)))
    return len(list((folder / "state/logs").glob("attempt-*")))


def compare(name: str) -> str:
    """What is wrong; empty where nothing is."""
    script = TRAINERS / f"{name}.py"
    with tempfile.TemporaryDirectory(prefix="healthd-launched-") as scratch:
        folder = Path(scratch)
        by_torchrun(script, folder / "torchrun")
        attempts = by_healthd(script, folder / "healthd")
        worlds = {path.read_text() for path in folder.glob("*/world-*")}
        is_equal = are_equal(folder / "torchrun/weights.pt", folder / "healthd/weights.pt")
    if worlds != {str(RANKS)}:
        return f"worlds of {worlds}"
    if attempts != 2:
        return f"{attempts} attempts"
    return "" if is_equal else "other weights"


if __name__ == "__main__":
    sys.exit(try_all(__doc__, SCRIPTS, compare, "as torchrun"))
