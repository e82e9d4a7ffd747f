"""Plain step directories: a manifest is held to its word, a marker counts when it is declared."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from healthd.checkpoints.formats import UnknownFormat, declared
from healthd.checkpoints.latest import VerifyLevel
from tests.checkpoints.builders import refusal, safetensors_bytes

CONTENT = b"weights" * 100


def a_manifest(folder: Path, **overrides: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "weights.dat").write_bytes(CONTENT)
    entry = {"size": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()} | overrides
    (folder / "manifest.json").write_text(json.dumps({"files": {"weights.dat": entry}}))
    return folder


def test_a_manifest_that_is_kept_holds(tmp_path: Path) -> None:
    assert refusal(a_manifest(tmp_path)) == ""


def test_a_manifest_may_be_a_list(tmp_path: Path) -> None:
    a_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"files": [{"name": "weights.dat", "size": len(CONTENT)}]}))

    assert refusal(tmp_path) == ""


def test_a_wrong_size_is_refused_by_a_quick_check(tmp_path: Path) -> None:
    a_manifest(tmp_path, size=9000)

    assert refusal(tmp_path, level=VerifyLevel.QUICK) == "weights.dat: 700 of 9,000 bytes (torn write)"


def test_a_flipped_byte_is_refused_by_its_sha256(tmp_path: Path) -> None:
    a_manifest(tmp_path)
    (tmp_path / "weights.dat").write_bytes(b"W" + CONTENT[1:])

    assert refusal(tmp_path, level=VerifyLevel.QUICK) == ""
    assert refusal(tmp_path) == "weights.dat: its SHA-256 is not the one in manifest.json"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    a_manifest(tmp_path)
    (tmp_path / "weights.dat").unlink()

    assert refusal(tmp_path) == "weights.dat: missing"


def test_a_torn_manifest_is_refused(tmp_path: Path) -> None:
    a_manifest(tmp_path)
    (tmp_path / "manifest.json").write_bytes((tmp_path / "manifest.json").read_bytes()[:-3])

    assert "not a whole manifest" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "", "a/../../b"])
def test_a_manifest_that_leads_outside_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"files": {name: {"size": 1}}}))

    assert "not inside the checkpoint" in refusal(tmp_path)


def test_a_manifest_cannot_have_a_file_read_many_times(tmp_path: Path) -> None:
    a_manifest(tmp_path)
    entry = {"name": "weights.dat", "size": len(CONTENT)}
    (tmp_path / "manifest.json").write_text(json.dumps({"files": [entry, entry]}))

    assert refusal(tmp_path) == "manifest.json: names a file twice"


def test_a_manifest_of_another_tool_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"version": 3}')
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes({"w": 1}))

    assert refusal(tmp_path) == ""


def test_a_declared_marker_is_required(tmp_path: Path) -> None:
    (tmp_path / "weights.dat").write_bytes(CONTENT)

    assert "DONE: missing" in refusal(tmp_path, format="marked:DONE")
    (tmp_path / "DONE").touch()
    assert refusal(tmp_path, format="marked:DONE") == ""


def test_a_marker_alone_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "DONE").write_text("yes")

    assert refusal(tmp_path, format="marked:DONE") == "DONE: stands alone, without any data"


def test_a_marker_does_not_excuse_a_torn_file(tmp_path: Path) -> None:
    (tmp_path / "DONE").touch()
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes({"w": 1})[:-1])

    assert "torn write" in refusal(tmp_path, format="marked:DONE")


def test_an_undeclared_marker_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "DONE").touch()
    (tmp_path / "weights.dat").write_bytes(CONTENT)

    assert "no known checkpoint format" in refusal(tmp_path)


@pytest.mark.parametrize("spec", ["onnx", "marked:", "marked:../x", "safetensors:DONE", ":"])
def test_an_unknown_declaration_is_an_error_that_lists_the_known(spec: str) -> None:
    with pytest.raises(UnknownFormat, match="use one of trainer, "):
        declared(spec)
