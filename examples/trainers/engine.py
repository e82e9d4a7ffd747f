"""Train with DeepSpeed, and resume from the checkpoint that healthd names."""

import os
from pathlib import Path

import deepspeed
import torch

from mine import dataset, model

deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo")
net = model()
engine, _, loader, _ = deepspeed.initialize(
    model=net,
    optimizer=torch.optim.AdamW(net.parameters()),
    training_data=dataset(),
    config={"train_micro_batch_size_per_gpu": 4},
)
begin = 0
if resume := os.environ.get("HEALTHD_RESUME_FROM"):
    _, mine = engine.load_checkpoint(str(Path(resume).parent), tag=Path(resume).name)
    begin = mine["epoch"]
for epoch in range(begin, 6):
    loader.data_sampler.set_epoch(epoch)
    for batch in loader:
        loss = engine(**{name: value.to(engine.device) for name, value in batch.items()})["loss"]
        engine.backward(loss)
        engine.step()
    engine.save_checkpoint("out", tag=f"global_step{engine.global_steps}", client_state={"epoch": epoch + 1})
