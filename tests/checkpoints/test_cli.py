"""`healthd checkpoints`: what a person and a script see."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import pytest

from healthd.cli.commands.checkpoints import add_arguments, run
from tests.checkpoints.builders import REAL, a_sharded_step, safetensors_bytes, shard_name


def call(*words: str | Path) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args([str(word) for word in words]))


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Step 10 holds, step 20 is torn."""
    a_sharded_step(tmp_path, 10)
    torn = a_sharded_step(tmp_path, 20)
    os.truncate(torn / shard_name(0, 4), 200)
    return tmp_path


def test_latest_prints_one_object(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("latest", root, "--json") == 0

    answer = printed(capsys)
    rejected = answer.pop("rejected")
    assert answer == {"path": str(root / "step-000010"), "step": 10, "format": "safetensors"}
    assert [(r["path"], r["step"]) for r in rejected] == [(str(root / "step-000020"), 20)]
    assert "200 of" in rejected[0]["reason"]


def test_latest_without_any_valid_exits_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("latest", tmp_path / "nowhere", "--json") == 3

    assert printed(capsys) == {"path": None, "step": None, "format": None, "rejected": []}


def test_latest_reports_a_person_why_not(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("latest", root) == 0

    out = capsys.readouterr().out
    assert "step-000020" in out
    assert "torn write" in out


def test_latest_reports_when_the_pointer_of_the_writer_leads_elsewhere(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "latest").write_text("step-000020")

    assert call("latest", root, "--json") == 0

    output = capsys.readouterr()
    assert json.loads(output.out)["step"] == 10
    assert output.err == "healthd: latest leads to 'step-000020': a loader that goes by it loads that one\n"


@pytest.mark.parametrize("command", ["latest", "list"])
def test_a_location_one_folder_too_high_is_reported(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_sharded_step(tmp_path / "lightning_logs" / "version_0", 100)

    assert call(command, tmp_path) == 3

    out = capsys.readouterr().out
    assert "100   lightning_logs/version_0" in out
    assert "name this folder as the checkpoint location" in out


@pytest.mark.parametrize("command", ["latest", "list"])
def test_a_place_without_any_valid_is_reported_with_the_reason(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "step-7.safetensors").write_bytes(b"no header")
    reasons = {"none": ": there is nothing of that name", "empty": ": there is nothing in it", "torn": ""}
    for name, reason in reasons.items():
        assert call(command, tmp_path / name) == 3
        assert capsys.readouterr().err == f"healthd: no valid checkpoint at {tmp_path / name}{reason}\n"


def test_files_that_may_be_checkpoints_are_named_where_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (10, 20, 30):
        (tmp_path / f"snap-{step}.dat").touch()

    assert call("latest", tmp_path) == 3
    assert "snap-30.dat and 2 more numbered files may be checkpoints" in capsys.readouterr().err


def test_list_judges_every_step(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list", root, "--json") == 0

    assert [(row["step"], row["valid"]) for row in printed(capsys)["checkpoints"]] == [(20, False), (10, True)]


@pytest.mark.parametrize(("name", "code"), [("ckpt-10.pt", 0), ("legacy-10.pt", 3)])
def test_verify_judges_one(name: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("verify", REAL / name, "--json") == code

    assert printed(capsys)["valid"] is (code == 0)


def test_an_unknown_format_is_a_usage_error_that_lists_the_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        call("latest", tmp_path, "--format", "onnx")

    assert ended.value.code == 2
    assert "use one of trainer, " in capsys.readouterr().err


def test_latest_gives_a_script_the_bare_path(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("latest", root, "-q") == 0

    assert capsys.readouterr().out == f"{root / 'step-000010'}\n"


def test_latest_gives_a_script_nothing_when_none_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("latest", tmp_path, "-q") == 3

    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("words", [(), ("latest",), ("list",), ("verify",)])
def test_help_says_what_the_exit_codes_mean(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call(*words, "--help")

    out = capsys.readouterr().out
    assert "exit codes:" in out
    assert "3  none will load" in out


@pytest.mark.parametrize("command", ["latest", "verify"])
def test_a_doubt_is_said_beside_the_answer(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = safetensors_bytes({"a": 5000, "b": 5000, "c": 5000})
    (tmp_path / "model.safetensors").write_bytes(whole[:-40_000] + bytes(40_000))

    assert call(command, tmp_path, "--json") == 0

    output = capsys.readouterr()
    assert json.loads(output.out)["format"] == "safetensors"
    assert "2 whole tensors ('b' to 'c'): as after a power cut" in output.err
