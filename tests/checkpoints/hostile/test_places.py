"""Folders with more in them than anybody looks through, files that are not there, and those that are others by now."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from healthd.checkpoints.latest import latest
from healthd.checkpoints.steps import find
from healthd.checkpoints.stores.local import LOCAL
from healthd.checkpoints.tree import Damaged, Unstable, refuse_changes, survey
from tests.checkpoints.builders import refusal, safetensors_bytes
from tests.checkpoints.judge import Judge

pytestmark = pytest.mark.slow

TB = 1 << 40


def test_a_root_with_too_many_names_says_so(tmp_path: Path) -> None:
    for number in range(21):
        (tmp_path / f"sample-{number}.png").touch()

    with pytest.raises(OSError, match="more than 20 names in it, too many to list"):
        find(tmp_path, most=20)


def test_names_that_name_no_checkpoint_are_passed_over(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"sample-{number}.png").touch()
    (tmp_path / "step-7.safetensors").write_bytes(safetensors_bytes({"a": 1}))
    (tmp_path / "step-8").mkdir()

    assert [candidate.path.name for candidate in find(tmp_path)] == ["step-8", "step-7.safetensors"]


def test_the_search_is_given_up_when_a_thousand_are_refused(tmp_path: Path) -> None:
    for step in range(1010):
        (tmp_path / f"step-{step}.pt").touch()
    answer = latest(tmp_path)

    assert answer.found is None
    assert len(answer.rejected) == 1001
    assert (answer.rejected[-1].step, answer.rejected[-1].reason) == (9, "not verified: 1,000 newer ones were refused")


def test_what_is_not_finished_does_not_count_as_refused(tmp_path: Path) -> None:
    for step in range(10, 1510):
        (tmp_path / f"step-{step}.tmp").mkdir()
    (tmp_path / "step-7.safetensors").write_bytes(safetensors_bytes({"a": 1}))
    answer = latest(tmp_path)

    assert answer.found is not None
    assert answer.found.step == 7


@pytest.mark.parametrize(
    "name",
    ["step-1.pt", "step-1.safetensors", "step-1.h5", "step-1.npy", "step-1.npz", "model_1.ubj", "s.msgpack", "a.nemo"],
)
def test_a_file_of_a_terabyte_of_nothing_is_refused_soon(judge: Judge, tmp_path: Path, name: str) -> None:
    with (tmp_path / name).open("wb") as file:
        file.truncate(TB)

    assert judge.verify(tmp_path).reason == (
        f"{name}: never written from byte 0 on (a hole in {TB:,} bytes: torn write)"
    )


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/full", "/proc/self/mem", "/proc/kmsg", "/"])
@pytest.mark.parametrize("name", ["step-1.pt", "step-1.safetensors", "step-1.h5"])
def test_a_link_to_what_is_no_file_is_not_read(judge: Judge, tmp_path: Path, name: str, target: str) -> None:
    (tmp_path / name).symlink_to(target)

    assert judge.verify(tmp_path).reason.startswith(f"{name}: ")


def test_a_file_that_grows_while_it_is_read_is_refused_for_now(tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    file.write_bytes(b"12345678")
    tree = survey(tmp_path)
    with file.open("ab") as more:
        more.write(b"9")

    with pytest.raises(Unstable, match="changed while being read"):
        refuse_changes(tree)


@pytest.mark.parametrize("replaced_by", ["link", "fifo", "folder", "file"])
def test_a_file_that_is_replaced_between_list_and_open_is_not_read(tmp_path: Path, replaced_by: str) -> None:
    file, secret = tmp_path / "step" / "a.npy", tmp_path / "secret"
    file.parent.mkdir()
    file.write_bytes(b"12345678")
    secret.write_bytes(b"abcdefgh")
    tree = survey(file.parent)
    file.rename(tmp_path / "old")
    match replaced_by:
        case "link":
            file.symlink_to(secret)
        case "fifo":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
        case _:
            file.write_bytes(b"abcdefgh")

    with pytest.raises(Damaged, match="changed while being read"), tree.open("a.npy"):
        pass


def test_folders_without_end_are_refused(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / str(number)).mkdir()
    is_folder, listed = LOCAL.survey(tmp_path, 20)

    assert is_folder
    with pytest.raises(Damaged, match="more than 20 entries, too many to verify"):
        list(listed)


def test_folders_that_lead_into_each_other_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "step-1" / "a").mkdir(parents=True)
    (tmp_path / "step-1" / "a" / "b").symlink_to("../..")

    assert refusal(tmp_path / "step-1")
    assert "fault" not in refusal(tmp_path / "step-1")
