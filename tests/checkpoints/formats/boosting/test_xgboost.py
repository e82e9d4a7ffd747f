"""Models of XGBoost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from healthd.checkpoints.formats.boosting.xgboost import LARGEST_JSON
from healthd.checkpoints.latest import VerifyLevel, latest
from tests.checkpoints.builders import REAL, torch_zip_bytes
from tests.checkpoints.damage import held_when_cut, word

NAMES = ["model_5.json", "model_5.ubj"]


@pytest.fixture
def real(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REAL / "xgboost", tmp_path / "run"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", VerifyLevel)
def test_what_the_real_library_wrote_holds(name: str, level: VerifyLevel) -> None:
    assert word(REAL / "xgboost" / name, level=level) == ""


def test_the_step_is_identified_by_the_name() -> None:
    found = latest(REAL / "xgboost").found

    assert found is not None
    assert (found.step, found.format) == (5, "xgboost")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_file_cut_anywhere_is_refused_by_a_quick_check(real: Path, name: str) -> None:
    (tmp := real / "only").mkdir()
    (real / name).rename(tmp / name)

    assert held_when_cut(tmp / name, tmp / name, times=60) == []


def a_model(real: Path) -> dict[str, dict[str, dict[str, dict[str, list[object]]]]]:
    model: dict[str, dict[str, dict[str, dict[str, list[object]]]]] = json.loads((real / "model_5.json").read_bytes())
    return model


def test_a_lost_tree_is_refused(real: Path) -> None:
    model = a_model(real)
    model["learner"]["gradient_booster"]["model"]["trees"].pop()
    (real / "model_5.json").write_text(json.dumps(model))

    assert word(real / "model_5.json") == "model_5.json: 4 of 5 trees"


def test_a_tree_without_all_its_nodes_is_refused(real: Path) -> None:
    text = (real / "model_5.json").read_text()
    (real / "model_5.json").write_text(text.replace('"left_children":[1,', '"left_children":[', 1))

    assert "left_children" in word(real / "model_5.json")


def test_a_model_without_a_part_is_refused(real: Path) -> None:
    (real / "model_5.json").write_text((real / "model_5.json").read_text().replace('"objective"', '"objectile"'))

    assert word(real / "model_5.json") == "model_5.json: a model without 'objective'"


@pytest.mark.parametrize("name", ["num_feature", "num_class", "base_score"])
def test_a_parameter_of_the_model_under_another_name_is_refused(real: Path, name: str) -> None:
    for file in NAMES:
        (real / file).write_bytes((real / file).read_bytes().replace(name.encode(), name[:-1].encode() + b"_", 1))

        assert word(real / file).startswith(f"{file}: a model without")


@pytest.mark.parametrize(("score", "reason"), [("[1.5E0,-2E1]", ""), ("5E-1", ""), ("[1.5E0\\\\", "a model with")])
def test_the_first_score_is_a_number_or_a_list_of_them(real: Path, score: str, reason: str) -> None:
    text = (real / "model_5.json").read_text()
    (real / "model_5.json").write_text(text.replace('"base_score":"[1.5E0]"', f'"base_score":"{score}"'))

    assert reason in word(real / "model_5.json")
    assert bool(reason) == bool(word(real / "model_5.json"))


def test_a_parent_that_is_not_in_its_tree_is_refused(real: Path) -> None:
    text = (real / "model_5.json").read_text()
    (real / "model_5.json").write_text(text.replace('"parents":[2147483647,0,', '"parents":[2147483647,9,', 1))

    assert word(real / "model_5.json") == "model_5.json: tree 0 has parents that are not in it"


def test_a_node_that_was_pruned_splits_by_no_feature(real: Path) -> None:
    model = a_model(real)
    trees = model["learner"]["gradient_booster"]["model"]["trees"]
    trees[0]["split_indices"][2] = 2147483647  # type: ignore[index] # trees are of many kinds
    pruned = json.dumps(model)
    (real / "model_5.json").write_text(pruned.replace('"num_deleted": "0"', '"num_deleted": "1"', 1))

    assert word(real / "model_5.json") == ""
    (real / "model_5.json").write_text(pruned)
    assert "another count of pruned nodes than it declares" in word(real / "model_5.json")


def test_a_count_of_outputs_that_no_weights_are_for_is_refused(real: Path) -> None:
    text = (real / "model_5.json").read_text()
    (real / "model_5.json").write_text(text.replace('"size_leaf_vector":"1"', '"size_leaf_vector":"3"', 1))

    assert word(real / "model_5.json") == "model_5.json: tree 0 declares 3 outputs, and has weights for one"


@pytest.mark.parametrize("rounds", ["0,1,2,3,16,5", "1,2,3,4,5", "0,1,2,3,4"])
def test_rounds_that_do_not_end_at_the_trees_are_refused(real: Path, rounds: str) -> None:
    text = (real / "model_5.json").read_text()
    (real / "model_5.json").write_text(
        text.replace('"iteration_indptr":[0,1,2,3,4,5]', f'"iteration_indptr":[{rounds}]')
    )

    assert word(real / "model_5.json") == "model_5.json: its rounds do not end at its 5 trees"


def test_the_old_binary_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0005.model").write_bytes(b"binf" + bytes(100))

    assert "save as .ubj or .json" in word(tmp_path / "0005.model")


def test_json_of_another_tool_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "model_card.json").write_text('{"license": "none"}')
    (tmp_path / "model.pt").write_bytes(torch_zip_bytes())

    assert word(tmp_path) == ""


def test_of_a_very_long_model_the_ends_are_read(real: Path) -> None:
    long = real / "model_6.json"
    long.write_text((real / "model_5.json").read_text().replace(":", ":" + " " * LARGEST_JSON, 1))

    assert word(long) == ""
    long.write_bytes(long.read_bytes()[:-20])
    assert "torn write" in word(long)


def test_of_a_very_long_model_what_was_never_written_is_seen_by_a_full_check(real: Path) -> None:
    long = real / "model_6.json"
    content = (real / "model_5.json").read_bytes().replace(b":", b":" + b" " * LARGEST_JSON, 1)
    long.write_bytes(content[:5_000_000] + bytes(4096) + content[5_004_096:])

    assert word(long, level=VerifyLevel.QUICK) == ""
    assert word(long) == "model_6.json: byte 5,000,000 is no text (torn write)"


@pytest.mark.parametrize("content", [b"", b"{", b"{" * 1000, b"[" * 100_000, b"{L" + b"\xff" * 8, bytes(100), b"S"])
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model_7.ubj").write_bytes(content)

    reason = word(tmp_path / "model_7.ubj")

    assert reason.startswith("model_7.ubj: ")
    assert "fault of healthd" not in reason
