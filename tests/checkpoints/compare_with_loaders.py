"""
Damage the checkpoints under `real/`, and compare healthd's word with that of the library which wrote them.

`python -m tests.checkpoints.compare_with_loaders`, run by hand where the frameworks and healthd's own dependencies are
installed. Each file is dropped, cut at random lengths and has random bits flipped; healthd verifies with FULL, and the
library loads. Prints every case where healthd says good and the library fails, then the counts.
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import torch

from tests.checkpoints.builders import REAL, refusal

SCRATCH = Path(tempfile.mkdtemp())


def load_deepspeed(path: Path) -> None:
    """All shards of model and optimizer into one model."""
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    get_fp32_state_dict_from_zero_checkpoint(str(path.parent), tag=path.name)


def load_lightning(path: Path) -> None:
    """Resume for one step."""
    from tests.checkpoints.make_framework_fixtures import a_lightning_module, a_lightning_trainer

    rows = torch.utils.data.DataLoader(torch.randn(8, 4))
    trainer = a_lightning_trainer(SCRATCH / "out", 7)
    trainer.fit(a_lightning_module(), rows, ckpt_path=str(path), weights_only=False)


def load_trainer(path: Path) -> None:
    """Resume for one step."""
    from tests.checkpoints.make_framework_fixtures import a_hugging_face_trainer

    trainer = a_hugging_face_trainer(str(SCRATCH / "out"), max_steps=5, save_strategy="no")
    trainer.train(resume_from_checkpoint=str(path))


def load_orbax(path: Path) -> None:
    """Restore both items."""
    import orbax.checkpoint as orbax

    with orbax.CheckpointManager(str(path.parent)) as manager:
        items = orbax.args.Composite(state=orbax.args.StandardRestore(), extra=orbax.args.JsonRestore())
        manager.restore(int(path.name), args=items)


LOADERS = {
    "deepspeed-zero2/global_step3": load_deepspeed,
    "deepspeed-zero3/global_step3": load_deepspeed,
    "lightning/epoch=0-step=6.ckpt": load_lightning,
    "trainer/checkpoint-4": load_trainer,
    "orbax/20": load_orbax,
}


def damages(source: Path, times: int, chance: random.Random):
    """Pairs of a kind and a function that damages a copy in that way."""
    files = [path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file()] or [Path()]
    for file in files:
        if source.is_dir():
            yield "drop", lambda copy, file=file: (copy / file).unlink()
        size = (source / file).stat().st_size
        for _ in range(times):
            at, bit = chance.randrange(size), 1 << chance.randrange(8)
            yield "cut", lambda copy, file=file, at=at: os.truncate(copy / file, at)
            yield "flip", lambda copy, file=file, at=at, bit=bit: flip(copy / file, at, bit)


def flip(file: Path, at: int, bit: int) -> None:
    """Change one bit."""
    content = bytearray(file.read_bytes())
    content[at] ^= bit
    file.write_bytes(content)


def compare(name: str, times: int) -> None:
    """Print what became of each damage."""
    source, counts = REAL / name, Counter()
    for kind, damage in damages(source, times, random.Random(3)):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        copy = SCRATCH / "run" / source.name
        copy.parent.mkdir(parents=True)
        shutil.copytree(source, copy) if source.is_dir() else shutil.copy(source, copy)
        damage(copy)
        said = "refused" if refusal(copy) else "good"
        fails = why_it_fails(LOADERS[name], copy)
        counts[kind, said, "fails" if fails else "loads"] += 1
        if said == "good" and fails:
            print(f"{name}: {kind}: good, but {fails[:200]}")
    for (kind, said, outcome), count in sorted(counts.items()):
        print(f"{name}: {kind}: {said}, {outcome}: {count}")


def why_it_fails(load, path: Path) -> str:
    """What the library says; empty when it loads."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            load(path)
    except BaseException as error:  # the libraries raise of every kind
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(LOADERS))
    parser.add_argument("--times", type=int, default=20)
    arguments = parser.parse_args()
    for one in arguments.names:
        compare(one, arguments.times)
