"""
Damage the checkpoints under `real/`, and compare healthd's word with that of the library which wrote them.

`python -m tests.frameworks.compare_with_loaders`, run by hand where the frameworks and healthd's own dependencies are
installed. Each file is dropped, cut at random lengths, has random bits flipped, and is swapped for that of another step
where `real/` has one; healthd verifies with FULL, and the library loads, in a process of its own, for some end their
process. Prints every case where healthd says good and the
library fails, then the counts.
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import logging
import os
import random
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.checkpoints.builders import REAL
from tests.checkpoints.damage import word

SCRATCH = Path(tempfile.mkdtemp())
PATIENCE = 60
"""Seconds that a loader may take: some go in a circle."""


def load_deepspeed(path: Path) -> None:
    """All shards of model and optimizer into one model."""
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    get_fp32_state_dict_from_zero_checkpoint(str(path.parent), tag=path.name)


def load_lightning(path: Path) -> None:
    """Resume for one step."""
    import torch

    from tests.frameworks.make_framework_fixtures import a_lightning_module, a_lightning_trainer

    rows = torch.utils.data.DataLoader(torch.randn(8, 4))
    trainer = a_lightning_trainer(SCRATCH / "out", 7)
    trainer.fit(a_lightning_module(), rows, ckpt_path=str(path), weights_only=False)


def load_trainer(path: Path) -> None:
    """Resume for one step."""
    from tests.frameworks.make_framework_fixtures import a_hugging_face_trainer

    trainer = a_hugging_face_trainer(str(SCRATCH / "out"), max_steps=5, save_strategy="no")
    trainer.train(resume_from_checkpoint=str(path))


def load_universal(path: Path) -> None:
    """Resume, with one rank."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    from tests.frameworks.make_framework_fixtures import a_partly_trained_engine, set_ranks

    set_ranks(0, 1, port=29604)
    folder, _ = a_partly_trained_engine(universal=True).load_checkpoint(str(path.parent), tag=path.name)
    if folder is None:
        raise ValueError("found nothing, goes on afresh")


def load_composer(path: Path) -> None:
    """Resume, as far as the trainer is made."""
    from tests.frameworks.make_framework_fixtures import a_composer_trainer

    a_composer_trainer(SCRATCH / "out", 5, load=path)


def load_ray(path: Path) -> None:
    """What both workers saved."""
    import torch
    from ray.train import Checkpoint

    checkpoint = Checkpoint.from_directory(path)
    checkpoint.get_metadata()
    for rank in range(2):
        torch.load(path / f"model-rank{rank}.pt", weights_only=True)


def load_orbax(path: Path) -> None:
    """Restore both items."""
    import orbax.checkpoint as orbax

    with orbax.CheckpointManager(str(path.parent)) as manager:
        items = orbax.args.Composite(state=orbax.args.StandardRestore(), extra=orbax.args.JsonRestore())
        manager.restore(int(path.name), args=items)


def load_orbax_tree(path: Path) -> None:
    """A checkpoint that is one tree."""
    import orbax.checkpoint as orbax

    with orbax.Checkpointer(orbax.PyTreeCheckpointHandler()) as saver:
        saver.restore(path.absolute())


def load_numpy(path: Path) -> None:
    """Every array."""
    import numpy

    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        found = numpy.load(file)
        if file.suffix == ".npz":
            for name in found.files:
                found[name]


def load_flax(path: Path) -> None:
    """As a state of the same names."""
    from flax import serialization

    state = serialization.msgpack_restore(path.read_bytes())
    whole = serialization.msgpack_restore((REAL / "flax" / path.name).read_bytes())
    serialization.from_state_dict(whole, state)


def load_tensorflow(path: Path) -> None:
    """Every variable."""
    import tensorflow

    reader = tensorflow.train.load_checkpoint(str(path / "ckpt-20"))
    for name in reader.get_variable_to_shape_map():
        reader.get_tensor(name)


def load_keras(path: Path) -> None:
    """The model, or the weights into a model."""
    import keras

    from tests.frameworks.make_array_fixtures import a_keras_model

    if path.is_dir() or path.name.endswith(".weights.h5"):
        a_keras_model().load_weights(path / "model.weights.json" if path.is_dir() else path)
    else:
        keras.saving.load_model(path, compile=path.suffix == ".keras")  # of HDF5 it no longer finds the name of a loss


def load_paddle(path: Path) -> None:
    """Model and optimizer into new ones."""
    import paddle

    from tests.frameworks.make_array_fixtures import a_paddle_model

    layer, optimizer = a_paddle_model()
    layer.set_state_dict(paddle.load(str(path / "epoch_5.pdparams")))
    optimizer.set_state_dict(paddle.load(str(path / "epoch_5.pdopt")))


def load_xgboost(path: Path) -> None:
    """A booster, which then tells something."""
    import numpy
    import xgboost

    model = xgboost.Booster(model_file=str(path))
    model.predict(xgboost.DMatrix(numpy.zeros((2, 8))))


def load_lightgbm(path: Path) -> None:
    """A booster, which then tells something."""
    import lightgbm
    import numpy

    lightgbm.Booster(model_file=str(path)).predict(numpy.zeros((2, 4)))


LOADERS = {
    "deepspeed-zero2/global_step3": load_deepspeed,
    "deepspeed-zero3/global_step3": load_deepspeed,
    "lightning/epoch=0-step=6.ckpt": load_lightning,
    "trainer/checkpoint-4": load_trainer,
    "deepspeed-universal/global_step3_universal": load_universal,
    "composer/ep0-ba4-rank0.pt": load_composer,
    "ray/checkpoint_000004": load_ray,
    "orbax/20": load_orbax,
    "orbax-zarr/10": load_orbax_tree,
    "orbax-pieces/10": load_orbax_tree,
    "orbax-pieces-zarr3/10": load_orbax_tree,
    "numpy/step-10.npz": load_numpy,
    "numpy/step-20.npz": load_numpy,
    "numpy-arrays/step-20": load_numpy,
    "flax/checkpoint_20": load_flax,
    "tensorflow": load_tensorflow,
    "keras/epoch-20.keras": load_keras,
    "keras/epoch-20.weights.h5": load_keras,
    "keras/epoch-20-legacy.h5": load_keras,
    "keras-shards/step-20": load_keras,
    "paddle": load_paddle,
    "xgboost/model_5.json": load_xgboost,
    "xgboost/model_5.ubj": load_xgboost,
    "lightgbm/model.txt.snapshot_iter_5": load_lightgbm,
}


IMPORTS = {
    "ray": ("torch", "ray.train"),
    "deepspeed-universal": ("deepspeed", "torch._dynamo"),
    "trainer": ("transformers", "torch._dynamo"),
}
"""What the loaders of a folder need, where that is not its name."""
BUNDLES = {"tensorflow": "ckpt-20", "paddle": "epoch_5"}
"""Of files beside each other, what stands for those of one step."""
NOT_OF_THE_STEP = ("checkpoint", "ckpt-10.")
"""Files of TensorFlow's folder that the loader of step 20 does not look at."""


def damages(source: Path, times: int, chance: random.Random):
    """Pairs of a kind and a function that damages a copy in that way."""
    files = [path.relative_to(source) for path in sorted(source.rglob("*")) if path.is_file()] or [Path()]
    if source.name == "tensorflow":
        files = [file for file in files if not str(file).startswith(NOT_OF_THE_STEP)]
    for file in files:
        if other := of_another_step(source, file):
            yield "swap", lambda copy, file=file, other=other: shutil.copy(other, copy / file)
        if source.is_dir():
            yield "drop", lambda copy, file=file: (copy / file).unlink()
        size = (source / file).stat().st_size
        for _ in range(times):
            at, bit = chance.randrange(size), 1 << chance.randrange(8)
            yield "cut", lambda copy, file=file, at=at: os.truncate(copy / file, at)
            yield "flip", lambda copy, file=file, at=at, bit=bit: flip(copy / file, at, bit)


def of_another_step(source: Path, file: Path) -> Path | None:
    """The same file of another step beside *source*, when it is not the same to the byte."""
    number = re.compile(r"\d+")
    for other in sorted(source.parent.iterdir()):
        alike = other != source and number.sub("0", other.name) == number.sub("0", source.name)
        if alike and (other / file).is_file() and (other / file).read_bytes() != (source / file).read_bytes():
            return other / file
    return None


def flip(file: Path, at: int, bit: int) -> None:
    """Change one bit."""
    content = bytearray(file.read_bytes())
    content[at] ^= bit
    file.write_bytes(content)


def compare(name: str, times: int) -> None:
    """Print what became of each damage."""
    source, counts = REAL / name, Counter()
    folder = name.partition("/")[0]
    for package in IMPORTS.get(folder, (folder,)):
        with contextlib.suppress(ImportError):  # once, and not in each process
            importlib.import_module(package)
    for kind, damage in damages(source, times, random.Random(3)):
        shutil.rmtree(SCRATCH, ignore_errors=True)
        copy = SCRATCH / "run" / source.name
        copy.parent.mkdir(parents=True)
        shutil.copytree(source, copy) if source.is_dir() else shutil.copy(source, copy)
        damage(copy)
        said = "refused" if word(copy / BUNDLES.get(name, "")) else "good"
        fails = why_it_fails(LOADERS[name], copy)
        counts[kind, said, "fails" if fails else "loads"] += 1
        if said == "good" and fails:
            print(f"{name}: {kind}: good, but {fails[:200]}")
    for (kind, said, outcome), count in sorted(counts.items()):
        print(f"{name}: {kind}: {said}, {outcome}: {count}")


def why_it_fails(load, path: Path) -> str:
    """What the library says, or what ended its process; empty when it loads."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(PATIENCE)
        os.write(writer, _try(load, path).encode()[:2000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as reported:
        reason = reported.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return reason or (f"ended by {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else "")


def _try(load, path: Path) -> str:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
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
