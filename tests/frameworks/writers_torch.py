"""
Writers of the torch family for `interrupted`: each saves as its framework does in use, with values that tell the step.

Run by hand, where the frameworks are installed; one that is not is left out.
"""

# mypy: ignore-errors
from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.frameworks.saving import OtherValues, Run, Writer, free_port

os.environ["DS_ACCELERATOR"] = "cpu"
PATIENCE = 50
"""Seconds that a rank may take to load."""
KEPT = 2
"""Steps that a writer keeps, where it deletes by itself."""
WIDTH = 512
"""A layer is a square of this, 1 MB."""
LAYERS = 8


def value(step: int, layer: int) -> float:
    """What each number of a layer is at a step, the same in every precision."""
    return step + layer / 16


def a_state(step: int, *, layers: int = LAYERS) -> dict[str, object]:
    """Model and optimizer of a step: 16 MB."""
    import torch

    model = {f"layer.{n}.weight": torch.full((WIDTH, WIDTH), value(step, n)) for n in range(layers)}
    moments = {
        f"layer.{n}": {"exp_avg": torch.full((WIDTH, WIDTH), -value(step, n)), "step": step} for n in range(layers)
    }
    return {"model": model, "optimizer": {"state": moments, "rate": 1 / step if step else 0}, "step": step}


def expect(found: object, wanted: object, place: str = "") -> None:
    """Raise OtherValues when a nest of dictionaries, lists, tensors and plain values is not as it was saved."""
    import torch

    if isinstance(wanted, dict):
        for key, inner in wanted.items():
            expect(found[key], inner, f"{place}/{key}")
    elif isinstance(wanted, torch.Tensor):
        if found.shape != wanted.shape or not torch.equal(found.to(wanted.dtype), wanted):
            raise OtherValues(place)
    elif isinstance(wanted, list):
        for number, inner in enumerate(wanted):
            expect(found[number], inner, f"{place}/{number}")
    elif found != wanted:
        raise OtherValues(f"{place}: {found!r}, not {wanted!r}")


def delete_old(run: Run, name: str) -> None:
    """Retention of one's own: after a save all but the last are deleted; *name* is for `format`."""
    for step in run.steps:
        later = [s for s in run.steps if s > step and (run.root / name.format(s)).exists()]
        if len(later) >= KEPT:
            path = run.root / name.format(step)
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def save_plain(run: Run, *, renamed: bool) -> None:
    """`torch.save` straight to the name, or to a temporary name which is then renamed."""
    import torch

    for step in run.steps:
        state, path = a_state(step), run.root / f"ckpt-{step}.pt"
        with run.saving(step):
            if renamed:
                torch.save(state, path.with_suffix(".pt.tmp"))
                path.with_suffix(".pt.tmp").rename(path)
            else:
                torch.save(state, path)
            delete_old(run, "ckpt-{}.pt")


def load_plain(path: Path, step: int) -> None:
    """All of it, with the safe unpickler."""
    import torch

    expect(torch.load(path, weights_only=True), a_state(step))


@contextlib.contextmanager
def gloo(run: Run) -> Iterator[None]:
    """This rank among the others, as a launcher starts it."""
    import torch.distributed as dist

    set_ranks(run)
    dist.init_process_group("cpu:gloo", init_method=f"tcp://127.0.0.1:{run.port}", rank=run.rank, world_size=run.ranks)
    yield
    dist.barrier()
    dist.destroy_process_group()


def set_ranks(run: Run) -> None:
    """The environment that a launcher gives."""
    rank, ranks = str(run.rank), str(run.ranks)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(run.port), "WORLD_SIZE": ranks, "RANK": rank}
    os.environ |= {"LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks, "NODE_RANK": "0", "OMP_NUM_THREADS": "1"}


def a_sharded_state(run: Run, step: int) -> dict[str, object]:
    """The state with each tensor cut over the ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (run.ranks,))
    state = a_state(step)
    cut = partial(distribute_tensor, device_mesh=mesh, placements=[Shard(0)])
    model = {name: cut(tensor) for name, tensor in state["model"].items()}
    moments = {n: {**each, "exp_avg": cut(each["exp_avg"])} for n, each in state["optimizer"]["state"].items()}
    return {**state, "model": model, "optimizer": {**state["optimizer"], "state": moments}}


def save_dcp(run: Run, *, asynchronous: bool = False) -> None:
    """`torch.distributed.checkpoint` of several ranks, in one go or in the background."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    with gloo(run):
        for step in run.steps:
            state, path = a_sharded_state(run, step), run.root / f"step-{step}"
            with run.saving(step):
                if asynchronous:
                    dcp.async_save(state, checkpoint_id=path).result()
                else:
                    dcp.save(state, checkpoint_id=path)
                dist.barrier()
                if not run.rank:
                    delete_old(run, "step-{}")


def save_dcp_again(run: Run) -> None:
    """All steps over each other into one folder, whose name tells none."""
    import torch.distributed.checkpoint as dcp

    with gloo(run):
        for step in run.steps:
            state = a_sharded_state(run, step)
            with run.saving(step):
                dcp.save(state, checkpoint_id=run.root / "step-10")


def load_dcp(path: Path, step: int) -> None:
    """Into a state of one process."""
    import torch.distributed.checkpoint as dcp

    state = a_state(0)
    dcp.load(state, checkpoint_id=path, no_dist=True)
    expect(state, a_state(step))


def load_dcp_again(path: Path, step: int) -> None:
    """Whichever step it is, but all of one."""
    import torch.distributed.checkpoint as dcp

    state = a_state(0)
    dcp.load(state, checkpoint_id=path, no_dist=True)
    expect(state, a_state(state["step"]))


def a_model() -> object:
    """Whose loss grows by one with each of its numbers, so that all are known after any number of steps of Adam."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            zeros = (torch.nn.Parameter(torch.zeros(WIDTH, 2 * WIDTH)) for _ in range(4))
            self.layers = torch.nn.ParameterList(zeros)

        def forward(self, *_: object, **__: object) -> dict[str, object]:
            return {"loss": sum(layer.sum() for layer in self.layers)}

    return Model()


def an_adam(model: object) -> object:
    """Takes one from each number at each step."""
    import torch

    return torch.optim.Adam(model.parameters(), lr=1.0, foreach=False)


def train(model: object, optimizer: object) -> None:
    """One step."""
    model()["loss"].backward()
    optimizer.step()
    optimizer.zero_grad()


def expect_trained(model: object, optimizer: object, step: int) -> None:
    """Raise OtherValues when not every number of a model and its Adam is that after *step* steps."""
    model_state = dict(model.items()) if isinstance(model, dict) else model.state_dict()
    for name, tensor in model_state.items():
        expect_all(tensor, -step, name)
    states = optimizer.state_dict()["state"] if optimizer is not None else {}
    if optimizer is not None and not states:
        raise OtherValues("no optimizer")
    for name, state in states.items():
        expect_all(state["exp_avg"], 1 - 0.9**step, f"exp_avg of {name}")
        expect_all(state["exp_avg_sq"], 1 - 0.999**step, f"exp_avg_sq of {name}")
        expect_all(state["step"], step, f"step of {name}")


def expect_all(tensor: object, wanted: float, name: str) -> None:
    """Raise OtherValues when not all numbers are this one, to the precision of bfloat16."""
    import torch

    tensor = torch.as_tensor(tensor).float()
    tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    if not torch.allclose(tensor, torch.tensor(float(wanted)), rtol=0.01, atol=1e-5):
        raise OtherValues(f"{name}: {tensor.min():.4f} to {tensor.max():.4f}, not {wanted:.4f}")


def in_ranks(ranks: int, work: Callable[[Run], None]) -> None:
    """Do it in processes that meet each other; raises what the first of them raised."""
    run = partial(Run, Path(), ranks=ranks, steps=(), port=free_port(), reported=-1)
    reader, reported = os.pipe()
    pids = []
    for rank in range(ranks):
        pids.append(os.fork())
        if not pids[-1]:
            signal.alarm(PATIENCE)
            try:
                work(run(rank=rank))
            except BaseException as error:
                os.write(reported, f"{type(error).__name__}: {error}\0".encode()[:2000])
            os._exit(0)
    os.close(reported)
    with os.fdopen(reader, "rb") as said:
        first = said.read().decode(errors="replace").partition("\0")[0]
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    if first.startswith(OtherValues.__name__):
        raise OtherValues(first)
    if first or any(statuses):
        raise RuntimeError(first or f"a rank ended with {statuses}")


def a_fully_sharded(run: Run) -> tuple[object, object, object]:
    """Model and optimizer over all ranks, and how to get their states."""
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = a_model()
    fully_shard(model, mesh=init_device_mesh("cpu", (run.ranks,)))
    optimizer = an_adam(model)
    return model, optimizer, partial(get_state_dict, model, optimizer)


def save_fsdp(run: Run) -> None:
    """FSDP 2, saved as torch's own recipes do: the states of model and optimizer by their names."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    with gloo(run):
        model, optimizer, states = a_fully_sharded(run)
        for step in range(1, max(run.steps) + 1):
            train(model, optimizer)
            if step in run.steps:
                weights, moments = states()
                with run.saving(step):
                    dcp.save({"model": weights, "optimizer": moments, "step": step}, checkpoint_id=run.root / str(step))
                    dist.barrier()
                    if not run.rank:
                        delete_old(run, "{}")


def load_fsdp(path: Path, step: int) -> None:
    """Into one process that does not shard."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    model = a_model()
    optimizer = an_adam(model)
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "step": 0}
    dcp.load(state, checkpoint_id=path, no_dist=True)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    expect_trained(model, optimizer, step)


def save_safetensors(run: Run) -> None:
    """Shards and then their index, as the Hugging Face hub's own writer does it."""
    from huggingface_hub import save_torch_state_dict

    for step in run.steps:
        state = a_state(step)["model"]
        with run.saving(step):
            (run.root / f"step-{step}").mkdir()
            save_torch_state_dict(state, run.root / f"step-{step}", max_shard_size="3MB")
            delete_old(run, "step-{}")


def load_safetensors(path: Path, step: int) -> None:
    """By the index, as the loaders of models do."""
    from safetensors.torch import load_file

    index = json.loads((path / "model.safetensors.index.json").read_text())["weight_map"]
    loaded: dict[str, object] = {}
    for file in sorted(set(index.values())):
        loaded |= load_file(path / file)
    expect({name: loaded[name] for name in index}, a_state(step)["model"])


def a_deepspeed_engine(stage: int, *, universal: bool = False) -> object:
    """Of ZeRO, with parameters in bfloat16."""
    import deepspeed

    torch_backend = importlib.import_module("deepspeed.comm.torch")
    torch_backend.build_shm_op = lambda: None  # is compiled for two minutes, and only faster
    deepspeed.init_distributed("gloo", verbose=False)
    model = a_model()
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": True},
        "gradient_clipping": 0.0,
        "checkpoint": {"load_universal": universal},
    }
    return deepspeed.initialize(model=model, optimizer=an_adam(model), config=config)[0]


def save_deepspeed(run: Run, stage: int) -> None:
    """Every rank its files in place, then `latest`; old ones are deleted by hand, for the library does not."""
    set_ranks(run)
    engine = a_deepspeed_engine(stage)
    for step in range(1, max(run.steps) + 1):
        engine.backward(engine()["loss"])
        engine.step()
        if step in run.steps:
            with run.saving(step):
                engine.save_checkpoint(str(run.root))
                if not run.rank:
                    delete_old(run, "global_step{}")


def load_deepspeed(path: Path, step: int, stage: int) -> None:
    """Resume with as many ranks."""

    def resume(run: Run) -> None:
        set_ranks(run)
        engine = a_deepspeed_engine(stage)
        folder, _ = engine.load_checkpoint(str(path.parent), tag=path.name)
        if folder is None:
            raise OtherValues("the library found nothing and goes on afresh")
        expect_zero(engine, step)

    in_ranks(2, resume)


def expect_zero(engine: object, step: int) -> None:
    """This rank's part of the parameters, and of every tensor of the optimizer."""
    zero = engine.optimizer
    for part in getattr(zero, "single_partition_of_fp32_groups", None) or zero.fp32_partitioned_groups_flat:
        expect_all(part, -step, "master")
    if not zero.optimizer.state:
        raise OtherValues("no optimizer")
    for state in zero.optimizer.state.values():
        expect_all(state["exp_avg"], 1 - 0.9**step, "exp_avg")
        expect_all(state["exp_avg_sq"], 1 - 0.999**step, "exp_avg_sq")
    if engine.global_steps != step:
        raise OtherValues(f"of step {engine.global_steps}")


def save_megatron(run: Run, *, asynchronous: bool = False) -> None:
    """megatron-core's `torch_dist`, then the trainer's tracker."""
    import torch
    from megatron.core.dist_checkpointing.serialization import save

    with gloo(run):
        without_gpu()
        for step in run.steps:
            path = run.root / f"iter_{step:07}"
            path.mkdir(exist_ok=True)
            with run.saving(step):
                waiting = save(a_megatron_state(run.rank, run.ranks, step), str(path), async_sharded_save=asynchronous)
                if waiting is not None:
                    waiting.execute_sync()
                torch.distributed.barrier()
                if not run.rank:
                    (run.root / "latest_checkpointed_iteration.txt").write_text(str(step))
                    delete_old(run, "iter_{:07}")


def a_megatron_state(rank: int, ranks: int, step: int) -> dict[str, object]:
    """Of one rank, cut over all along the first axis."""
    import argparse

    import torch
    from megatron.core.dist_checkpointing import ShardedObject, ShardedTensor

    width = 6 * 256 // ranks
    layers = {
        f"layer.{n}": ShardedTensor.from_rank_offsets(
            f"layer.{n}", torch.full((width, 512), value(step, n)), (0, rank, ranks)
        )
        for n in range(LAYERS)
    }
    random_state = ShardedObject("rng_state", [step] * 4, (1,), (0,), replica_id=rank)
    return {"model": layers, "rng_state": random_state, "iteration": step, "args": argparse.Namespace(iteration=step)}


def load_megatron(path: Path, step: int) -> None:
    """With one rank."""
    from megatron.core.dist_checkpointing.serialization import load

    with gloo(Run(Path(), 0, 1, (), free_port(), -1)):
        without_gpu()
        wanted = a_megatron_state(0, 1, step)
        found = load(a_megatron_state(0, 1, 0), str(path))
        expect(found["model"], {name: tensor.data for name, tensor in wanted["model"].items()})
        expect({"rng": found["rng_state"], "iteration": found["iteration"]}, {"rng": [step] * 4, "iteration": step})


def without_gpu() -> None:
    """The library takes a GPU for granted; its files are the same without."""
    import torch

    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor


def a_trainer(root: Path, steps: int, every: int, **hooks: object) -> object:
    """The Hugging Face Trainer with its own retention."""
    from transformers import Trainer, TrainingArguments

    rows = [{"x": 0.0}] * 512
    arguments = TrainingArguments(
        output_dir=str(root),
        per_device_train_batch_size=1,
        max_steps=steps,
        save_steps=every,
        save_total_limit=KEPT,
        learning_rate=1.0,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        weight_decay=0.0,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        ddp_backend="gloo" if "RANK" in os.environ else None,
    )
    model = a_model()
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, optimizers=(an_adam(model), None))
    for name, hook in hooks.items():
        setattr(trainer, name, partial(hook, trainer, getattr(trainer, name)))
    return trainer


def save_trainer(run: Run) -> None:
    """Two ranks, of which the second writes its random state beside the first."""
    set_ranks(run)

    def announced(trainer: object, save: Callable, *arguments: object, **options: object) -> None:
        with run.saving(trainer.state.global_step):
            save(*arguments, **options)

    every = run.steps[0]
    a_trainer(run.root, max(run.steps), every, _save_checkpoint=announced).train()


class Resumed(Exception):
    """Ends a framework's run when all is loaded."""


def load_trainer(path: Path, step: int) -> None:
    """Resume, and look before the first step."""
    from transformers import TrainerCallback

    class Look(TrainerCallback):
        def on_train_begin(self, arguments: object, state: object, control: object, **reported: object) -> None:
            expect_trained(reported["model"], reported["optimizer"], step)
            if state.global_step != step:
                raise OtherValues(f"of step {state.global_step}")
            raise Resumed

    trainer = a_trainer(path.parent.parent / "resumed", step + 1, 1000)
    trainer.add_callback(Look())
    with contextlib.suppress(Resumed):
        trainer.train(resume_from_checkpoint=str(path))
        raise OtherValues("never began")


def an_accelerator(root: Path) -> tuple[object, object, object]:
    """With its names and its retention, and what it prepared."""
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration

    naming = ProjectConfiguration(project_dir=str(root), automatic_checkpoint_naming=True, total_limit=KEPT)
    accelerator = Accelerator(cpu=True, project_config=naming)
    model = a_model()
    return accelerator, *accelerator.prepare(model, an_adam(model))


def save_accelerate(run: Run) -> None:
    """`save_state`, which numbers from 0 on and deletes the oldest before it writes."""
    set_ranks(run)
    accelerator, model, optimizer = an_accelerator(run.root)
    for step in run.steps:
        accelerator.backward(model()["loss"])
        optimizer.step()
        optimizer.zero_grad()
        with run.saving(step):
            accelerator.save_state()
            accelerator.wait_for_everyone()


def load_accelerate(path: Path, step: int) -> None:
    """Into one process."""
    accelerator, model, optimizer = an_accelerator(path.parent.parent)
    accelerator.load_state(str(path))
    expect_trained(accelerator.unwrap_model(model), optimizer.optimizer, step + 1)


def a_lightning(root: Path, steps: int, every: int, run: Run | None = None) -> tuple[object, object]:
    """A trainer that keeps the last ones and a copy of the newest, and its module."""
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = a_model()

        def training_step(self, *_: object) -> object:
            return self.model()["loss"]

        def configure_optimizers(self) -> object:
            return an_adam(self.model)

    class Announced(ModelCheckpoint):
        def _save_checkpoint(self, trainer: object, filepath: str) -> None:
            with run.saving(trainer.global_step):
                super()._save_checkpoint(trainer, filepath)

    save = Announced(dirpath=root, every_n_train_steps=every, save_top_k=KEPT, monitor="step", mode="max")
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(max_steps=steps, accelerator="cpu", callbacks=[save], **quiet), Module()


def save_lightning(run: Run) -> None:
    """A file at a time, which Lightning renames into place."""
    import torch

    trainer, module = a_lightning(run.root, max(run.steps), run.steps[0], run)
    trainer.fit(module, torch.utils.data.DataLoader(torch.zeros(512, 1)))


def load_lightning(path: Path, step: int) -> None:
    """Resume, and look before the first step."""
    import torch

    trainer, module = a_lightning(path.parent.parent / "resumed", step + 1, 1000)

    def look() -> None:
        expect_trained(module.model, trainer.optimizers[0], step)
        if trainer.global_step != step:
            raise OtherValues(f"of step {trainer.global_step}")
        raise Resumed

    module.on_train_start = look
    with contextlib.suppress(Resumed):
        trainer.fit(module, torch.utils.data.DataLoader(torch.zeros(512, 1)), ckpt_path=str(path), weights_only=False)
        raise OtherValues("never began")


def save_universal(run: Run) -> None:
    """ZeRO 2, and of each step what `ds_to_universal` makes of it; reported is the making."""
    import torch.distributed as dist

    set_ranks(run)
    engine = a_deepspeed_engine(2)
    for step in range(1, max(run.steps) + 1):
        engine.backward(engine()["loss"])
        engine.step()
        if step in run.steps:
            source = run.root.parent / f"{run.root.name}-source"
            engine.save_checkpoint(str(source))
            if not run.rank:
                with run.saving(step):
                    to_universal(source / f"global_step{step}", run.root / f"global_step{step}_universal")
                    (run.root / "latest_universal").write_text(f"global_step{step}_universal")
                    delete_old(run, "global_step{}_universal")
            dist.barrier()
    if not run.rank:
        shutil.rmtree(run.root.parent / f"{run.root.name}-source")


def to_universal(source: Path, target: Path) -> None:
    """DeepSpeed's own script, without processes of its own."""
    import argparse

    from deepspeed.checkpoint import ds_to_universal

    options = {"num_extract_workers": 1, "num_merge_workers": 1, "keep_temp_folder": False, "strict": True}
    ds_to_universal.main(
        argparse.Namespace(input_folder=str(source), output_folder=str(target), inject_missing_state=True, **options)
    )


def load_universal(path: Path, step: int) -> None:
    """Into one rank, for that is what it is made for."""

    def resume(run: Run) -> None:
        set_ranks(run)
        engine = a_deepspeed_engine(2, universal=True)
        folder, _ = engine.load_checkpoint(str(path.parent), tag=path.name)
        if folder is None:
            raise OtherValues("the library found nothing and goes on afresh")
        expect_zero(engine, step)

    in_ranks(1, resume)


def a_composer(folder: Path, steps: int, every: int, run: Run | None = None, load: Path | None = None) -> object:
    """Composer's trainer with its own saver, retention and link to the newest."""
    import composer
    import torch
    from composer.callbacks import CheckpointSaver

    class Model(composer.ComposerModel):
        def __init__(self) -> None:
            super().__init__()
            self.inner = a_model()

        def forward(self, batch: object) -> object:
            return self.inner()["loss"]

        def loss(self, outputs: object, batch: object) -> object:
            return outputs

    class Announced(CheckpointSaver):
        def _save_checkpoint(self, state: object, logger: object) -> None:
            with run.saving(int(state.timestamp.batch)):
                super()._save_checkpoint(state, logger)

    model = Model()
    saver = Announced(folder=str(folder), save_interval=f"{every}ba", num_checkpoints_to_keep=KEPT, overwrite=True)
    return composer.Trainer(
        model=model,
        optimizers=an_adam(model),
        train_dataloader=torch.utils.data.DataLoader(torch.zeros(512, 1)),
        max_duration=f"{steps}ba",
        device="cpu",
        callbacks=[saver],
        load_path=str(load) if load else None,
        progress_bar=False,
        dist_timeout=30,
    )


def save_composer(run: Run) -> None:
    """One file of rank 0 for each step."""
    set_ranks(run)
    a_composer(run.root, max(run.steps), run.steps[0], run).fit()


def load_composer(path: Path, step: int) -> None:
    """Resume, as far as the trainer is made."""
    state = a_composer(path.parent.parent / "resumed", step, 1000, load=path).state
    expect_trained(state.model, state.optimizers[0], step)
    if int(state.timestamp.batch) != step:
        raise OtherValues(f"of batch {state.timestamp.batch}")


def save_ray(run: Run) -> None:
    """
    What Ray Train does in `report`: each worker's files copied into the one folder of the step, which is noted then.

    The routines of Ray itself without its cluster, whose processes no kill of a group would end.
    """
    import tempfile

    import torch
    import torch.distributed as dist
    from ray.train import Checkpoint, CheckpointConfig
    from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import CheckpointManager
    from ray.train.v2._internal.execution.storage import StorageContext

    with gloo(run):
        storage = StorageContext(run.root, "trial")
        manager = CheckpointManager(CheckpointConfig(num_to_keep=KEPT), storage)
        dist.barrier()
        for step in run.steps:
            with tempfile.TemporaryDirectory() as own:
                torch.save(a_state(step), f"{own}/shard-{run.rank}.pt")
                checkpoint = Checkpoint.from_directory(own)
                if not run.rank:
                    checkpoint.set_metadata({"step": step})
                dist.barrier()
                with run.saving(step):
                    saved = storage.persist_current_checkpoint(checkpoint, f"checkpoint_{step:06}")
                    dist.barrier()
                    if not run.rank:
                        asyncio.run(note(manager, saved))


async def note(manager: object, saved: object) -> None:
    """As Ray's controller does it when all workers have reported; deletes old ones, too."""
    from ray.train.v2._internal.execution.training_report import _TrainingReport

    manager.register_checkpoint(_TrainingReport(metrics={}, checkpoint=saved, validation=False))


def load_ray(path: Path, step: int) -> None:
    """Every worker's files, and the metadata."""
    import torch
    from ray.train import Checkpoint

    checkpoint = Checkpoint.from_directory(path)
    if checkpoint.get_metadata() != {"step": step}:
        raise OtherValues(f"metadata {checkpoint.get_metadata()}")
    with checkpoint.as_directory() as folder:
        for rank in range(2):
            expect(torch.load(f"{folder}/shard-{rank}.pt", weights_only=True), a_state(step))


def without_telemetry() -> None:
    """NeMo's callback for it does not fit every version of Lightning, and then nothing of NeMo can be imported."""
    import types

    class Nothing(types.ModuleType):
        def __getattr__(self, name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {})

    name = "nemo.lightning.one_logger_callback"
    sys.modules.setdefault(name, Nothing(name))


def a_nemo_model(step: int) -> object:
    """A model of NeMo with the numbers of a step."""
    import torch

    without_telemetry()
    from nemo.core import ModelPT
    from omegaconf import OmegaConf

    class Model(ModelPT):
        def __init__(self, cfg: object, trainer: object = None) -> None:
            super().__init__(cfg=cfg, trainer=trainer)
            self.inner = a_model()

        def setup_training_data(self, train_data_config: object) -> None:
            pass

        def setup_validation_data(self, val_data_config: object) -> None:
            pass

        @classmethod
        def list_available_models(cls) -> None:
            pass

    model = Model(OmegaConf.create({"width": WIDTH}))
    with torch.no_grad():
        for number, layer in enumerate(model.inner.layers):
            layer.fill_(value(step, number))
    return model


def save_nemo(run: Run) -> None:
    """`save_to`, which writes the archive in place."""
    for step in run.steps:
        model = a_nemo_model(step)
        with run.saving(step):
            model.save_to(str(run.root / f"step-{step}.nemo"))
            delete_old(run, "step-{}.nemo")


def load_nemo(path: Path, step: int) -> None:
    """What `restore_from` does before it makes the model, for which it takes classes of NeMo's own alone."""
    import tempfile

    wanted = a_nemo_model(step)
    from nemo.core.connectors.save_restore_connector import SaveRestoreConnector
    from omegaconf import OmegaConf

    connector = SaveRestoreConnector()
    with tempfile.TemporaryDirectory() as folder:
        connector._unpack_nemo_file(str(path), folder)
        expect(dict(OmegaConf.load(f"{folder}/model_config.yaml")), {"width": WIDTH})
        found = connector._load_state_dict_from_disk(f"{folder}/model_weights.ckpt")
        expect(dict(found), dict(wanted.state_dict()))


WRITERS: dict[str, Writer] = {
    "torch": Writer(save=partial(save_plain, renamed=False), load=load_plain, packages=("torch",)),
    "torch-renamed": Writer(
        save=partial(save_plain, renamed=True),
        load=load_plain,
        packages=("torch",),
        renames={"ckpt-*.pt": "{name}.tmp"},
    ),
    "dcp": Writer(
        save=save_dcp,
        load=load_dcp,
        ranks=3,
        packages=("torch.distributed.checkpoint",),
        renames={"*/.metadata": ".metadata.tmp"},
    ),
    "dcp-async": Writer(
        save=partial(save_dcp, asynchronous=True), load=load_dcp, ranks=2, packages=("torch.distributed.checkpoint",)
    ),
    "dcp-over": Writer(save=save_dcp_again, load=load_dcp_again, ranks=2, packages=("torch.distributed.checkpoint",)),
    "fsdp": Writer(
        save=save_fsdp,
        load=load_fsdp,
        ranks=2,
        steps=(2, 4, 6),
        packages=("torch.distributed.checkpoint", "torch.distributed.fsdp", "torch._dynamo"),
    ),
    "safetensors": Writer(save=save_safetensors, load=load_safetensors, packages=("huggingface_hub", "torch")),
    **{
        f"deepspeed-zero{stage}": Writer(
            save=partial(save_deepspeed, stage=stage),
            load=partial(load_deepspeed, stage=stage),
            ranks=2,
            steps=(2, 4, 6),
            packages=("deepspeed", "torch._dynamo"),
        )
        for stage in (2, 3)
    },
    "megatron": Writer(save=save_megatron, load=load_megatron, ranks=2, packages=("megatron.core.dist_checkpointing",)),
    "trainer": Writer(
        save=save_trainer, load=load_trainer, ranks=2, steps=(2, 4, 6), packages=("transformers", "torch._dynamo")
    ),
    "accelerate": Writer(
        save=save_accelerate,
        load=load_accelerate,
        ranks=2,
        steps=(0, 1, 2, 3),
        packages=("accelerate", "torch._dynamo"),
        folder="checkpoints",
    ),
    "lightning": Writer(
        save=save_lightning, load=load_lightning, steps=(2, 4, 6), packages=("lightning", "torch._dynamo")
    ),
    "deepspeed-universal": Writer(
        save=save_universal,
        load=load_universal,
        ranks=2,
        steps=(2, 4, 6),
        packages=("deepspeed", "torch._dynamo", "deepspeed.checkpoint.ds_to_universal"),
    ),
    "composer": Writer(save=save_composer, load=load_composer, steps=(2, 4, 6), packages=("composer",)),
    "ray": Writer(save=save_ray, load=load_ray, ranks=2, packages=("ray.train",), folder="trial"),
    "nemo": Writer(save=save_nemo, load=load_nemo, packages=("nemo", "torch", "omegaconf")),
}
