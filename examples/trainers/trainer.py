"""Train with the Hugging Face Trainer, and resume from the checkpoint that healthd names."""

import os

from transformers import Trainer, TrainingArguments

from mine import dataset, model

arguments = TrainingArguments(
    output_dir="out",
    num_train_epochs=6,
    per_device_train_batch_size=4,
    save_steps=4,
    save_total_limit=3,
    report_to=[],
)
trainer = Trainer(model(), arguments, train_dataset=dataset())
trainer.train(resume_from_checkpoint=os.environ.get("HEALTHD_RESUME_FROM"))
