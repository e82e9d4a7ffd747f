"""
Write checkpoints of what is not torch under `real/` with the real libraries: `python make_array_fixtures.py DIR`.

Run by hand in an environment with NumPy and the frameworks; the tests read what is committed and need none of it. A
framework that is not installed is left out. Each row of `WRITERS` is one framework.
"""

# mypy: ignore-errors
from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import numpy

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
SEED = 7


def weights() -> dict[str, numpy.ndarray]:
    """A few arrays of different types."""
    chance = numpy.random.default_rng(SEED)
    return {
        "dense/kernel": chance.normal(size=(4, 8)).astype("float32"),
        "dense/bias": chance.normal(size=8).astype("float16"),
        "ids": numpy.arange(12, dtype="int64").reshape(3, 4),
        "step": numpy.int64(20),
        "name": numpy.array("a text"),
    }


def write_numpy(root: Path) -> None:
    """Stored, deflated, and one array alone."""
    (root / "numpy").mkdir()
    numpy.savez(root / "numpy" / "step-10.npz", **weights())
    numpy.savez_compressed(root / "numpy" / "step-20.npz", **weights())
    (root / "numpy-arrays" / "step-20").mkdir(parents=True)
    for name, array in weights().items():
        numpy.save(root / "numpy-arrays" / "step-20" / f"{name.replace('/', '.')}.npy", array)


def write_flax(root: Path) -> None:
    """A state under the name that `save_checkpoint` gives."""
    import jax.numpy
    from flax import serialization

    (root / "flax").mkdir()
    state = {"params": {"w": jax.numpy.ones((4, 8), "bfloat16"), **weights()}, "step": 20, "rate": 0.5, "done": None}
    del state["params"]["name"]  # no array of text in Flax
    (root / "flax" / "checkpoint_20").write_bytes(serialization.to_bytes(state))


def write_tensorflow(root: Path) -> None:
    """Two steps of one run, beside each other."""
    import tensorflow

    module = tensorflow.Module()
    module.kernel = tensorflow.Variable(weights()["dense/kernel"])
    module.half = tensorflow.Variable(weights()["dense/bias"])
    module.name_of_it = tensorflow.Variable("a text")
    saver = tensorflow.train.Checkpoint(module=module, step=tensorflow.Variable(0, dtype="int64"))
    keeper = tensorflow.train.CheckpointManager(saver, str(root / "tensorflow"), max_to_keep=3)
    for step in (10, 20):
        saver.step.assign(step)
        module.kernel.assign_add(tensorflow.ones((4, 8)))
        keeper.save(checkpoint_number=step)


def a_keras_model() -> object:
    """A small model that was fit for one step, so that its optimizer has a state."""
    import keras

    keras.utils.set_random_seed(SEED)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    model.fit(numpy.ones((2, 4)), numpy.ones((2, 1)), verbose=0)
    return model


def write_keras(root: Path) -> None:
    """The archive of Keras 3, the weights alone and in shards, and HDF5 of Keras 2."""
    (root / "keras").mkdir()
    model = a_keras_model()
    model.save(root / "keras" / "epoch-20.keras")
    model.save_weights(root / "keras" / "epoch-20.weights.h5")
    model.save(root / "keras" / "epoch-20-legacy.h5")
    (root / "keras-shards" / "step-20").mkdir(parents=True)
    model.save_weights(root / "keras-shards" / "step-20" / "model.weights.json", max_shard_size=200 / 2**30)


def write_xgboost(root: Path) -> None:
    """Both kinds of file that it writes."""
    import xgboost

    (root / "xgboost").mkdir()
    rows = xgboost.DMatrix(weights()["dense/kernel"], label=numpy.arange(4))
    model = xgboost.train({"max_depth": 2, "seed": SEED}, rows, num_boost_round=5)
    for suffix in ("json", "ubj"):
        model.save_model(root / "xgboost" / f"model_5.{suffix}")


def write_lightgbm(root: Path) -> None:
    """A snapshot."""
    import lightgbm

    (root / "lightgbm").mkdir()
    chance = numpy.random.default_rng(SEED)
    rows = lightgbm.Dataset(chance.normal(size=(200, 4)), label=chance.normal(size=200))
    model = lightgbm.train({"seed": SEED, "verbose": -1, "num_leaves": 7}, rows, num_boost_round=5)
    model.save_model(root / "lightgbm" / "model.txt.snapshot_iter_5")


def write_ocdbt(root: Path) -> None:
    """The store of Orbax with nodes so small that the tree is deep, and values outside of it; without Orbax."""
    import tensorstore

    config = {"max_inline_value_bytes": 16, "max_decoded_node_bytes": 200}
    spec = {"driver": "ocdbt", "base": f"file://{root.absolute()}/ocdbt/", "config": config}
    store = tensorstore.KvStore.open(spec).result()
    with tensorstore.Transaction() as transaction:
        for number in range(30):
            store.with_transaction(transaction)[f"layer{number}.kernel/0.0"] = bytes([number]) * (8 + 4 * number)


def write_orbax(root: Path) -> None:
    """Arrays so large that their pieces lie in files of OCDBT, by both versions of Zarr."""
    import orbax.checkpoint as orbax

    chance = numpy.random.default_rng(SEED)
    for name, is_third in (("orbax-pieces", False), ("orbax-pieces-zarr3", True)):
        handler = orbax.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=is_third)
        state = {"w": chance.normal(size=(4, 300)).astype("float32"), "step": 10}
        save_args = {"w": orbax.SaveArgs(chunk_byte_size=2400), "step": orbax.SaveArgs()}
        with orbax.Checkpointer(handler) as saver:
            saver.save(root.absolute() / name / "10", orbax.args.PyTreeSave(state, save_args=save_args))


def a_paddle_model() -> tuple[object, object]:
    """A layer and its optimizer, which made one step."""
    import paddle

    paddle.seed(SEED)
    layer = paddle.nn.Linear(4, 3)
    optimizer = paddle.optimizer.Adam(parameters=layer.parameters())
    layer(paddle.ones([2, 4])).sum().backward()
    optimizer.step()
    return layer, optimizer


def write_paddle(root: Path) -> None:
    """A model and its optimizer, beside each other."""
    import paddle

    layer, optimizer = a_paddle_model()
    paddle.save(layer.state_dict(), str(root / "paddle" / "epoch_5.pdparams"))
    paddle.save(optimizer.state_dict(), str(root / "paddle" / "epoch_5.pdopt"))


WRITERS = {
    "numpy": write_numpy,
    "flax": write_flax,
    "tensorflow": write_tensorflow,
    "keras": write_keras,
    "tensorstore": write_ocdbt,
    "orbax": write_orbax,
    "paddle": write_paddle,
    "xgboost": write_xgboost,
    "lightgbm": write_lightgbm,
}


def main(root: Path) -> None:
    """Write those of the installed frameworks."""
    root.mkdir(parents=True, exist_ok=True)
    for package, write in WRITERS.items():
        if importlib.util.find_spec(package):
            write(root)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
