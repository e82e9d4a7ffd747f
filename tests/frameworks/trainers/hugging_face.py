"""The Hugging Face Trainer."""

# mypy: ignore-errors
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

from tests.frameworks.trainers.task import BATCH, BATCHES, EPOCHS, data, finish, loss_of, model


class Layer(torch.nn.Module):
    """One linear layer, which answers with its loss as the Trainer expects."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = model()

    def forward(self, inputs: Any, wanted: Any) -> dict[str, Any]:
        """One step."""
        return {"loss": loss_of(self.layer, (inputs, wanted))}


def collate(rows: list[Any]) -> dict[str, Any]:
    """One batch."""
    inputs, wanted = zip(*rows, strict=True)
    return {"inputs": torch.stack(inputs), "wanted": torch.stack(wanted)}


def main() -> None:
    """One rank."""
    folder = Path(sys.argv[1])
    arguments = TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        per_device_train_batch_size=BATCH,
        num_train_epochs=EPOCHS,
        save_steps=BATCHES,
        learning_rate=0.05,
        lr_scheduler_type="constant",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = Trainer(Layer(), arguments, train_dataset=data(), data_collator=collate)
    trainer.train(resume_from_checkpoint=os.environ.get("HEALTHD_RESUME_FROM"))
    finish(folder, trainer.accelerator.unwrap_model(trainer.model).state_dict(), trainer.args.world_size)


main()
