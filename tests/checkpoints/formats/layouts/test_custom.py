"""Layouts that a person declares."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from healthd.checkpoints.formats import UnknownFormat, declared
from healthd.checkpoints.latest import VerifyLevel, latest
from tests.checkpoints.builders import a_dcp_step, refusal, torch_zip_bytes

RANKS = '{files: ["weights-*.raw", "optim/{rank}.dat"], ranks: 3}'
SUMS = '{steps: "snap_{step}", manifest: SHA256SUMS}'


def a_step(folder: Path, *, ranks: int = 3) -> Path:
    (folder / "optim").mkdir(parents=True)
    (folder / "weights-x.raw").write_bytes(b"weights")
    for rank in range(ranks):
        (folder / "optim" / f"{rank}.dat").write_bytes(b"moments")
    return folder


def with_sums(folder: Path) -> Path:
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / "SHA256SUMS").write_text("".join(lines))
    return folder


def test_a_step_with_all_that_was_declared_holds(tmp_path: Path) -> None:
    assert refusal(a_step(tmp_path / "step-5"), format=RANKS) == ""


def test_a_layout_of_one_line_is_a_layout(tmp_path: Path) -> None:
    step = a_step(tmp_path / "step-5")

    assert refusal(step, format="marker: DONE") == "DONE: missing; the writer makes it last (save not finished)"
    (step / "DONE").touch()
    assert refusal(step, format="marker: DONE") == ""


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    step = a_step(tmp_path / "step-5")
    (step / "optim" / "1.dat").unlink()

    assert refusal(step, format=RANKS) == "optim/{rank}.dat: rank 1 is missing; 2 of 3 are here"


def test_too_few_ranks_are_seen_when_their_number_was_declared(tmp_path: Path) -> None:
    assert "rank 2 is missing" in refusal(a_step(tmp_path / "step-5", ranks=2), format=RANKS)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    step = a_step(tmp_path / "step-5")
    (step / "weights-x.raw").write_bytes(b"")

    assert refusal(step, format=RANKS) == "weights-x.raw: empty file"


def test_a_file_that_no_name_fits_is_missing(tmp_path: Path) -> None:
    step = a_step(tmp_path / "step-5")
    (step / "weights-x.raw").rename(step / "weights.old")

    assert refusal(step, format=RANKS) == "weights-*.raw: no file of such a name"


def test_steps_are_found_by_the_declared_name(tmp_path: Path) -> None:
    for step in (9, 10):
        with_sums(a_step(tmp_path / f"snap_{step}"))
    (tmp_path / "step-99").mkdir()

    found = latest(tmp_path, format=SUMS).found

    assert found is not None
    assert (found.step, found.format) == (10, "custom")


def test_the_location_may_be_one_declared_step(tmp_path: Path) -> None:
    with_sums(a_step(tmp_path / "snap_7"))

    found = latest(tmp_path / "snap_7", format=SUMS).found

    assert found is not None
    assert found.step == 7


def test_a_changed_byte_is_refused_by_the_list_of_checksums(tmp_path: Path) -> None:
    step = with_sums(a_step(tmp_path / "snap_7"))
    (step / "weights-x.raw").write_bytes(b"weightz")

    assert refusal(step, format=SUMS, level=VerifyLevel.QUICK) == ""
    assert refusal(step, format=SUMS) == "weights-x.raw: its SHA-256 is not the one in SHA256SUMS"


@pytest.mark.parametrize("cut", [1, 5, 20, 90])
def test_a_cut_list_of_checksums_is_refused(tmp_path: Path, cut: int) -> None:
    step = with_sums(a_step(tmp_path / "snap_7"))
    sums = step / "SHA256SUMS"
    sums.write_bytes(sums.read_bytes()[:-cut])

    assert "not a list of checksums" in refusal(step, format=SUMS)


def test_a_name_in_a_list_of_checksums_may_not_lead_outside(tmp_path: Path) -> None:
    step = a_step(tmp_path / "snap_7")
    (step / "SHA256SUMS").write_text(f"{'0' * 64}  ../secret\n")

    assert "not inside the checkpoint" in refusal(step, format=SUMS)


def test_without_its_marker_a_step_is_not_finished(tmp_path: Path) -> None:
    step = a_step(tmp_path / "step-5")

    assert refusal(step, format="{marker: DONE}") == "DONE: missing; the writer makes it last (save not finished)"


def test_files_of_known_formats_have_to_hold_as_well(tmp_path: Path) -> None:
    step = a_step(tmp_path / "step-5")
    (step / "extra.pt").write_bytes(torch_zip_bytes()[:-1])

    assert "extra.pt" in refusal(step, format=RANKS)


@pytest.mark.parametrize(
    "name", ["model-1.bin", "snap.pt", "checkpoint_500", "state.msgpack", "x.h5", "x.npy", "x.ubj"]
)
@pytest.mark.parametrize("spec", ['{files: ["NAME"]}', "{manifest: SHA256SUMS}"])
def test_a_declared_file_is_not_held_to_the_format_that_has_such_names(tmp_path: Path, name: str, spec: str) -> None:
    step = tmp_path / "step-5"
    step.mkdir()
    (step / name).write_bytes(b"weights of a kind of our own")
    with_sums(step)

    assert refusal(step, format=spec.replace("NAME", name)) == ""


@pytest.mark.parametrize("content", [torch_zip_bytes()[:-1], bytes(200)], ids=["torn archive", "zeros"])
def test_a_declared_file_that_begins_like_its_name_says_has_to_hold(tmp_path: Path, content: bytes) -> None:
    step = tmp_path / "step-5"
    step.mkdir()
    for rank in range(2):
        (step / f"rank{rank}.pt").write_bytes(torch_zip_bytes())
    (step / "rank1.pt").write_bytes(content)

    assert refusal(step, format='{files: ["rank{rank}.pt"]}').startswith("rank1.pt: ")


def test_files_that_name_each_other_are_held_together_although_some_are_declared(tmp_path: Path) -> None:
    step = a_dcp_step(tmp_path, 5)

    assert refusal(step, format='{files: ["__{rank}_0.distcp"]}') == ""
    (step / ".metadata").unlink()
    assert ".metadata" in refusal(step, format='{files: ["__{rank}_0.distcp"]}')


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("{}", "names no file"),
        ("{steps: 'x{step}'}", "names no file"),
        ("{marker: [1]}", "it may have steps"),
        ("{colour: red}", "it may have steps"),
        ("{marker: a/b}", "directly in its folder"),
        ("{marker: ..}", "directly in its folder"),
        ("{files: ['a'], ranks: 3}", "need {rank}"),
        ("{files: ['*a*b*c*']}", "three times"),
        ("{files: ['{rank}{rank}']}", "once"),
        ("{files: ['{step}']}", "once"),
        ("{steps: 'snap', marker: DONE}", "no {step}"),
        ("{steps: [", "is no YAML"),
        ("{files: [" + "a, " * 2000 + "a]}", "at most 4,096"),
        ("a: &a [x]\nb: [*a, *a]", "it may have steps"),
        ("{marker: !!python/object:os.system {}}", "it may have steps"),
    ],
)
def test_a_declaration_that_cannot_be_checked_is_an_error_that_says_why(spec: str, reason: str) -> None:
    with pytest.raises(UnknownFormat, match=reason.replace("{", r"\{").replace("}", r"\}")):
        declared(spec)
