"""
Start the scripts of `tests/frameworks/trainers` by `healthd run`, break a GPU under them, and compare with torchrun.

`python -m tests.frameworks.launched [NAME ...]`, run by hand where the frameworks, healthd's own dependencies and
pytest are installed; no GPU is needed, the driver is the stand-in. For each script: torchrun trains undisturbed;
`healthd run` trains, loses the GPU of rank 0 after the second save, and goes on with the spare. Both must have seen a
world of two ranks, and end with the same weights, bit for bit.
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from tests.e2e import driver
from tests.e2e.driver import ROOT, Stage
from tests.frameworks.trainers.task import RANKS

SCRIPTS = {
    "ddp": "torch",
    "megatron_start": "torch",
    "lightning_fit": "lightning",
    "accelerate_loop": "accelerate",
    "hugging_face": "transformers",
    "deepspeed_engine": "deepspeed",
}
"""And the package of each."""
TRAINERS = Path(__file__).with_name("trainers")
LONGEST = 240.0
"""Seconds for one script: imports alone take 10 on a small machine."""


def by_torchrun(script: Path, folder: Path) -> None:
    """Undisturbed."""
    (folder / "out").mkdir(parents=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "DS_ACCELERATOR": "cpu"}
    done = subprocess.run([*command, script, folder / "out"], env=environ, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"torchrun ends with {done.returncode}: {done.stderr[-3000:]}")


async def by_healthd(script: Path, folder: Path) -> int:
    """With a GPU that breaks after the second save. Returns how many attempts there were."""
    folder.mkdir()
    stage = Stage(folder)
    out = folder / "out"
    out.mkdir()
    try:
        options = ("--nproc", str(RANKS), "--spares", "1", "--checkpoint", str(out))
        command = [sys.executable, str(script), str(out)]
        async with stage.life(*options, command=command, environ={"DS_ACCELERATOR": "cpu"}) as life:
            await life.lives_until(saved(out, 2))
            stage.break_gpu(0)
            code = await life.ended()
            if code:
                logs = [path.read_text()[-2000:] for path in sorted(folder.glob("state/logs/*/*"))]
                raise SystemExit("\n".join([f"healthd run ends with {code}: {life.log[-3000:]}", *logs]))
        return len(list((folder / "state/logs").glob("attempt-*")))
    finally:
        stage.close()


async def saved(folder: Path, number: int) -> None:
    """Return when there are so many checkpoints; the framework is given time to finish the last."""
    while len([path for path in folder.iterdir() if not path.name.endswith(".tmp")]) < number:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.3)


def compare(name: str) -> str:
    """What is wrong; empty where nothing is."""
    script = TRAINERS / f"{name}.py"
    with tempfile.TemporaryDirectory(prefix="healthd-launched-") as scratch:
        folder = Path(scratch)
        by_torchrun(script, folder / "torchrun")
        attempts = asyncio.run(by_healthd(script, folder / "healthd"))
        worlds = {path.read_text() for path in folder.glob("*/world-*")}
        weights = [torch.load(folder / launcher / "weights.pt") for launcher in ("torchrun", "healthd")]
        equal = weights[0].keys() == weights[1].keys() and all(
            torch.equal(weights[0][key], weights[1][key]) for key in weights[0]
        )
    if worlds != {str(RANKS)}:
        return f"worlds of {worlds}"
    if attempts != 2:
        return f"{attempts} attempts"
    return "" if equal else "other weights"


def main() -> int:
    """Read the command line and compare."""
    driver.PATIENCE = LONGEST
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(SCRIPTS))
    failed = 0
    for name in parser.parse_args().names:
        package = SCRIPTS[name]
        if importlib.util.find_spec(package) is None:
            print(f"{name}: LEFT OUT, {package} is not installed")
            continue
        began = time.monotonic()
        wrong = compare(name)
        failed += bool(wrong)
        version = importlib.metadata.version(package)
        print(f"{name} ({package} {version}): {wrong or 'as torchrun'} in {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
