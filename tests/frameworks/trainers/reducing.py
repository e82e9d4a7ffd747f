"""
Ranks that reduce gradients over gloo, step after step, for ever: `python reducing.py RANK ADDRESS…`.

Each prints a line when it has done a step. The addresses are those of the ranks, on eth0; the store is with rank 0.
"""

# mypy: ignore-errors
from __future__ import annotations

import os
import random
import sys
import time

import torch
import torch.distributed as dist

rank, addresses = int(sys.argv[1]), sys.argv[2:]
torch.set_num_threads(1)
os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
dist.init_process_group("gloo", init_method=f"tcp://{addresses[0]}:29500", rank=rank, world_size=len(addresses))
gradients = torch.ones(random.Random(0).choice([1_000, 100_000]))
while True:
    time.sleep(random.uniform(0, 0.05))
    dist.all_reduce(gradients)
    gradients.fill_(1.0)
    print("step", flush=True)
