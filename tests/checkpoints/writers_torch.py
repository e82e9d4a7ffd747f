"""
Writers of the torch family for `interrupted`: each saves as its framework does in use, with values that tell the step.

Run by hand, where the frameworks are installed; one that is not is left out.
"""

# mypy: ignore-errors
from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.checkpoints.interrupted import OtherValues, Run, Writer

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
    moments = {n: {"exp_avg": torch.full((WIDTH, WIDTH), -value(step, n)), "step": step} for n in range(layers)}
    return {"model": model, "optimizer": {"state": moments, "param_groups": [{"lr": 0.1}]}, "step": step}


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
}
