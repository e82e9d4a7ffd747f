"""A loop of one's own with Accelerate."""

# mypy: ignore-errors
from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

from tests.frameworks.trainers.task import BATCH, EPOCHS, data, finish, loss_of, model


def main() -> None:
    """One rank."""
    folder = Path(sys.argv[1])
    accelerator = Accelerator(cpu=True)
    plain = model()
    layer, optimizer, loader = accelerator.prepare(
        plain, torch.optim.Adam(plain.parameters(), lr=0.05), DataLoader(data(), batch_size=BATCH, shuffle=False)
    )
    begin = 0
    if resume := os.environ.get("HEALTHD_RESUME_FROM"):
        accelerator.load_state(resume)
        begin = int(resume.rpartition("-")[2])
    for epoch in range(begin, EPOCHS):
        for batch in loader:
            optimizer.zero_grad()
            accelerator.backward(loss_of(layer, batch))
            optimizer.step()
        accelerator.save_state(str(folder / f"checkpoint-{epoch + 1}"))
        accelerator.wait_for_everyone()
    finish(folder, accelerator.unwrap_model(layer).state_dict(), accelerator.num_processes)
    accelerator.end_training()


main()
