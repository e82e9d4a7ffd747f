"""
Writers of what is not torch, for `interrupted`: TensorFlow, Keras, Orbax, Flax, NumPy, PaddlePaddle, XGBoost, LightGBM.

Each saves as in real use, with retention where its framework has some, and what it saves is a function of the step, so
that the values of another step are seen when it is loaded.
"""

# mypy: ignore-errors
from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy

from tests.frameworks.saving import OtherValues, Run, Writer

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", OMP_NUM_THREADS="1", JAX_PLATFORMS="cpu", KERAS_BACKEND="tensorflow")
STEPS = (10, 20, 30)
SIDE = 1024
"""Of the square arrays; one has 4 MiB."""
ARRAYS = 4
KEEP = 2
ANY = -1
"""The step of a file that each save writes over."""


def values(step: int) -> dict[str, numpy.ndarray]:
    """What a writer saves for the step, 16 MiB."""
    chance = numpy.random.default_rng(step)
    return {f"layer{number}": chance.random((SIDE, SIDE), dtype="float32") for number in range(ARRAYS)}


def refuse_others(found: Mapping[str, object], step: int) -> None:
    """Raise OtherValues unless *found* is what was saved for the step, or for some step when that is not known."""
    if step == ANY:
        if not any(_same(found, values(each)) for each in STEPS):
            raise OtherValues("not those of any step")
        return
    expected = values(step)
    if not _same(found, expected):
        names = [name for name in expected if not _same({name: found.get(name)}, {name: expected[name]})]
        raise OtherValues(f"in {names}, of step {step}; there are {sorted(found)[:8]}")


def _same(found: Mapping[str, object], expected: Mapping[str, numpy.ndarray]) -> bool:
    return all(found.get(name) is not None and numpy.array_equal(found[name], expected[name]) for name in expected)


def each_step(
    save: Callable[[Path, int, object], None], make: Callable[[int], object] = values
) -> Callable[[Run], None]:
    """A writer that needs nothing but the folder, the step and what to save, which is made before the save begins."""

    def run_all(run: Run) -> None:
        for step in run.steps:
            content = make(step)
            with run.saving(step):
                save(run.root, step, content)

    return run_all


def save_npz(root: Path, step: int, arrays) -> None:
    """In place, as most scripts do."""
    numpy.savez(root / f"step-{step}.npz", **arrays)


def save_npz_renamed(root: Path, step: int, arrays) -> None:
    """Deflated, and renamed when it is whole."""
    numpy.savez_compressed(root / "tmp-step.npz", **arrays)
    (root / "tmp-step.npz").rename(root / f"step-{step}.npz")


def load_npz(path: Path, step: int) -> None:
    """All arrays of the archive."""
    with numpy.load(path) as found:
        refuse_others({name: found[name] for name in found.files}, step)


def save_npy(root: Path, step: int, arrays) -> None:
    """One file for each array, in a folder that is renamed when all are there."""
    folder = root / f"step-{step}.tmp"
    folder.mkdir()
    for name, array in arrays.items():
        numpy.save(folder / f"{name}.npy", array)
    folder.rename(root / f"step-{step}")


def load_npy(path: Path, step: int) -> None:
    """Each array."""
    refuse_others({name: numpy.load(path / f"{name}.npy") for name in values(step)}, step)


def save_with_manifest(root: Path, step: int, arrays) -> None:
    """Raw bytes, and after them a manifest with their checksums."""
    folder = root / f"step-{step}"
    folder.mkdir()
    listed = {}
    for name, array in arrays.items():
        raw = array.tobytes()
        (folder / f"{name}.raw").write_bytes(raw)
        listed[f"{name}.raw"] = {"size": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps({"files": listed}))


def load_with_manifest(path: Path, step: int) -> None:
    """As somebody reads who trusts in what the manifest lists."""
    listed = json.loads((path / "manifest.json").read_text())["files"]
    raw = {Path(name).stem: (path / name).read_bytes() for name in listed}
    refuse_others({name: numpy.frombuffer(each, "float32").reshape(SIDE, SIDE) for name, each in raw.items()}, step)


def a_state(step: int) -> dict[str, object]:
    """Of Flax, as a TrainState: parameters, a state of optax' Adam, the step."""
    params = {name: {"kernel": array} for name, array in values(step).items()}
    small = {name: {"kernel": array[:64]} for name, array in values(step).items()}
    return {
        "step": step,
        "params": params,
        "opt_state": {"0": {"count": numpy.int32(step), "mu": small, "nu": small}, "1": {}},
    }


def refuse_other_state(found: Mapping[str, object], step: int) -> None:
    """Raise OtherValues unless it is the state of the step."""
    if int(found["step"]) != int(found["opt_state"]["0"]["count"]):
        raise OtherValues("two steps in one state")
    refuse_others({name: each["kernel"] for name, each in found["params"].items()}, step)
    for moment in ("mu", "nu"):
        for name, each in found["opt_state"]["0"][moment].items():
            if not numpy.array_equal(each["kernel"], values(int(found["step"]))[name][:64]):
                raise OtherValues(f"in {moment} of {name}")


def save_msgpack(root: Path, step: int, state) -> None:
    """In place."""
    from flax import serialization

    (root / f"state-{step}.msgpack").write_bytes(serialization.to_bytes(state))


def load_msgpack(path: Path, step: int) -> None:
    """Into a state of the same names."""
    from flax import serialization

    refuse_other_state(serialization.from_bytes(a_state(STEPS[0]), path.read_bytes()), step)


def save_flax(run: Run, *, with_orbax: bool) -> None:
    """`save_checkpoint`, which keeps some; through Orbax, or without in MessagePack."""
    import flax
    from flax.training import checkpoints

    flax.config.update("flax_use_orbax_checkpointing", with_orbax)
    for step in run.steps:
        state = a_state(step)
        with run.saving(step):
            checkpoints.save_checkpoint(run.root, state, step, keep=KEEP)


def load_flax(path: Path, step: int) -> None:
    """`restore_checkpoint` of this very one; what it does not find it takes from the state that it is given."""
    from flax.training import checkpoints

    found = checkpoints.restore_checkpoint(path, a_state(1))
    if int(found["step"]) == 1:
        raise FileNotFoundError(path)
    refuse_other_state(found, step)


def save_orbax(run: Run, *, is_async: bool, ocdbt: bool = True) -> None:
    """A CheckpointManager that keeps some, each array over all processes."""
    import jax
    import orbax.checkpoint as orbax

    if run.ranks > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{run.port}", run.ranks, run.rank)
    mesh = jax.sharding.Mesh(numpy.array(jax.devices()), ("x",))
    over_all = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    options = orbax.CheckpointManagerOptions(max_to_keep=KEEP, enable_async_checkpointing=is_async)
    handler = orbax.PyTreeCheckpointHandler(use_ocdbt=ocdbt)
    with orbax.CheckpointManager(run.root, options=options, item_handlers={"state": handler}) as manager:
        for step in run.steps:
            whole = values(step)
            state = {
                name: jax.make_array_from_callback(array.shape, over_all, lambda part, array=array: array[part])
                for name, array in whole.items()
            }
            with run.saving(step):
                manager.save(step, args=orbax.args.Composite(state=orbax.args.PyTreeSave({**state, "step": step})))
                manager.wait_until_finished()


def load_orbax(path: Path, step: int) -> None:
    """The step, through a manager as a run that resumes does."""
    import orbax.checkpoint as orbax

    names = dict.fromkeys((*values(step), "step"), orbax.RestoreArgs(restore_type=numpy.ndarray))
    wanted = orbax.args.Composite(state=orbax.args.PyTreeRestore(dict.fromkeys(names, 0), restore_args=names))
    with orbax.CheckpointManager(path.parent, item_handlers={"state": orbax.PyTreeCheckpointHandler()}) as manager:
        found = manager.restore(step, args=wanted)["state"]
    if int(found.pop("step")) != step:
        raise OtherValues("of another step")
    refuse_others({name: numpy.asarray(array) for name, array in found.items()}, step)


def _tensorflow_saver(step: int):
    import tensorflow

    module = tensorflow.Module()
    module.layers = {name: tensorflow.Variable(array) for name, array in values(step).items()}
    return tensorflow.train.Checkpoint(module=module, step=tensorflow.Variable(step, dtype="int64"))


def save_tensorflow(run: Run, *, shards: bool = False, is_async: bool = False) -> None:
    """A CheckpointManager that keeps some; an asynchronous save ends when the next begins."""
    import tensorflow

    sharding = tensorflow.train.experimental.MaxShardSizePolicy(6 << 20) if shards else None
    options = tensorflow.train.CheckpointOptions(enable_async=is_async, experimental_sharding_callback=sharding)
    saver = _tensorflow_saver(STEPS[0])
    keeper = tensorflow.train.CheckpointManager(saver, str(run.root), max_to_keep=KEEP)
    for step in run.steps:
        for name, array in values(step).items():
            saver.module.layers[name].assign(array)
        saver.step.assign(step)
        with run.saving(step):
            keeper.save(checkpoint_number=step, options=options)
            if is_async:
                saver.sync()


def load_tensorflow(path: Path, step: int) -> None:
    """Into variables of the same names, all of them."""
    saver = _tensorflow_saver(0)
    saver.restore(str(path)).assert_consumed()
    if int(saver.step.numpy()) != step:
        raise OtherValues("of another step")
    refuse_others({name: variable.numpy() for name, variable in saver.module.layers.items()}, step)


def save_savedmodel(root: Path, step: int, saver) -> None:
    """A SavedModel in a folder of its own."""
    import tensorflow

    tensorflow.saved_model.save(saver.module, str(root / f"step-{step}"))


def load_savedmodel(path: Path, step: int) -> None:
    """Its variables."""
    import tensorflow

    found = tensorflow.saved_model.load(str(path)).layers
    refuse_others({name: found[name].numpy() for name in found}, step)


def _keras_model(step: int):
    """With an optimizer, both with the values of the step."""
    import keras

    layers = [keras.layers.Dense(SIDE, use_bias=False, name=name) for name in list(values(0))[:2]]
    model = keras.Sequential([keras.Input((SIDE,)), *layers])
    model.compile(optimizer="adam", loss="mse")
    model.optimizer.build(model.trainable_variables)
    _keras_assign(model, step)
    return model


def _keras_assign(model, step: int) -> None:
    whole = values(step)
    for layer in model.layers:
        layer.kernel.assign(whole[layer.name])
    for variable in model.optimizer.variables:
        if variable.shape == (SIDE, SIDE):
            variable.assign(whole["layer2"])
    model.optimizer.iterations.assign(step)


def save_keras(run: Run, *, pattern: str, weights: bool = False) -> None:
    """`ModelCheckpoint`, called at the ends of epochs as `fit` does."""
    import keras

    keeper = keras.callbacks.ModelCheckpoint(run.root / pattern, save_weights_only=weights)
    model = _keras_model(STEPS[0])
    keeper.set_model(model)
    for step in run.steps:
        _keras_assign(model, step)
        with run.saving(step):
            keeper.on_epoch_end(step - 1, {})


def save_keras_shards(run: Run) -> None:
    """Weights in several files with an index."""
    model = _keras_model(STEPS[0])
    for step in run.steps:
        _keras_assign(model, step)
        (run.root / f"step-{step}").mkdir()
        with run.saving(step):
            model.save_weights(run.root / f"step-{step}" / "model.weights.json", max_shard_size=0.005)


def load_keras(path: Path, step: int, *, optimizer: bool = True) -> None:
    """The whole model, with its optimizer."""
    import keras

    _refuse_other_model(keras.saving.load_model(path, compile=optimizer), step, optimizer=optimizer)


def load_keras_weights(path: Path, step: int) -> None:
    """Into a model of the same layers."""
    model = _keras_model(0)
    model.load_weights(path / "model.weights.json" if path.is_dir() else path)
    _refuse_other_model(model, step, optimizer=True)


def _refuse_other_model(model, step: int, *, optimizer: bool) -> None:
    found = {layer.name: layer.kernel.numpy() for layer in model.layers}
    steps = STEPS if step == ANY else (step,)
    if not any(_same(found, {name: values(each)[name] for name in ("layer0", "layer1")}) for each in steps):
        raise OtherValues("in the layers")
    if optimizer:
        reported = int(model.optimizer.iterations.numpy())
        moments = [variable.numpy() for variable in model.optimizer.variables if variable.shape == (SIDE, SIDE)]
        if reported not in steps or not all(numpy.array_equal(each, values(reported)["layer2"]) for each in moments):
            raise OtherValues("in the optimizer")


def _paddle_model(step: int):
    import paddle

    layer = paddle.nn.Sequential(*(paddle.nn.Linear(SIDE, SIDE, bias_attr=False) for _ in range(ARRAYS)))
    layer.set_state_dict({f"{number}.weight": array for number, array in enumerate(values(step).values())})
    optimizer = paddle.optimizer.Adam(parameters=layer.parameters(), learning_rate=step / 1000)
    moments = {f"moment_{name}": paddle.to_tensor(array) for name, array in values(step).items()}
    return layer, {**optimizer.state_dict(), **moments, "step": step}


def save_paddle(root: Path, step: int, made) -> None:
    """The model, then its optimizer; the two newest of each are kept."""
    import paddle

    layer, optimizer = made
    paddle.save(layer.state_dict(), str(root / f"epoch_{step}.pdparams"))
    paddle.save(optimizer, str(root / f"epoch_{step}.pdopt"))
    for suffix in (".pdparams", ".pdopt"):
        (root / f"epoch_{step - 10 * KEEP}{suffix}").unlink(missing_ok=True)


def load_paddle(path: Path, step: int) -> None:
    """Model and optimizer."""
    import paddle

    params, state = paddle.load(f"{path}.pdparams"), paddle.load(f"{path}.pdopt")
    refuse_others({f"layer{number}": params[f"{number}.weight"].numpy() for number in range(ARRAYS)}, step)
    if state["step"] != step:
        raise OtherValues("in the optimizer")
    refuse_others({name: state[f"moment_{name}"].numpy() for name in values(step)}, step)


TREES = 60
"""Of the model with which a run of boosting begins, so that a save is not over at once."""
ROWS = 20_000


def _rows() -> tuple[numpy.ndarray, numpy.ndarray]:
    chance = numpy.random.default_rng(5)
    return chance.normal(size=(ROWS, 16)).astype("float32"), chance.normal(size=ROWS)


def _once(name: str, make: Callable[[Path], None]) -> Path:
    """A file that is made once for all runs."""
    path = Path(tempfile.gettempdir()) / f"healthd-interrupted-{name}"
    if not path.exists():
        making = path.with_name(f"{os.getpid()}-{path.name}")
        make(making)
        making.rename(path)
    return path


OF_XGBOOST = {"max_depth": 10, "seed": 5, "nthread": 1, "eta": 0.05}


def _train_xgboost(rounds: int, start: Path | None = None, callbacks: tuple = ()):
    import xgboost

    features, labels = _rows()
    return xgboost.train(
        OF_XGBOOST, xgboost.DMatrix(features, labels, nthread=1), rounds, xgb_model=start, callbacks=[*callbacks]
    )


def _xgboost_start() -> Path:
    return _once("xgboost.ubj", lambda path: _renamed_after(path, _train_xgboost(TREES).save_model))


def _renamed_after(path: Path, save: Callable[[Path], None]) -> None:
    save(path.with_name(f"saving-{path.name}"))
    path.with_name(f"saving-{path.name}").rename(path)


@functools.cache
def _xgboost_expected(step: int) -> numpy.ndarray:
    """What the model of the step says to the first rows."""
    import xgboost

    def predict(path: Path) -> None:
        model = _train_xgboost(STEPS_OF_TREES[-1] + 1 - TREES, _xgboost_start())
        rows = xgboost.DMatrix(_rows()[0][:50], nthread=1)
        with path.open("wb") as file:
            numpy.save(file, [model.predict(rows, iteration_range=(0, each + 1)) for each in STEPS_OF_TREES])

    return numpy.load(_once("xgboost.npy", predict))[STEPS_OF_TREES.index(step)]


STEPS_OF_TREES = (TREES + 1, TREES + 2, TREES + 3)


def save_xgboost(run: Run, *, suffix: str) -> None:
    """`TrainingCheckPoint` of a run that goes on from a model with many trees."""
    import xgboost

    class Keeper(xgboost.callback.TrainingCheckPoint):
        default_format = suffix

        def after_iteration(self, model, epoch: int, evals_log) -> bool:
            step = epoch + self._start
            if step not in run.steps:
                return super().after_iteration(model, epoch, evals_log)
            with run.saving(step):
                return super().after_iteration(model, epoch, evals_log)

    _train_xgboost(len(run.steps) + 1, _xgboost_start(), (Keeper(run.root, interval=1),))


def load_xgboost(path: Path, step: int) -> None:
    """A booster with as many trees, that says the same."""
    import xgboost

    model = xgboost.Booster({"nthread": 1}, model_file=path)
    if model.num_boosted_rounds() != step + 1:
        raise OtherValues(f"{model.num_boosted_rounds()} rounds")
    if not numpy.allclose(model.predict(xgboost.DMatrix(_rows()[0][:50], nthread=1)), _xgboost_expected(step)):
        raise OtherValues("in its predictions")


def _train_lightgbm(rounds: int, start: Path | None = None, callbacks: tuple = ()):
    import lightgbm

    features, labels = _rows()
    parameters = {"num_leaves": 1023, "seed": 5, "num_threads": 1, "verbose": -1, "min_data_in_leaf": 3}
    rows = lightgbm.Dataset(features, labels)
    return lightgbm.train(parameters, rows, rounds, init_model=start, callbacks=[*callbacks])


def _lightgbm_start() -> Path:
    return _once("lightgbm.txt", lambda path: _train_lightgbm(TREES).save_model(path))


def save_lightgbm(run: Run) -> None:
    """Snapshots, named as the command line's are."""

    def keep(now) -> None:
        step = now.iteration + 1
        if step in run.steps:
            with run.saving(step):
                now.model.save_model(run.root / f"model.txt.snapshot_iter_{step}")

    _train_lightgbm(len(run.steps) + 1, _lightgbm_start(), (keep,))


@functools.cache
def _lightgbm_expected(step: int) -> numpy.ndarray:
    def predict(path: Path) -> None:
        model = _train_lightgbm(STEPS_OF_TREES[-1] - TREES, _lightgbm_start())
        with path.open("wb") as file:
            numpy.save(file, [model.predict(_rows()[0][:50], num_iteration=each) for each in STEPS_OF_TREES])

    return numpy.load(_once("lightgbm.npy", predict))[STEPS_OF_TREES.index(step)]


def load_lightgbm(path: Path, step: int) -> None:
    """A booster with as many trees, that says the same."""
    import lightgbm

    model = lightgbm.Booster(model_file=path)
    if model.num_trees() != step:
        raise OtherValues(f"{model.num_trees()} trees")
    if not numpy.allclose(model.predict(_rows()[0][:50], num_threads=1), _lightgbm_expected(step)):
        raise OtherValues("in its predictions")


def forget() -> None:
    """Remove what `_once` made."""
    for path in Path(tempfile.gettempdir()).glob("healthd-interrupted-*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


_ORBAX = {"[123]0": "{name}.orbax-checkpoint-tmp"}
_OF_ORBAX = {"packages": ("jax", "orbax.checkpoint"), "renames": _ORBAX}
_OF_TENSORFLOW = {"packages": ("tensorflow",), "load": load_tensorflow}
_OF_KERAS = {"packages": ("tensorflow", "keras")}
_partial = functools.partial

WRITERS: dict[str, Writer] = {
    "numpy": Writer(save=each_step(save_npz), load=load_npz),
    "numpy-renamed": Writer(save=each_step(save_npz_renamed), load=load_npz, renames={"step-*.npz": "tmp-{name}"}),
    "numpy-arrays": Writer(save=each_step(save_npy), load=load_npy, renames={"step-[123]0": "{name}.tmp"}),
    "manifest": Writer(save=each_step(save_with_manifest), load=load_with_manifest),
    "flax-msgpack": Writer(save=each_step(save_msgpack, a_state), load=load_msgpack, packages=("flax.serialization",)),
    "flax": Writer(
        save=_partial(save_flax, with_orbax=False),
        load=load_flax,
        packages=("flax.training.checkpoints",),
        renames={"checkpoint_[123]0": "checkpoint_tmp"},
    ),
    "flax-orbax": Writer(
        save=_partial(save_flax, with_orbax=True),
        load=load_flax,
        packages=("flax.training.checkpoints",),
        renames={"checkpoint_[123]0": "{name}.orbax-checkpoint-tmp"},
    ),
    "orbax": Writer(save=_partial(save_orbax, is_async=False), load=load_orbax, **_OF_ORBAX),
    "orbax-async": Writer(save=_partial(save_orbax, is_async=True), load=load_orbax, **_OF_ORBAX),
    "orbax-zarr": Writer(save=_partial(save_orbax, is_async=True, ocdbt=False), load=load_orbax, **_OF_ORBAX),
    "orbax-ranks": Writer(save=_partial(save_orbax, is_async=True), load=load_orbax, ranks=2, **_OF_ORBAX),
    "tensorflow": Writer(save=save_tensorflow, **_OF_TENSORFLOW),
    "tensorflow-shards": Writer(save=_partial(save_tensorflow, shards=True), **_OF_TENSORFLOW),
    "tensorflow-async": Writer(save=_partial(save_tensorflow, is_async=True), **_OF_TENSORFLOW),
    "savedmodel": Writer(
        save=each_step(save_savedmodel, _tensorflow_saver), load=load_savedmodel, packages=("tensorflow",)
    ),
    "keras": Writer(save=_partial(save_keras, pattern="epoch-{epoch}.keras"), load=load_keras, **_OF_KERAS),
    "keras-over": Writer(save=_partial(save_keras, pattern="last.keras"), load=load_keras, **_OF_KERAS),
    "keras-weights": Writer(
        save=_partial(save_keras, pattern="epoch-{epoch}.weights.h5", weights=True),
        load=load_keras_weights,
        **_OF_KERAS,
    ),
    "keras-shards": Writer(save=save_keras_shards, load=load_keras_weights, **_OF_KERAS),
    "keras-hdf5": Writer(
        save=_partial(save_keras, pattern="epoch-{epoch}.h5"),
        load=_partial(load_keras, optimizer=False),
        **_OF_KERAS,
    ),
    "paddle": Writer(save=each_step(save_paddle, _paddle_model), load=load_paddle, packages=("paddle",)),
    "xgboost": Writer(
        save=_partial(save_xgboost, suffix="ubj"), load=load_xgboost, packages=("xgboost",), steps=STEPS_OF_TREES
    ),
    "xgboost-json": Writer(
        save=_partial(save_xgboost, suffix="json"), load=load_xgboost, packages=("xgboost",), steps=STEPS_OF_TREES
    ),
    "lightgbm": Writer(save=save_lightgbm, load=load_lightgbm, packages=("lightgbm",), steps=STEPS_OF_TREES),
}
