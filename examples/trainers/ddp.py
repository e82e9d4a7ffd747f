"""Train with DistributedDataParallel, and resume from the checkpoint that healthd names."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from mine import dataset, model

device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
net = DistributedDataParallel(model().to(device))
optimizer = torch.optim.AdamW(net.parameters())
begin = 0
if resume := os.environ.get("HEALTHD_RESUME_FROM"):
    state = torch.load(resume, map_location=device)
    net.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    begin = state["epoch"]
data = dataset()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
for epoch in range(begin, 6):
    sampler.set_epoch(epoch)
    for batch in loader:
        optimizer.zero_grad()
        net(**{name: value.to(device) for name, value in batch.items()})["loss"].backward()
        optimizer.step()
    if dist.get_rank() == 0:
        state = {"model": net.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
        torch.save(state, "out/saving.tmp")
        Path("out/saving.tmp").rename(f"out/epoch-{epoch + 1}.pt")
dist.destroy_process_group()
