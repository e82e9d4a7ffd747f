"""The Job that a run is kept as, and what of it changed since it was begun."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from healthd.core.api import ANNOTATION_CHECKPOINT_FORMAT, ChosenCheckpoint, RejectedCheckpoint
from healthd.core.config import StartFresh
from healthd.gangs.job import read_job
from healthd.local.checkpoints.memory import Seen
from healthd.local.gang import RunSpec, changed_options, job_of, why_not_fresh


def a_spec(folder: Path, declared: str) -> RunSpec:
    return RunSpec(
        name="llama",
        command=["python", "train.py"],
        nproc=2,
        checkpoint=folder / "out",
        checkpoint_format=declared,
        state=folder / "state",
        working_dir=folder,
    )


def test_a_format_that_the_user_declares_is_the_one_that_checkpoints_are_verified_by(tmp_path: Path) -> None:
    declared, detected = (job_of(a_spec(tmp_path, each), ChosenCheckpoint()) for each in ("marked:DONE", ""))

    assert read_job(declared).options.checkpoint_format == "marked:DONE"
    assert ANNOTATION_CHECKPOINT_FORMAT not in detected.metadata.annotations


def test_another_declared_format_is_a_change_that_is_said(tmp_path: Path) -> None:
    begun = a_spec(tmp_path, "")
    job = job_of(begun, ChosenCheckpoint())

    assert changed_options(begun, job) == ()
    assert changed_options(dataclasses.replace(begun, checkpoint_format="marked:DONE"), job) == (
        "--checkpoint-format not set, now marked:DONE",
    )


def test_a_checkpoint_that_cannot_be_read_is_no_damaged_one_to_begin_again_without(tmp_path: Path) -> None:
    unread, damaged = (
        RejectedCheckpoint(path="/step_9", step=9, reason="model.pt: Input/output error", unread=unread)
        for unread in (True, False)
    )

    assert "may be good" in why_not_fresh(a_spec(tmp_path, ""), Seen(), [unread], StartFresh.ALWAYS)
    assert not why_not_fresh(a_spec(tmp_path, ""), Seen(), [damaged], StartFresh.ALWAYS)
