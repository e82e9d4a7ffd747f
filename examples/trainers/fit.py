"""Train with Lightning, and resume from the checkpoint that healthd names."""

import os

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

from mine import dataset, model


class Training(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = model()

    def training_step(self, batch, _index):
        return self.net(**batch)["loss"]

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


trainer = lightning.Trainer(
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    strategy="ddp",
    max_epochs=6,
    callbacks=[ModelCheckpoint(dirpath="out", filename="{epoch}-{step}", save_top_k=-1)],
)
loader = DataLoader(dataset(), batch_size=4, shuffle=True)
trainer.fit(Training(), loader, ckpt_path=os.environ.get("HEALTHD_RESUME_FROM"))
