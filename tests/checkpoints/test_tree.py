"""The files of one checkpoint: names that others write, and files of one kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from healthd.checkpoints.tree import Damaged, inside, survey


@pytest.mark.parametrize("name", ["a/b", "a//b", "./a/b", "a/./b", "a/b/"])
def test_one_file_has_one_name_however_it_is_written(name: str) -> None:
    assert inside("", name, named_by="index") == "a/b"


def test_a_name_is_relative_to_the_folder_of_who_reports_it() -> None:
    assert inside("model", "./b", named_by="index") == "model/b"


@pytest.mark.parametrize("name", ["", ".", "/etc/passwd", "../b", "a/../b", "a\0b"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(Damaged, match="not inside the checkpoint"):
        inside("", name, named_by="index")


def test_files_that_differ_by_numbers_are_one_kind(tmp_path: Path) -> None:
    for name in ("rank-1.pt", "rank-12.pt", "rank-2.pt", "config.json"):
        (tmp_path / name).touch()
    tree = survey(tmp_path)

    assert sorted(sorted(names) for names in tree.kinds.values()) == [
        ["config.json"],
        ["rank-1.pt", "rank-2.pt"],
        ["rank-12.pt"],
    ]
    assert tree.owned(lambda filename: filename.endswith(".pt")) == ["rank-1.pt", "rank-12.pt", "rank-2.pt"]
