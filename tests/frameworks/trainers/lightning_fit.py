"""Lightning's Trainer."""

# mypy: ignore-errors
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

from tests.frameworks.trainers.task import BATCH, EPOCHS, RANKS, data, finish, loss_of, model


class Layer(lightning.LightningModule):
    """One linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = model()

    def training_step(self, batch: Any, _index: int) -> Any:
        """One step."""
        return loss_of(self.layer, batch)

    def configure_optimizers(self) -> Any:
        """Adam, as the others."""
        return torch.optim.Adam(self.parameters(), lr=0.05)


def main() -> None:
    """One rank."""
    folder = Path(sys.argv[1])
    saves = ModelCheckpoint(dirpath=folder, save_top_k=-1, every_n_epochs=1, filename="{epoch}-{step}")
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("DEVICES", str(RANKS))),
        strategy="ddp",
        max_epochs=EPOCHS,
        callbacks=[saves],
        logger=False,
        enable_progress_bar=False,
    )
    layer = Layer()
    loader = DataLoader(data(), batch_size=BATCH, shuffle=False)
    trainer.fit(layer, loader, ckpt_path=os.environ.get("HEALTHD_RESUME_FROM"))
    finish(folder, layer.layer.state_dict(), trainer.world_size)


main()
