"""
Write the checkpoints under `real/` with the real libraries: `python make_torch_fixtures.py DIR`.

Run by hand in an environment with torch and safetensors; the tests read what is committed and need neither.
"""

# mypy: ignore-errors
from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as processes
from safetensors.torch import save_file
from torch.distributed._shard.sharded_tensor import init_from_local_shards  # noqa: F401 - registers its types
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def a_state() -> dict[str, object]:
    """Small tensors of several types, and what trainers keep beside them."""
    torch.manual_seed(7)
    return {
        "model": {"weight": torch.randn(4, 8), "bias": torch.zeros(4, dtype=torch.bfloat16)},
        "optimizer": {"step": torch.tensor(10), "lr": 0.1, "betas": (0.9, 0.95)},
        "rng": torch.get_rng_state()[:16].clone(),
    }


def write_sharded(rank: int, world: int, path: str) -> None:
    """One rank of a gang that writes one torch.distributed.checkpoint directory."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "RANK": str(rank), "WORLD_SIZE": str(world)}
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (world,))
    state = a_state()
    state["model"]["weight"] = distribute_tensor(state["model"]["weight"], mesh, [Shard(0)])
    dcp.save(state, checkpoint_id=path)
    dist.destroy_process_group()


def write_each_alone(rank: int, world: int, path: str) -> None:
    """One rank of a gang that saves without telling the others."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512", "RANK": str(rank), "WORLD_SIZE": str(world)}
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    dcp.save({"model": {f"w{rank}": torch.randn(4, 4)}, "step": 10}, checkpoint_id=path, use_collectives=False)
    dist.barrier()
    dist.destroy_process_group()


def main(root: Path) -> None:
    """Write them all; with relative names, since torch writes the path into its metadata."""
    root.mkdir(parents=True, exist_ok=True)
    os.chdir(root)
    root = Path()
    torch.save(a_state(), root / "ckpt-10.pt")
    torch.save(a_state(), root / "legacy-10.pt", _use_new_zipfile_serialization=False)
    torch.serialization.set_crc32_options(False)
    torch.save(a_state(), root / "nocrc-10.pt")
    torch.serialization.set_crc32_options(True)
    save_file(a_state()["model"], root / "model-10.safetensors", metadata={"format": "pt"})
    dcp.save(a_state(), checkpoint_id=root / "step-10-single", no_dist=True)
    processes.spawn(write_sharded, args=(4, str(root / "step-10-four-ranks")), nprocs=4)
    processes.spawn(write_each_alone, args=(2, str(root / "step-10-each-rank")), nprocs=2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
