"""
Write checkpoints of training frameworks under `real/` with the real libraries.

`python make_framework_fixtures.py DIR [PACKAGE...]`

Run by hand in an environment with torch (CPU) and the frameworks; the tests read what is committed and need none of it.
A framework that is not installed is left out. Each row of `WRITERS` is one framework.
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import multiprocessing as processes


def deepspeed_rank(rank: int, world: int, root: str, stage: int) -> None:
    """One rank of a run that saves its steps 2 and 3."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    set_ranks(rank, world, port=29600 + stage)
    import deepspeed

    deepspeed.init_distributed("gloo")
    torch.manual_seed(7)
    model = torch.nn.Linear(4, 2)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": True},
    }
    optimizer = torch.optim.AdamW(model.parameters())
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for step in range(1, 4):
        engine.backward(engine(torch.randn(1, 4).bfloat16()).float().sum())
        engine.step()
        if step >= 2:
            engine.save_checkpoint(root)


def write_deepspeed(root: Path) -> None:
    """ZeRO 2 with two steps, so that shards can be swapped, and ZeRO 3."""
    for stage in (2, 3):
        folder = root / f"deepspeed-zero{stage}"
        processes.spawn(deepspeed_rank, args=(2, str(folder), stage), nprocs=2)
        for script in folder.glob("*.py"):
            script.unlink()
    shutil.rmtree(root / "deepspeed-zero3" / "global_step2")


def megatron_rank(rank: int, world: int, root: str) -> None:
    """One rank of a run that saves iterations 10 and 20."""
    set_ranks(rank, world, port=29700)
    torch.cuda.synchronize = lambda *_: None  # the library takes a GPU for granted; its files are the same without
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    torch.distributed.init_process_group("gloo")
    from megatron.core.dist_checkpointing import ShardedObject, ShardedTensor
    from megatron.core.dist_checkpointing.serialization import save

    torch.manual_seed(7)
    for iteration in (10, 20):
        folder = f"{root}/iter_{iteration:07}"
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - both ranks at once
        state = {
            "model": {"w": ShardedTensor.from_rank_offsets("w", torch.randn(4, 4) + rank, (0, rank, world))},
            "rng_state": ShardedObject("rng_state", [rank] * 4, (world,), (rank,)),
            "iteration": iteration,
            "args": argparse.Namespace(tensor_model_parallel_size=world, iteration=iteration),
        }
        save(state, folder, ("torch_dist", 1))
        torch.distributed.barrier()


def write_megatron(root: Path) -> None:
    """`torch_dist` by megatron-core; the legacy layout is written by the trainer, which is no package."""
    processes.spawn(megatron_rank, args=(2, str(root / "megatron-dist")), nprocs=2)


def a_hugging_face_trainer(root: str, **options: object) -> object:
    """A trainer of the smallest of models."""
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=8,
        hidden_size=4,
        intermediate_size=4,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=8,
    )
    rows = [{"input_ids": torch.arange(4), "labels": torch.arange(4)}] * 64
    quiet = {"report_to": [], "disable_tqdm": True}
    args = TrainingArguments(output_dir=root, per_device_train_batch_size=1, use_cpu=True, **quiet, **options)
    return Trainer(model=LlamaForCausalLM(config), args=args, train_dataset=rows)


def trainer_rank(rank: int, world: int, root: str) -> None:
    """One rank of a run of the Hugging Face Trainer that saves its steps 2 and 4."""
    set_ranks(rank, world, port=29800)
    a_hugging_face_trainer(root, max_steps=4, save_steps=2, logging_steps=2, ddp_backend="gloo").train()


def write_trainer(root: Path) -> None:
    """Two ranks; of its two steps the newer."""
    processes.spawn(trainer_rank, args=(2, str(root / "trainer")), nprocs=2)
    shutil.rmtree(root / "trainer" / "checkpoint-2")


def accelerate_rank(rank: int, world: int, root: str) -> None:
    """One rank that saves its state twice."""
    set_ranks(rank, world, port=29801)
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration

    torch.manual_seed(7)
    naming = ProjectConfiguration(project_dir=root, automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, project_config=naming)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    accelerator.backward(model(torch.randn(1, 4)).sum())
    optimizer.step()
    accelerator.save_state()
    accelerator.save_state()


def write_accelerate(root: Path) -> None:
    """Two ranks; of its two saves the newer."""
    processes.spawn(accelerate_rank, args=(2, str(root)), nprocs=2)
    (root / "checkpoints").rename(root / "accelerate")
    shutil.rmtree(root / "accelerate" / "checkpoint_0")


def a_lightning_trainer(root: Path, steps: int, *, weights_only: bool = False, **options: object) -> object:
    """A trainer that saves at its last step into *root*, and nothing else."""
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    save = ModelCheckpoint(dirpath=root, every_n_train_steps=steps, save_top_k=-1, save_weights_only=weights_only)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(max_steps=steps, accelerator="cpu", callbacks=[save], **quiet, **options)


def a_lightning_module(*, sharded: bool = False) -> object:
    """A small model; sharded over the ranks of the mesh when they configure it."""
    import lightning
    from torch.distributed.fsdp import fully_shard

    class Module(lightning.LightningModule):
        def configure_model(self) -> None:
            self.layer = torch.nn.Linear(4, 2)
            if sharded:
                fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])

        def training_step(self, batch: object, _: int) -> object:
            return self.layer(batch).sum()

        def configure_optimizers(self) -> object:
            return torch.optim.AdamW(self.parameters())

    return Module()


def lightning_rank(rank: int, world: int, root: str) -> None:
    """One rank of a run that saves its step 3 into a folder."""
    set_ranks(rank, world, port=29802)
    os.environ["NODE_RANK"] = "0"
    from lightning.pytorch.strategies import ModelParallelStrategy

    mesh = ModelParallelStrategy(
        process_group_backend="gloo", data_parallel_size=world, tensor_parallel_size=1, save_distributed_checkpoint=True
    )
    rows = torch.utils.data.DataLoader(torch.randn(8, 4))
    a_lightning_trainer(Path(root), 3, devices=world, strategy=mesh).fit(a_lightning_module(sharded=True), rows)


def write_lightning(root: Path) -> None:
    """A file, one with the model only, and a folder that two ranks wrote."""
    rows = torch.utils.data.DataLoader(torch.randn(8, 4))
    a_lightning_trainer(root / "lightning", 6).fit(a_lightning_module(), rows)
    a_lightning_trainer(root / "lightning-weights", 6, weights_only=True).fit(a_lightning_module(), rows)
    processes.spawn(lightning_rank, args=(2, str(root / "lightning-sharded")), nprocs=2)


def write_orbax(root: Path) -> None:
    """A step of two items by the manager, whose arrays are in OCDBT, and one with an array in each folder."""
    import numpy
    import orbax.checkpoint as orbax

    tree = {"w": numpy.arange(16, dtype=numpy.float32).reshape(4, 4), "b": numpy.zeros(4, numpy.float32), "step": 7}
    with orbax.CheckpointManager(root.absolute() / "orbax") as manager:
        items = orbax.args.Composite(state=orbax.args.StandardSave(tree), extra=orbax.args.JsonSave({"epoch": 1}))
        manager.save(20, args=items)
        manager.wait_until_finished()
    with orbax.Checkpointer(orbax.PyTreeCheckpointHandler(use_ocdbt=False)) as checkpointer:
        checkpointer.save(root.absolute() / "orbax-zarr" / "10", tree)


def a_partly_trained_engine(*, universal: bool) -> object:
    """ZeRO 2 of a model with a buffer and a frozen parameter; with *universal* it loads such checkpoints alone."""
    import deepspeed

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # is compiled for minutes, and only faster
    deepspeed.init_distributed("gloo")
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    model[0].weight.requires_grad_(False)
    model.register_buffer("scale", torch.ones(3))
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 2},
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": True},
        "checkpoint": {"load_universal": universal},
    }
    optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad])
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def universal_rank(rank: int, world: int, root: str) -> None:
    """One rank of ZeRO 2, with a buffer and a frozen parameter, whose step 3 DeepSpeed's script makes universal."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    set_ranks(rank, world, port=29603)
    from deepspeed.checkpoint import ds_to_universal

    engine = a_partly_trained_engine(universal=False)
    for step in range(1, 4):
        engine.backward(engine(torch.randn(1, 4).bfloat16()).float().sum())
        engine.step()
        if step >= 2:
            engine.save_checkpoint(root)
    if not rank:
        for step in (2, 3):
            source = f"{root}/global_step{step}"
            options = {"num_extract_workers": 1, "num_merge_workers": 1, "keep_temp_folder": False, "strict": True}
            folders = {"input_folder": source, "output_folder": f"{source}_universal", "inject_missing_state": True}
            ds_to_universal.main(argparse.Namespace(**folders, **options))
            shutil.rmtree(source)


def write_universal(root: Path) -> None:
    """Of two ranks, by `ds_to_universal`."""
    folder = root / "deepspeed-universal"
    processes.spawn(universal_rank, args=(2, str(folder)), nprocs=2)
    for leftover in (*folder.glob("*.py"), folder / "latest"):
        leftover.unlink()


def a_composer_trainer(folder: Path, steps: int, load: Path | None = None) -> object:
    """A trainer that saves every second batch."""
    import composer

    class Model(composer.ComposerModel):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, batch: object) -> object:
            return self.layer(batch)

        def loss(self, outputs: object, batch: object) -> object:
            return outputs.sum()

    torch.manual_seed(7)
    model = Model()
    return composer.Trainer(
        model=model,
        optimizers=torch.optim.AdamW(model.parameters()),
        train_dataloader=torch.utils.data.DataLoader(torch.randn(8, 4)),
        max_duration=f"{steps}ba",
        device="cpu",
        save_folder=str(folder),
        save_interval="2ba",
        load_path=str(load) if load else None,
        run_name="run",
        progress_bar=False,
    )


def write_composer(root: Path) -> None:
    """Two steps of one rank."""
    a_composer_trainer(root / "composer", 4).fit()
    (root / "composer" / "latest-rank0.pt").unlink()


def write_ray(root: Path) -> None:
    """Two steps of two workers, copied by the routine with which a worker of Ray Train reports a checkpoint."""
    import tempfile

    from ray.train import Checkpoint
    from ray.train.v2._internal.execution.storage import StorageContext

    torch.manual_seed(7)
    storage = StorageContext(root.absolute(), "ray")
    for step in (2, 4):
        for rank in range(2):
            with tempfile.TemporaryDirectory() as own:
                torch.save({"weight": torch.randn(4, 2), "step": step}, f"{own}/model-rank{rank}.pt")
                checkpoint = Checkpoint.from_directory(own)
                if not rank:
                    checkpoint.set_metadata({"step": step})
                storage.persist_current_checkpoint(checkpoint, f"checkpoint_{step:06}")
    for marker in (root / "ray").glob(".*"):
        marker.unlink()


def a_nemo_model() -> object:
    """The smallest of NeMo's."""
    from tests.frameworks.writers_torch import without_telemetry

    without_telemetry()
    from nemo.core import ModelPT
    from omegaconf import OmegaConf

    class Model(ModelPT):
        def __init__(self, cfg: object, trainer: object = None) -> None:
            super().__init__(cfg=cfg, trainer=trainer)
            self.layer = torch.nn.Linear(4, 2)

        def setup_training_data(self, train_data_config: object) -> None:
            pass

        def setup_validation_data(self, val_data_config: object) -> None:
            pass

        @classmethod
        def list_available_models(cls) -> None:
            pass

    torch.manual_seed(7)
    return Model(OmegaConf.create({"width": 4}))


def write_nemo(root: Path) -> None:
    """One archive."""
    (root / "nemo").mkdir(exist_ok=True)
    a_nemo_model().save_to(str(root / "nemo" / "step-20.nemo"))


def set_ranks(rank: int, world: int, *, port: int) -> None:
    """The environment that a launcher gives."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world)}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}


WRITERS = {
    "deepspeed": write_deepspeed,
    "deepspeed.checkpoint": write_universal,
    "megatron": write_megatron,
    "transformers": write_trainer,
    "accelerate": write_accelerate,
    "lightning": write_lightning,
    "orbax": write_orbax,
    "composer": write_composer,
    "ray": write_ray,
    "nemo": write_nemo,
}


def main(root: Path, packages: Sequence[str]) -> None:
    """Write those of the installed frameworks, or of *packages* alone."""
    root.mkdir(parents=True, exist_ok=True)
    for package, write in WRITERS.items():
        if (package in packages or not packages) and importlib.util.find_spec(package.partition(".")[0]):
            write(root)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
