"""
Megatron-LM's folders (`iter_0000500`), also inside those of NeMo: the legacy `torch` layout and `torch_dist`.

Legacy: one folder per model-parallel rank, written in place, no marker. The files give the number of ranks and the
iteration. `torch_dist`: a `torch_dcp` folder with `common.pt`, complete when `metadata.json` exists.
The archives and pieces themselves are checked as `torch_zip` and `torch_dcp`.
Source: megatron/training/checkpointing.py and megatron/core/dist_checkpointing of Megatron-LM.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict

import msgspec

from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.formats.trainers.agreement import refuse_other_steps
from healthd.checkpoints.torch_state import TorchState, open_state
from healthd.checkpoints.tree import Damaged, Tree, filename_of, folder_of

CONFIG = "metadata.json"
COMMON = "common.pt"
LARGEST_CONFIG = 1 << 20
_RANK = re.compile(r"mp_rank_(\d{2,6})(?:_(\d{3,6}))?(?:_(\d{3,6}))?")
_MODELS = ("model_optim_rng.pt", "model_rng.pt")
_OPTIMIZER = "distrib_optim.pt"
_ITERATION = re.compile(r"iter_(\d{7,18})")
_FINISHED_BY_CONFIG = re.compile(r"iter_\d{7,18}|weights")
"""Folder names of Megatron and NeMo, recognised by `common.pt` alone: it is written first."""


class _Config(msgspec.Struct):
    sharded_backend: str


class Megatron:
    """
    Legacy: every rank's file exists, all of one iteration. `torch_dist`: complete, of the iteration of its folder.
    """

    name = "megatron"

    def owns(self, filename: str) -> bool:
        """A rank's folder and its files. `common.pt` is a name that any torch file may have."""
        return _RANK.fullmatch(filename) is not None or filename in {*_MODELS, _OPTIMIZER}

    def detect(self, tree: Tree) -> bool:
        """A rank's folder, or a folder of `torch_dist`."""
        return bool(_rank_folders(tree) or _dist_folders(tree))

    def members(self, tree: Tree) -> int | None:
        """The number of ranks of the legacy layout, unless the arguments in it give it."""
        ranks = {rank: folder for folder, rank in _rank_folders(tree).items()}
        if not ranks:
            return None
        with open_state(tree, _model_of(tree, ranks[min(ranks)])) as state:
            return len(ranks) if _declared_sizes(state, len(min(ranks))) is None else None

    def verify(self, tree: Tree, level: VerifyLevel) -> None:
        """QUICK checks names and one file. FULL also checks the iteration in every rank's file. Raises Damaged."""
        saves: dict[str, dict[tuple[int, ...], str]] = defaultdict(dict)
        for folder, rank in _rank_folders(tree).items():
            saves[folder_of(folder)][rank] = folder
        for save, ranks in saves.items():
            _verify_legacy(tree, level, save, ranks)
        for folder in _dist_folders(tree):
            _verify_dist(tree, folder)


def _rank_folders(tree: Tree) -> dict[str, tuple[int, ...]]:
    """The folders of ranks, each with its position in the grid of ranks."""
    found: dict[str, tuple[int, ...]] = {}
    for folder in sorted({folder_of(name) for name in tree.entries}):
        if match := _RANK.fullmatch(filename_of(folder)):
            found[folder] = tuple(int(number) for number in match.groups() if number is not None)
    return found


def _verify_legacy(tree: Tree, level: VerifyLevel, save: str, ranks: dict[tuple[int, ...], str]) -> None:
    files = {rank: _model_of(tree, folder) for rank, folder in ranks.items()}
    first = files[min(files)]
    with open_state(tree, first) as state:
        _refuse_missing_ranks(save, ranks, state)
    iteration = refuse_other_steps(
        tree,
        [first] if level is VerifyLevel.QUICK else list(files.values()),
        "iteration",
        lambda state: state.number("iteration"),
    )
    _refuse_other_iteration(tree, save, first, iteration)
    if any(f"{folder}/{_OPTIMIZER}" in tree.entries for folder in ranks.values()):
        for folder in ranks.values():
            tree.require(f"{folder}/{_OPTIMIZER}")


def _model_of(tree: Tree, folder: str) -> str:
    names = [f"{folder}/{filename}" for filename in _MODELS]
    return next((name for name in names if name in tree.entries), None) or _missing(names[0])


def _missing(name: str) -> str:
    raise Damaged(f"{name}: missing (not all ranks saved)")


def _refuse_missing_ranks(save: str, ranks: dict[tuple[int, ...], str], state: TorchState) -> None:
    """Ranks are numbered by tensor, pipeline and expert parallelism, the last two only when there are several."""
    axes = len(min(ranks))
    sizes = _declared_sizes(state, axes)
    if sizes is None:  # at least no gap
        sizes = [max(rank[axis] if axis < len(rank) else 0 for rank in ranks) + 1 for axis in range(axes)]
    total = math.prod(sizes)
    absent = next((rank for rank in (_place(number, sizes) for number in range(total)) if rank not in ranks), None)
    if absent is not None:
        folder = "_".join((f"mp_rank_{absent[0]:02}", *(f"{number:03}" for number in absent[1:])))
        here = f"{len(ranks):,} of {total:,} ranks are here"
        raise Damaged(f"{save}/{folder}: missing; {here} (not all ranks saved)".lstrip("/"))


def _declared_sizes(state: TorchState, axes: int) -> list[int] | None:
    """The number of ranks along each axis. None when the arguments cannot be read."""
    declared = [state.count("args", f"{kind}_model_parallel_size") for kind in ("tensor", "pipeline", "expert")]
    sizes = [declared[0], *(size for size in declared[1:] if size > 1)]
    return sizes if declared[0] and len(sizes) == axes else None


def _place(number: int, sizes: list[int]) -> tuple[int, ...]:
    """The position of a rank in a grid, the last axis fastest. Computed lazily, because sizes may be absurd."""
    place: list[int] = []
    for size in reversed(sizes):
        number, here = divmod(number, size)
        place.insert(0, here)
    return tuple(place)


def _refuse_other_iteration(tree: Tree, folder: str, name: str, iteration: float | None) -> None:
    match = _ITERATION.fullmatch(filename_of(folder) or tree.path.name)
    if match and iteration is not None and iteration != int(match[1]):
        raise Damaged(f"{name}: of iteration {iteration:.0f}, in the folder of {int(match[1])} (of another save?)")


def _dist_folders(tree: Tree) -> list[str]:
    return sorted(
        folder
        for folder in {folder_of(name) for name in tree.entries if filename_of(name) in {CONFIG, COMMON}}
        if _is_dist(tree, folder)
    )


def _is_dist(tree: Tree, folder: str) -> bool:
    has_common, has_config, has_metadata = (
        f"{folder}/{filename}".lstrip("/") in tree.entries for filename in (COMMON, CONFIG, ".metadata")
    )
    if has_config and _read_backend(tree, folder) is not None:
        return True
    named = _FINISHED_BY_CONFIG.fullmatch(filename_of(folder) or tree.path.name) is not None
    return has_common and (has_metadata or named)


def _read_backend(tree: Tree, folder: str) -> str | None:
    """The writer's name in `metadata.json`. None when it is no such file: other tools write one as well."""
    name = f"{folder}/{CONFIG}".lstrip("/")
    entry = tree.entries[name]
    if entry.not_a_file or entry.stamp.size > LARGEST_CONFIG:
        return None
    try:
        return msgspec.json.decode(tree.read(name, at_most=LARGEST_CONFIG), type=_Config).sharded_backend
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _verify_dist(tree: Tree, folder: str) -> None:
    config, common, metadata = (f"{folder}/{name}".lstrip("/") for name in (CONFIG, COMMON, ".metadata"))
    if config not in tree.entries:
        raise Damaged(f"{config}: missing; it is written last (save not finished)")
    backend = _read_backend(tree, folder)
    if backend is None:
        raise Damaged(f"{config}: does not name its sharded_backend (torn write)")
    if backend != "torch_dist":
        raise Damaged(f"{config}: written by the backend {backend[:40]!r}, which healthd cannot verify")
    tree.require(metadata)
    tree.require(common)
    with open_state(tree, common) as state:
        _refuse_other_iteration(tree, folder, common, state.number("iteration"))
