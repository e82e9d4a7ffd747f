"""
Models of LightGBM: text, as snapshots (`model.txt.snapshot_iter_100`) or by `save_model`.

Written in place. The header has the length of each tree, so QUICK detects a cut or a lost piece. FULL also counts the
lists of each tree. Changed numbers are not detected.
Source: src/boosting/gbdt_model_text.cpp of LightGBM.
"""

from __future__ import annotations

import json
import re
from functools import partial

from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.tree import Damaged, Tree, filename_of
from healthd.checkpoints.windows import Window, open_window
from healthd.checkpoints.workers import for_each

LARGEST_HEADER = 16 << 20
LARGEST_END = 4 << 20
MOST_LINES = 10_000
"""The limit of fields of a header or a tree. A tree has about twenty."""
MOST_TREES = 1_000_000
MOST_LEAVES = 1 << 17
"""The limit of leaves in one tree. LightGBM makes no more."""
_NAME = re.compile(r".+\.snapshot_iter_\d{1,18}|.*\.lgbm?|(?:model|lgbm?|lightgbm|booster)[-_.\w]*\.txt", re.IGNORECASE)
_SNAPSHOT = ".snapshot_iter_"
_START = b"tree\n"
_NUMBER = re.compile(rb"-?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|inf|nan)")
_INFOS = re.compile(rb"(?:(?:none|\[[-+.\w]++:[-+.\w]++\]|-?\d++(?::-?\d++)*+)(?: |\Z))*+")
"""For each feature: no values, the smallest and the largest value, or its categories."""
_END = b"end of trees"
_PARAMETER = re.compile(rb"\[[a-z]\w*: (?:[\x20-\x7e]|[\xc2-\xf4][\x80-\xbf]+)*\]")
_OF_LEAVES = (b"leaf_value",)
_OF_SPLITS = (b"split_feature", b"threshold", b"decision_type", b"left_child", b"right_child")
_MORE_OF_LEAVES = (b"leaf_weight", b"leaf_count")
_MORE_OF_SPLITS = (b"split_gain", b"internal_value", b"internal_weight", b"internal_count")
"""Fields that some versions leave out."""
_REQUIRED = (
    b"version",
    b"num_class",
    b"num_tree_per_iteration",
    b"label_index",
    b"max_feature_idx",
    b"feature_names",
    b"feature_infos",
    b"tree_sizes",
)
_TOO_MUCH = 1 << 63
_CATEGORICAL = 1
"""A bit of a decision's type."""


class LightGBM:
    """Each model has every tree at the position in its header, and has its end."""

    name = "lightgbm"

    def owns(self, filename: str) -> bool:
        """Snapshots, and text files with usual names."""
        return _NAME.fullmatch(filename) is not None

    def detect(self, tree: Tree) -> bool:
        """A snapshot, or another such file that starts like a model. Raises Damaged."""
        return any(_is_model(tree, name) for name in tree.entries)

    def verify(self, tree: Tree, level: VerifyLevel) -> None:
        """QUICK checks the header and where trees start. FULL also checks each tree. Raises Damaged."""
        names = [name for name in sorted(tree.entries) if _is_model(tree, name)]
        for_each(partial(_verify_file, tree, level), names, at_once=tree.at_once)


def _is_model(tree: Tree, name: str) -> bool:
    if not _NAME.fullmatch(filename_of(name)):
        return False
    if _SNAPSHOT in name:
        return True
    if tree.entries[name].not_a_file or tree.size(name) < len(_START):
        return False
    with open_window(tree, name) as window:
        return window.at(0, len(_START)) == _START


def _verify_file(tree: Tree, level: VerifyLevel, name: str) -> None:
    with open_window(tree, name) as window:
        fields, at = _read_header(window)
        try:
            sizes = _read_sizes(fields[b"tree_sizes"])
            features = _count_features(fields, len(sizes))
        except ValueError as error:
            raise Damaged(f"{name}: its header does not agree with itself about trees and features") from error
        for number, size in enumerate(sizes):
            begin = f"Tree={number}\n".encode()
            if size < len(begin) or window.at(at, len(begin)) != begin:
                raise Damaged(f"{name}: tree {number:,} is not at byte {at:,}, where it should be")
            if level is VerifyLevel.FULL:
                _verify_tree(window.at(at, size), name, number, features)
            at += size
        _verify_end(window, at)


def _read_sizes(declared: bytes) -> list[int]:
    """Bytes of each tree. Raises ValueError."""
    if declared.count(b" ") > MOST_TREES or len(declared) > LARGEST_HEADER:
        raise ValueError
    sizes = [int(size) for size in declared.split()]
    if max(sizes, default=0) >= _TOO_MUCH:
        raise ValueError
    return sizes


def _count_features(header: dict[bytes, bytes], trees: int) -> int:
    """The number of features, which must be the same in all fields that give it. Raises ValueError."""
    features, in_turn = int(header[b"max_feature_idx"]) + 1, int(header[b"num_tree_per_iteration"])
    if not _INFOS.fullmatch(header[b"feature_infos"]):
        raise ValueError
    declared = {header[field].count(b" ") + 1 for field in (b"feature_names", b"feature_infos")}
    if declared != {features} or in_turn < 1 or trees % in_turn or int(header[b"num_class"]) not in {1, in_turn}:
        raise ValueError
    return features


def _read_header(window: Window) -> tuple[dict[bytes, bytes], int]:
    """The fields of the header, and the offset of the first tree. Raises Damaged."""
    raw = b""
    while (end := raw.find(b"\n\n")) < 0 and len(raw) < min(window.size, LARGEST_HEADER):
        raw += window.at(len(raw), min(1 << 16, window.size - len(raw)))
    if not raw.startswith(_START) or end < 0:
        what = "zeros, never written" if not raw.strip(b"\0") else "without the whole header of a model"
        raise Damaged(f"{window.name}: {what} (torn write)")
    fields = _fields(raw[:end], window.name)
    absent = next((field for field in _REQUIRED if field not in fields), None)
    if absent is not None:
        raise Damaged(f"{window.name}: its header has no {absent.decode()}")
    return fields, end + 2


def _fields(raw: bytes, name: str) -> dict[bytes, bytes]:
    if raw.count(b"\n") > MOST_LINES:
        raise Damaged(f"{name}: a header or a tree of more than {MOST_LINES:,} lines")
    return dict(_field(line) for line in raw.split(b"\n") if b"=" in line)


def _field(line: bytes) -> tuple[bytes, bytes]:
    key, _, value = line.partition(b"=")
    return key, value


def _verify_tree(raw: bytes, name: str, number: int, features: int) -> None:
    fields = _fields(raw, name)
    try:
        leaves = int(fields[b"num_leaves"])
    except (KeyError, ValueError) as error:
        raise Damaged(f"{name}: tree {number:,} does not declare its leaves") from error
    if leaves > MOST_LEAVES:
        raise Damaged(f"{name}: tree {number:,} claims {leaves:,} leaves")
    counts = {**dict.fromkeys(_OF_LEAVES, leaves), **(dict.fromkeys(_OF_SPLITS, leaves - 1) if leaves > 1 else {})}
    counts |= {field: leaves for field in _MORE_OF_LEAVES if fields.get(field)}
    counts |= {field: leaves - 1 for field in _MORE_OF_SPLITS if fields.get(field)}
    for field, count in counts.items():
        declared = fields.get(field, b"")
        if declared.count(b" ") != count - 1 or not all(map(_NUMBER.fullmatch, declared.split(b" "))):
            raise Damaged(f"{name}: tree {number:,} has not its {count:,} numbers of {field.decode()}")
    if leaves > 1:
        try:
            _refuse_wild_indexes(fields, leaves, features)
        except (ValueError, KeyError) as error:
            raise Damaged(f"{name}: tree {number:,} has {error} that cannot be") from error


def _refuse_wild_indexes(fields: dict[bytes, bytes], leaves: int, features: int) -> None:
    """The loader follows indexes without a check, and crashes or loops. Raises ValueError."""
    children = [int(child) for field in (b"left_child", b"right_child") for child in fields[field].split(b" ")]
    if sorted(children) != [*range(-leaves, 0), *range(1, leaves - 1)]:
        raise ValueError("children")
    if not all(0 <= int(feature) < features for feature in fields[b"split_feature"].split(b" ")):
        raise ValueError("features")
    kinds = [int(kind) for kind in fields[b"decision_type"].split(b" ")]
    categories = int(fields[b"num_cat"])
    if (any(kind & _CATEGORICAL for kind in kinds) and not categories) or max(kinds) > 15:
        raise ValueError("decisions")
    if categories and len(fields.get(b"cat_boundaries", b"").split(b" ")) != categories + 1:
        raise ValueError("categories")
    if fields.get(b"is_linear", b"0") != b"0" and b"leaf_const" not in fields:
        raise ValueError("linear leaves")


def _verify_end(window: Window, at: int) -> None:
    """Check what follows the trees: the parameters, and the additions of the Python package."""
    if window.size - at > LARGEST_END:
        raise Damaged(f"{window.name}: {window.size - at:,} bytes after its trees")
    rest = window.at(at, window.size - at)
    if not rest.startswith(_END):
        raise Damaged(f"{window.name}: does not come to the end of its trees (torn write)")
    _, has_parameters, parameters = rest.partition(b"\nparameters:")
    lines, is_whole, last = parameters.partition(b"\nend of parameters")
    if has_parameters and not is_whole:
        raise Damaged(f"{window.name}: does not come to the end of its parameters (torn write)")
    garbled = next((line for line in lines.split(b"\n") if line and not _PARAMETER.fullmatch(line)), None)
    if garbled is not None:
        raise Damaged(f"{window.name}: {garbled[:40]!r} is no parameter")
    if not has_parameters or not last.endswith(b"\n"):
        raise Damaged(f"{window.name}: ends within its last lines (torn write)")
    _, is_pandas, categories = last.partition(b"pandas_categorical:")
    try:
        if is_pandas:
            json.loads(categories)
        elif last.strip():
            raise ValueError
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{window.name}: ends within its last lines (torn write)") from error
