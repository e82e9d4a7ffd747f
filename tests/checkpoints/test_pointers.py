"""Pointers of the writers are reported when they lead elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from healthd.checkpoints.pointers import misled


@pytest.mark.parametrize(
    ("file", "text", "folder"),
    [
        ("latest", "global_step10", "global_step10"),
        ("latest", "global_step10\n", "global_step10"),
        ("latest_checkpointed_iteration.txt", "500", "iter_0000500"),
        ("latest_checkpointed_iteration.txt", "release", "release"),
        ("checkpoint", 'model_checkpoint_path: "ckpt-20"\nall_model_checkpoint_paths: "ckpt-10"\n', "ckpt-20"),
        ("checkpoint", 'model_checkpoint_path: "/runs/a/ckpt-20"', "ckpt-20"),
    ],
)
def test_a_pointer_that_leads_to_the_newest_says_nothing(tmp_path: Path, file: str, text: str, folder: str) -> None:
    (tmp_path / file).write_text(text)

    assert misled(tmp_path, str(tmp_path / folder)) == []
    assert [line.split(":")[0] for line in misled(tmp_path, "/elsewhere")] == [f"{file} leads to {folder!r}"]


def test_a_file_of_another_tool_is_no_pointer(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b"\x81\xa4step\x05")

    assert misled(tmp_path, None) == []


def test_a_torn_pointer_is_reported(tmp_path: Path) -> None:
    (tmp_path / "latest").touch()

    assert misled(tmp_path, "/a/global_step10")[0].startswith("latest leads to nothing (it is empty)")


@pytest.mark.parametrize("text", ["9" * 5000, "²", "-1", "\x1b[2J"])
def test_any_text_ends_in_a_printable_line_or_none(tmp_path: Path, text: str) -> None:
    for file in ("latest", "latest_checkpointed_iteration.txt"):
        (tmp_path / file).write_text(text)

    assert all(line.isprintable() for line in misled(tmp_path, None))


def test_a_pointer_that_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "latest")
    (tmp_path / "latest_checkpointed_iteration.txt").symlink_to("latest_checkpointed_iteration.txt")

    assert misled(tmp_path, None) == []


def test_without_pointers_there_is_nothing_to_report(tmp_path: Path) -> None:
    assert misled(tmp_path, None) == []
    assert misled(tmp_path / "nowhere", None) == []
