"""Moving checkpoints aside takes nothing else along, and loses nothing."""

from __future__ import annotations

from pathlib import Path

from healthd.local.checkpoints.aside import move_aside, why_not_aside


def test_all_that_is_there_is_moved_into_a_new_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "step-1").mkdir(parents=True)
    (out / "latest").write_text("step-1")
    first = move_aside(out)
    (out / "step-2").mkdir()
    second = move_aside(out)

    assert (first, second) == (tmp_path / "out.before-1", tmp_path / "out.before-2")
    assert sorted(path.name for path in (tmp_path / "out.before-1").iterdir()) == ["latest", "step-1"]
    assert list(out.iterdir()) == []


def test_what_is_healthds_own_stays(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".healthd.lock").write_text("")

    assert move_aside(tmp_path / "out") is None
    assert move_aside(tmp_path / "not-yet") is None


def test_a_link_is_followed_so_that_nothing_leaves_its_disk(tmp_path: Path) -> None:
    (tmp_path / "disk" / "out").mkdir(parents=True)
    (tmp_path / "disk" / "out" / "step-1").write_text("")
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "out")

    assert move_aside(tmp_path / "out") == tmp_path / "disk" / "out.before-1"


def test_a_folder_that_holds_more_than_checkpoints_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "train.py").write_text("")

    assert "is where the run is started" in why_not_aside(out, ["true"], out)
    assert "holds out/train.py, which the command names" in why_not_aside(out, ["python", "out/train.py"], tmp_path)
    assert why_not_aside(out, ["python", "train.py", "--save", "out"], tmp_path) == ""


def test_a_word_of_the_command_may_be_a_link_that_leads_back_to_itself(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "loop").symlink_to("loop")

    assert why_not_aside(tmp_path / "out", ["python", "loop"], tmp_path) == ""
