"""
PaddlePaddle: `epoch_5.pdparams` with `epoch_5.pdopt` beside it, each a pickle of arrays.

Written in place, the optimizer after the model. A pickle is never loaded: its data instructions are walked, only the
names of NumPy's arrays are allowed, large contents are skipped, and each array must have the length that its type and
shape give. There is no checksum: changed bytes inside an array are not detected. Source:
python/paddle/framework/io.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import partial
from typing import Any

from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.tree import Damaged, Tree, folder_of
from healthd.checkpoints.windows import Window, open_window
from healthd.checkpoints.workers import for_each
from healthd.pickles.read import BadPickle, Built, Named, Skipped, read_pickle

MODEL, OPTIMIZER = ".pdparams", ".pdopt"
MOST_INSTRUCTIONS = 4_000_000
MOST_MEMORY = 128 << 20
_NAMES = "StructuredToParameterName@@"
_HELD = 1 << 16
"""Longer contents are skipped."""
_ARRAYS = ("numpy.core.multiarray", "numpy._core.multiarray")
_ALLOWED = frozenset(
    (
        *(f"{module}.{name}" for module in _ARRAYS for name in ("_reconstruct", "scalar")),
        *("numpy.ndarray", "numpy.dtype", "collections.OrderedDict"),
        *("builtins.tuple", "builtins.list", "builtins.dict", "__builtin__.tuple", "_codecs.encode"),
    )
)
_MOST_DIMENSIONS = 64
_TYPE = re.compile(r"[<>|=]?[biufcSUV](\d{1,6})")


class Paddle:
    """Each file is one complete pickle of arrays, and each optimizer has its model."""

    name = "paddle"

    def owns(self, filename: str) -> bool:
        """By suffix."""
        return filename.endswith((MODEL, OPTIMIZER))

    def detect(self, tree: Tree) -> bool:
        """Any file with the suffix."""
        return any(self.owns(name) for name in tree.entries)

    def verify(self, tree: Tree, level: VerifyLevel) -> None:  # noqa: ARG002 - there is nothing more to read
        """The same at both levels, because there are no checksums. Raises Damaged."""
        names = sorted(name for name in tree.entries if self.owns(name))
        for name in names:
            if name.endswith(OPTIMIZER) and not _has_model_of_another_name(names, name):
                tree.require(name.removesuffix(OPTIMIZER) + MODEL)
        for_each(partial(_verify_file, tree), names, at_once=tree.at_once)


def _has_model_of_another_name(names: Iterable[str], optimizer: str) -> bool:
    """Whether its folder has a model without an optimizer of the same name, as folders of PaddleNLP have."""
    stems = {name.removesuffix(OPTIMIZER) for name in names if name.endswith(OPTIMIZER)}
    models = (name for name in names if name.endswith(MODEL) and folder_of(name) == folder_of(optimizer))
    return any(model.removesuffix(MODEL) not in stems for model in models)


class _Lazy:
    """A file in the place of its bytes. Of long ranges only the length is known."""

    def __init__(self, window: Window) -> None:
        self._window = window

    def __len__(self) -> int:
        return self._window.size

    def byte(self, at: int) -> int:
        """One byte. Raises IndexError at the end."""
        if at >= self._window.size:
            raise IndexError
        return self._window.at(at, 1)[0]

    def piece(self, begin: int, end: int) -> bytes | Skipped:
        """The bytes, when there are few."""
        return Skipped(end - begin) if end - begin > _HELD else self._window.at(begin, end - begin)

    def line_end(self, begin: int) -> int:
        """The offset of the end of the line. Raises ValueError."""
        size = min(_HELD, self._window.size - begin)
        return begin + self._window.at(begin, size).index(b"\n")


def _verify_file(tree: Tree, name: str) -> None:
    with open_window(tree, name) as window:
        if not window.at(0, min(64, window.size)).strip(b"\0"):
            raise Damaged(f"{name}: begins with zeros, never written (torn write)")
        try:
            state = read_pickle(_Lazy(window), _ALLOWED, most=MOST_INSTRUCTIONS, memory=MOST_MEMORY)
        except BadPickle as error:
            raise Damaged(f"{name}: {error}") from error
        if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
            raise Damaged(f"{name}: not a state of PaddlePaddle: it has no names")
        _refuse_other_names(state, name)
        for key, value in state.items():
            if isinstance(value, Built) and value.name.endswith("._reconstruct"):
                _verify_array(value, f"{name}: {key!r:.80}")


def _refuse_other_names(state: dict[Any, Any], name: str) -> None:
    """The state has a list of its own arrays. A changed name is not in that list."""
    listed = state.get(_NAMES)
    if not isinstance(listed, dict):
        return
    if not all(isinstance(key, str) for key in listed):
        raise Damaged(f"{name}: its list of arrays has no names")
    arrays = {key for key, value in state.items() if isinstance(value, Built)}
    changed = [key for key, value in listed.items() if key != value]
    if changed and 2 * len(changed) < len(listed):  # in an optimizer, both are the same
        raise Damaged(f"{name}: {changed[0]!r:.80} has another name in the list of arrays")
    odd = next(iter(sorted(map(repr, arrays.symmetric_difference(listed)))), "")
    if odd:
        raise Damaged(f"{name}: {odd:.80} is not both among its arrays and in its list of them")


def _verify_array(array: Built, name: str) -> None:
    match array.args, array.state:
        case (
            (Named(name="numpy.ndarray"), (0,), b"b" | Built()),
            (1, tuple(shape), Built() as dtype, bool(), bytes() | Skipped() | Built() as data),
        ):
            kind = _read_kind(dtype, name)
            if not isinstance(data, Built):  # before protocol 3, a text stands for the bytes
                _refuse_wrong_size(shape, kind, len(data), name)
        case _:
            raise Damaged(f"{name}: an array without its content")


def _read_kind(dtype: Built, name: str) -> str:
    match dtype.args, dtype.state:
        case (str(kind), bool(), bool()), (3 | 4, "<" | ">" | "|" | "=", *_) if dtype.name == "numpy.dtype":
            return kind
        case _:
            raise Damaged(f"{name}: an array of no type")


def _refuse_wrong_size(shape: tuple[Any, ...], kind: str, size: int, name: str) -> None:
    match = _TYPE.fullmatch(kind)
    if (
        match is None
        or len(shape) > _MOST_DIMENSIONS
        or not all(isinstance(n, int) and 0 <= n < 1 << 63 for n in shape)
    ):
        raise Damaged(f"{name}: an array of type {kind[:20]!r} with a shape that cannot be")
    expected = math.prod(shape) * int(match[1]) * (4 if "U" in kind else 1)
    if size != expected:
        raise Damaged(f"{name}: an array of {size:,} bytes, its type and shape need {expected:,}")
