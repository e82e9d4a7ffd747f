"""
A GPT of megatron-core over two ranks that each hold half of every layer, with Megatron's own checkpoints.

Two things stand in for a GPU, where the library asks for one: the device of its buffers, and the random state of
dropout, of which there is none. Nothing of it is imported at the top: a save starts a process that imports this file.
"""

# mypy: ignore-errors
from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from pathlib import Path

LENGTH, WORDS = 8, 32


def without_gpu() -> None:
    """What the library takes for granted."""
    import torch
    from megatron.core import tensor_parallel

    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    tensor_parallel.get_cuda_rng_tracker().fork = lambda *_: contextlib.nullcontext()


def a_gpt() -> object:
    """The same weights in every run."""
    import torch
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    torch.manual_seed(1)
    off = dict.fromkeys(("bias_dropout_fusion", "masked_softmax_fusion", "bias_activation_fusion"), False)
    config = TransformerConfig(
        num_layers=2,
        hidden_size=16,
        num_attention_heads=4,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
        **off,
    )
    return GPTModel(config, get_gpt_layer_local_spec(), vocab_size=WORDS, max_sequence_length=LENGTH)


def an_optimizer(net: object) -> object:
    """With a state, for a checkpoint is loaded into one. Gradients of zero change nothing."""
    import torch

    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for weights in net.parameters():
        weights.grad = torch.zeros_like(weights)
    optimizer.step()
    return optimizer


def sharded_state(net: object, optimizer: object, epoch: int) -> dict:
    """Of this rank, with its place in the whole."""
    from megatron.core import parallel_state
    from megatron.core.dist_checkpointing import optimizer as sharding

    groups = {"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    model, state = net.sharded_state_dict(metadata=groups), optimizer.state_dict()
    places = sharding.get_param_id_to_sharded_param_map(model, net.parameters())
    sharding.optim_state_to_sharding_state(state, places)
    return {"model": model, "optimizer": state, "iteration": epoch}


def save(state: dict, folder: Path, epoch: int) -> None:
    """As Megatron does it: the checkpoint, then the tracker."""
    import torch.distributed as dist
    from megatron.core import dist_checkpointing

    path = folder / f"iter_{epoch:07}"
    if dist.get_rank() == 0:
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
    dist.barrier()
    dist_checkpointing.save(state, str(path))
    if dist.get_rank() == 0:
        (folder / "latest_checkpointed_iteration.txt").write_text(str(epoch))


def train(net: object, optimizer: object, folder: Path) -> None:
    """From the checkpoint that healthd names to the end."""
    import torch
    from megatron.core import dist_checkpointing

    from tests.frameworks.trainers.task import BATCHES, EPOCHS, PACE

    begin = 0
    if resume := os.environ.get("HEALTHD_RESUME_FROM"):
        state = dist_checkpointing.load(sharded_state(net, optimizer, 0), resume)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["iteration"]
    places = torch.arange(LENGTH).expand(2, LENGTH)
    mask = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1)[None, None]
    for epoch in range(begin, EPOCHS):
        dice = torch.Generator().manual_seed(epoch)
        for _ in range(BATCHES):
            words = torch.randint(0, WORDS, (2, LENGTH), generator=dice)
            time.sleep(PACE)
            optimizer.zero_grad()
            net(words, places, mask, labels=words).mean().backward()
            optimizer.step()
        save(sharded_state(net, optimizer, epoch + 1), folder, epoch + 1)


def gathered(net: object) -> dict:
    """The parts of both ranks."""
    import torch
    import torch.distributed as dist

    whole = {}
    for name, value in net.named_parameters():
        parts = [torch.empty_like(value) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, value.detach().contiguous())
        whole |= {f"{name}.{rank}": part for rank, part in enumerate(parts)}
    return whole


def main() -> None:
    """One rank."""
    import torch.distributed as dist
    from megatron.core import parallel_state

    from tests.frameworks.trainers.task import finish

    without_gpu()
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=dist.get_world_size())
    net = a_gpt()
    train(net, an_optimizer(net), Path(sys.argv[1]))
    finish(Path(sys.argv[1]), gathered(net), dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
