"""
Models of XGBoost, as `TrainingCheckPoint` and `save_model` write them: `.json` and `.ubj`.

Written in place and without a checksum, so the complete structure must exist: every tree that the model counts, in
each tree every list with the length of its nodes, and no child outside the tree. Other changed numbers are not
detected. The binary format from before version 2.1 has no structure that can be checked, and is refused. Source: the
introduction to model IO and the JSON schema in XGBoost's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sized
from functools import partial
from typing import Any

import msgspec

from healthd.checkpoints.encodings.ubjson import Discarded, Packed, read_ubjson
from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.tree import Damaged, Tree, filename_of
from healthd.checkpoints.windows import Window, open_window
from healthd.checkpoints.workers import alone, for_each

LARGEST_JSON = 8 << 20
"""
Bytes. Of longer JSON only the start and the end are checked, and that all is text: as values it would fill the memory.
"""
MOST_VALUES = 2_500_000
"""In JSON, where a list or a mapping counts as four. Twice what a model of the largest size has."""
_JSON = re.compile(r"(?:model|xgb|xgboost|booster|checkpoint)[-_\w]*\.json", re.IGNORECASE)
_OLD = re.compile(r"\d{4,}\.model|xgb[-_\w]*\.(?:model|bin)", re.IGNORECASE)
_BEGIN = re.compile(rb'\s*\{\s*"(?:learner|version)"\s*:')
_END = re.compile(rb'"version"\s*:\s*\[\d+,\s*\d+,\s*\d+\]\s*\}\s*\Z')
"""Keys are in alphabetical order."""
_LISTS = ("left_children", "right_children", "parents", "split_indices", "split_conditions", "default_left")
_OF_ONE_OUTPUT = (*_LISTS, "base_weights", "sum_hessian", "loss_changes", "split_type")
"""Trees with several outputs have fewer lists, or longer ones."""
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NO_PARENT = (1 << 31) - 1
"""The parent of the root."""
_PRUNED = (1 << 31) - 1
"""The feature of a node that was removed again."""
_OF_CATEGORIES = ("categories", "categories_nodes", "categories_segments", "categories_sizes")
_NOT_THERE = (KeyError, TypeError, ValueError, OverflowError)
_SHARED_CATEGORIES = ("enc", "feature_segments", "sorted_idx")


class XGBoost:
    """Each model has all the trees that it counts, each with all its nodes."""

    name = "xgboost"

    def owns(self, filename: str) -> bool:
        """By suffix. JSON and the old format only with the usual names."""
        return any((filename.endswith(".ubj"), _JSON.fullmatch(filename), _OLD.fullmatch(filename)))

    def detect(self, tree: Tree) -> bool:
        """Any such file. JSON only when it starts like a model. Raises Damaged."""
        return any(_is_model(tree, name) for name in tree.entries)

    def verify(self, tree: Tree, level: VerifyLevel) -> None:
        """The same at both levels, but for long JSON FULL also checks every byte. Raises Damaged."""
        names = [name for name in sorted(tree.entries) if _is_model(tree, name)]
        for_each(partial(_verify_file, tree, level), names, at_once=tree.at_once)


def _is_model(tree: Tree, name: str) -> bool:
    filename = filename_of(name)
    if filename.endswith(".ubj") or _OLD.fullmatch(filename):
        return True
    if not _JSON.fullmatch(filename) or tree.entries[name].not_a_file or not tree.size(name):
        return False
    with open_window(tree, name) as window:
        start = window.at(0, min(64, window.size))
    return _BEGIN.match(start) is not None or not start.strip(b"\0")


def _verify_file(tree: Tree, level: VerifyLevel, name: str) -> None:
    with open_window(tree, name) as window:
        if window.at(0, min(4, window.size)) == b"binf" or not name.endswith((".ubj", ".json")):
            raise Damaged(f"{name}: XGBoost's old binary format, which cannot be verified: save as .ubj or .json")
        if name.endswith(".ubj"):
            _judge(read_ubjson(window, {"trees": partial(_judge_one, window)}), window)
        elif window.size <= LARGEST_JSON:
            with alone(window.size):
                _judge(_parse_json(window), window)
        else:
            _verify_ends(window)
            if level is VerifyLevel.FULL:
                _refuse_no_text(window)


def _parse_json(window: Window) -> Any:
    raw = window.at(0, window.size)
    if raw.count(b",") + 4 * (raw.count(b"[") + raw.count(b"{")) > MOST_VALUES:
        raise Damaged(f"{window.name}: more than {MOST_VALUES:,} values, too many to verify")
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"{window.name}: not the whole JSON of a model (torn write)") from error


def _verify_ends(window: Window) -> None:
    if not _BEGIN.match(window.at(0, 64)) or not _END.search(window.at(window.size - 64, 64)):
        raise Damaged(f"{window.name}: not the whole JSON of a model (torn write)")


def _refuse_no_text(window: Window) -> None:
    """Zeros are parts that were never written. Text contains no zeros and no other control characters."""
    at = 0
    for chunk in window.chunks(0, window.size):
        control = _CONTROL.search(chunk)
        if control is not None:
            raise Damaged(f"{window.name}: byte {at + control.start():,} is no text (torn write)")
        at += len(chunk)


def _judge(model: Any, window: Window) -> None:
    """Raise Damaged unless *model* has what the loader needs."""
    name = window.name
    try:
        learner = model["learner"]
        booster, parameters, _ = learner["gradient_booster"], learner["learner_model_param"], learner["attributes"]
        _, _ = int(parameters["num_feature"]), int(parameters["num_class"])
        for score in str(parameters["base_score"]).removeprefix("[").removesuffix("]").split(","):
            float(score)
        kind, _, _ = booster["name"], learner["objective"]["name"], model["version"]
        inner = booster["gbtree"]["model"] if kind == "dart" else booster["model"]
        if kind in {"gbtree", "dart"}:
            _judge_trees(inner, window)
        elif not len(inner["weights"]):
            raise ValueError
    except _NOT_THERE as error:
        raise Damaged(f"{name}: a model {_lack(error)}") from error


def _lack(error: Exception) -> str:
    """What is missing, in words for a person."""
    if isinstance(error, KeyError):
        return f"without {error.args[0]!r:.40}"
    return "with parts that are not what they should be"


def _judge_trees(model: Any, window: Window) -> None:
    name = window.name
    promised = int(model["gbtree_model_param"]["num_trees"])
    if len(model["trees"]) != promised or len(_sized(model["tree_info"])) != promised:
        raise Damaged(f"{name}: {len(model['trees']):,} of {promised:,} trees")
    rounds = list(_integers(model["iteration_indptr"], window)) if "iteration_indptr" in model else []
    if rounds and (rounds[0] != 0 or rounds[-1] != promised or sorted(rounds) != rounds):
        raise Damaged(f"{name}: its rounds do not end at its {promised:,} trees")
    for field in _SHARED_CATEGORIES if "cats" in model else ():
        _length(model["cats"][field])
    for number, tree in enumerate(model["trees"]):
        if tree is not Discarded.JUDGED:
            _judge_tree(window, number, tree)


def _judge_one(window: Window, number: int, tree: Any) -> None:
    try:
        _judge_tree(window, number, tree)
    except _NOT_THERE as error:
        raise Damaged(f"{window.name}: a model {_lack(error)}, in tree {number:,}") from error


def _judge_tree(window: Window, number: int, tree: Any) -> None:
    int(tree["id"])
    nodes, outputs = int(tree["tree_param"]["num_nodes"]), int(tree["tree_param"]["size_leaf_vector"])
    for field in _LISTS if outputs > 1 else _OF_ONE_OUTPUT:
        here = _length(tree[field])
        if here != nodes:
            raise Damaged(f"{window.name}: tree {number:,} has {here:,} {field}, and {nodes:,} nodes")
    if outputs > 1 and _length(tree["base_weights"]) == nodes:
        raise Damaged(f"{window.name}: tree {number:,} declares {outputs:,} outputs, and has weights for one")
    _refuse_lost_nodes(tree, nodes, window, number)
    for field in _OF_CATEGORIES:
        _length(tree[field])


def _refuse_lost_nodes(tree: Any, nodes: int, window: Window, number: int) -> None:
    """The loader follows child indexes without a check, and crashes."""
    for field in ("left_children", "right_children", "parents"):
        none = _NO_PARENT if field == "parents" else -1
        others = _integers(tree[field], window)
        if not all(isinstance(other, int) and (-1 <= other < nodes or other == none) for other in others):
            raise Damaged(f"{window.name}: tree {number:,} has {field} that are not in it")
    features = list(_integers(tree["split_indices"], window))
    if features.count(_PRUNED) != int(tree["tree_param"]["num_deleted"]):
        raise Damaged(f"{window.name}: tree {number:,} has another count of pruned nodes than it declares")
    most = max(1, int(tree["tree_param"]["num_feature"]))
    if not all(isinstance(feature, int) and (feature < most or feature == _PRUNED) for feature in features):
        raise Damaged(f"{window.name}: tree {number:,} splits by a feature that the model does not have")


def _integers(values: Any, window: Window) -> Iterable[Any]:
    listed: Iterable[Any] = values.integers(window) if isinstance(values, Packed) else values
    return listed


def _sized(value: Any) -> range:
    return range(_length(value))


def _length(value: Any) -> int:
    length = getattr(value, "length", None)
    if length is None and isinstance(value, Sized):
        return len(value)
    return int(length or 0)
