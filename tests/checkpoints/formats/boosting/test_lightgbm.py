"""Models of LightGBM."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from healthd.checkpoints.latest import VerifyLevel, latest
from tests.checkpoints.builders import REAL, torch_zip_bytes
from tests.checkpoints.damage import cuts, word

NAME = "model.txt.snapshot_iter_5"


@pytest.fixture
def real(tmp_path: Path) -> Path:
    return Path(shutil.copy(REAL / "lightgbm" / NAME, tmp_path))


@pytest.mark.parametrize("level", VerifyLevel)
def test_what_the_real_library_wrote_holds(level: VerifyLevel) -> None:
    found = latest(REAL / "lightgbm", level=level).found

    assert found is not None
    assert (found.step, found.format) == (5, "lightgbm")


@pytest.mark.slow
def test_a_file_cut_anywhere_is_refused_unless_only_what_says_nothing_is_lost(real: Path) -> None:
    whole = real.read_bytes()
    end = whole.index(b"end of parameters") + len(b"end of parameters\n")
    held = []
    for length, content in cuts(whole, 500):
        real.write_bytes(content)
        if not word(real, level=VerifyLevel.QUICK):
            held.append(length)

    assert [length for length in held if length < end] == []
    assert len(whole) - 3 not in held


def test_a_lost_tree_is_refused_by_a_quick_check(real: Path) -> None:
    whole = real.read_bytes()
    begin, end = whole.index(b"Tree=2"), whole.index(b"Tree=3")
    real.write_bytes(whole[:begin] + whole[end:])

    assert "tree 2 is not at byte" in word(real, level=VerifyLevel.QUICK)


def test_a_tree_without_all_its_numbers_is_refused(real: Path) -> None:
    real.write_bytes(real.read_bytes().replace(b"left_child=1 3", b"left_child=1.3", 1))

    assert word(real, level=VerifyLevel.QUICK) == ""
    assert word(real) == f"{NAME}: tree 0 has not its 6 numbers of left_child"


def test_a_file_that_was_never_written_is_refused(real: Path) -> None:
    real.write_bytes(bytes(1000))

    assert "never written" in word(real)


def test_text_of_another_tool_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_text("trained on Monday")
    (tmp_path / "model.pt").write_bytes(torch_zip_bytes())

    assert word(tmp_path) == ""


@pytest.mark.parametrize(
    ("info", "reason"),
    [("[-inf:1e+05]", ""), ("none", ""), ("-1:2:30", ""), ("[1=2]", "its header"), ("", "its header")],
)
def test_what_the_header_says_of_a_feature_has_to_be_its_values(real: Path, info: str, reason: str) -> None:
    head, begin, rest = real.read_text().partition("feature_infos=")
    _, space, rest = rest.partition(" ")
    real.write_text(head + begin + info + space + rest)

    answer = word(real)

    assert reason in answer
    assert bool(reason) == bool(answer)
