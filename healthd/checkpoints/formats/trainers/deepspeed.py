"""
DeepSpeed's folders (`global_step10`): ZeRO 0 to 3, with tensor, pipeline and expert parallelism.

Every rank writes its files in place, and no marker says that all are done. So the set must be complete: ranks without
gaps, and as many as the world size in a model file. The archives themselves are checked as `torch_zip`. A universal
checkpoint (made by `ds_to_universal`) has a folder for each parameter instead of the optimizer's shards.
Source: deepspeed/runtime/engine.py (`_save_checkpoint`, `_get_zero_ckpt_name`) and runtime/zero/stage_1_and_2.py.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Any, NamedTuple

from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.formats.trainers.agreement import refuse_other_steps
from healthd.checkpoints.torch_state import TorchState, open_state
from healthd.checkpoints.tree import Damaged, Tree, filename_of, folder_of, inside

POINTER = "latest"
LARGEST_POINTER = 4096
_RANKS = r"(?P<kind>bf16_|fp16_)?zero_pp_rank_(?P<dp>\d{1,6})_"
_MODEL = re.compile(rf"(?:{_RANKS})?mp_rank_(?P<mp>\d{{1,6}})_(?P<what>model)_states\.pt")
_OPTIMIZER = re.compile(rf"{_RANKS}mp_rank_(?P<mp>\d{{1,6}})_(?P<what>optim)_states\.pt")
_EXPERT = re.compile(
    r"(?:expp_rank_\d+_mp_rank_\d+_optim|layer_\d+_expert_\d+_mp_rank_\d+_model|layer_\d+-model_\d+-model)_states\.pt"
)

_WEIGHTS, _STEP = "fp32.pt", "step.pt"
_COMMON = "zero/optimizer_state.pt"
_UNIVERSAL = re.compile(r"(?:(?P<folder>.*)/)?zero/(?:optimizer_state|.+/(?:fp32|exp_avg|exp_avg_sq|step))\.pt")
_FOLDER = re.compile(r"global_step(\d{1,18})(?:_universal)?")
"""DeepSpeed's default name. A caller may give any other."""


class _World(NamedTuple):
    """The data in a model file about the run that wrote it. 0 when unknown."""

    data: int = 0
    model: int = 0
    zero_stage: int = 0
    step: int = 0
    trained: frozenset[str] = frozenset()
    """Names of the parameters that the optimizer has."""


class DeepSpeed:
    """
    The files of all ranks exist and, with FULL, are of one step. A `latest` beside them names one of their folders.
    """

    name = "deepspeed"

    def owns(self, filename: str) -> bool:
        """The shards of model and optimizer."""
        return any(pattern.fullmatch(filename) for pattern in (_MODEL, _OPTIMIZER, _EXPERT))

    def detect(self, tree: Tree) -> bool:
        """
        Any such file, in any folder: trainers put DeepSpeed's folder inside their own. For a universal checkpoint,
        also its parameters: the model files are copied to them last.
        """
        return any(self.owns(filename_of(name)) or _UNIVERSAL.fullmatch(name) for name in tree.kinds)

    def members(self, tree: Tree) -> int | None:
        """The number of rank files, unless a model state gives it."""
        owned = tree.owned(self.owns)
        model = next((name for name in owned if _MODEL.fullmatch(filename_of(name))), None)
        world = _read_world(tree, model) if model else None
        return None if world and world.data and world.model else len(owned)

    def verify(self, tree: Tree, level: VerifyLevel) -> None:
        """QUICK checks names and one model file. FULL also checks the steps in all files. Raises Damaged."""
        folders: dict[str, list[str]] = defaultdict(list)
        for name in tree.owned(self.owns):
            folders[folder_of(name)].append(name)
        for example in tree.kinds:
            if match := _UNIVERSAL.fullmatch(example):
                folders[match["folder"] or ""] += []  # also a folder without a model file yet
        for folder, names in folders.items():
            _verify_folder(tree, level, folder, names)
        for parent in sorted({folder_of(folder) for folder in folders if folder}):
            _verify_pointer(tree, parent, folders)


def read_optimizer_step(state: TorchState) -> float | None:
    """
    The step of one shard's optimizer. ZeRO 1, 2 and 3 and the optimizers of torch store it in different places.
    """
    for within in (("base_optimizer_state",), ("optimizer_state_dict",)):
        inner = ("optimizer_state_dict", *within)
        for place in (("state", 0, "step"), ("param_groups", 0, "step"), (0, "step")):
            step = state.number(*inner, *place)
            if step is not None:
                return step
    return None


def _verify_folder(tree: Tree, level: VerifyLevel, folder: str, names: list[str]) -> None:
    models = _matches(names, _MODEL)
    optimizers = _matches(names, _OPTIMIZER)
    parameters = _parameters(tree, f"{folder}/zero/".lstrip("/"))
    if not models and parameters:
        raise Damaged(f"{folder or '.'}: no model state beside the parameters; it is copied last (save not finished)")
    if not models:
        raise Damaged(f"{folder or '.'}: no model state (mp_rank_*_model_states.pt); not all ranks saved")
    first = next(iter(models))
    world = _read_world(tree, first)
    _refuse_other_step(tree, folder, first, world.step)
    _refuse_missing_ranks(models, world)
    _refuse_missing_ranks(optimizers, world)
    if parameters:
        tree.require(f"{folder}/{_COMMON}".lstrip("/"))
    _refuse_missing_parts(parameters)
    _refuse_missing_parameters(parameters, world.trained)
    if world.zero_stage and not optimizers and not parameters:
        raise Damaged(f"{folder or '.'}: no optimizer shard, though ZeRO stage {world.zero_stage} saves them")
    if level is VerifyLevel.FULL:
        refuse_other_steps(tree, list(models), "step", lambda state: state.number("global_steps"))
        refuse_other_steps(tree, list(optimizers), "optimizer step", read_optimizer_step)
        steps = [f"{parameter}/{_STEP}" for parameter, parts in sorted(parameters.items()) if _STEP in parts]
        refuse_other_steps(tree, steps, "optimizer step", lambda state: state.number())


def _refuse_other_step(tree: Tree, folder: str, name: str, step: int) -> None:
    """
    Compares the model's step. The optimizer's own step may be lower, after an overflow or a new start with old
    weights.
    """
    match = _FOLDER.fullmatch(filename_of(folder) or tree.path.name)
    if match and step and step != int(match[1]):
        raise Damaged(f"{name}: of step {step}, in the folder of {int(match[1])} (of another save?)")


def _parameters(tree: Tree, prefix: str) -> dict[str, set[str]]:
    """For a universal checkpoint: the files of each parameter, by folder."""
    found: dict[str, set[str]] = defaultdict(set)
    for name in tree.entries:
        if name.startswith(prefix) and name.endswith(".pt"):
            found[folder_of(name)].add(filename_of(name))
    found.pop(prefix.rstrip("/"), None)  # the optimizer's data for all parameters
    return found


def _refuse_missing_parts(parameters: dict[str, set[str]]) -> None:
    """
    Each parameter has its weights, and the same moments as the others. Parameters that are not trained, and buffers,
    have no moments.
    """
    for folder in sorted(parameters):
        if _WEIGHTS not in parameters[folder]:
            raise Damaged(f"{folder}/{_WEIGHTS}: missing; the other files of this parameter are here")
    trained = {folder: parts for folder, parts in parameters.items() if len(parts) > 1}
    usual = Counter(part for parts in trained.values() for part in parts)
    for folder, parts in sorted(trained.items()):
        absent = next((part for part in sorted(usual) if part not in parts and usual[part] * 2 > len(trained)), None)
        if absent is not None:
            raise Damaged(f"{folder}/{absent}: missing; {usual[absent]:,} of {len(trained):,} parameters have it")


def _refuse_missing_parameters(parameters: dict[str, set[str]], trained: frozenset[str]) -> None:
    """
    For a universal checkpoint. No check when most names differ from those in the model file.
    """
    here = {filename_of(folder) for folder, parts in parameters.items() if len(parts) > 1}
    absent = sorted(trained - here)
    if here and absent and len(absent) * 2 < len(trained):
        total = f"{len(trained) - len(absent):,} of {len(trained):,}"
        raise Damaged(f"zero/{absent[0]}: without state of the optimizer; {total} trained parameters have it")


def _matches(names: list[str], pattern: re.Pattern[str]) -> dict[str, re.Match[str]]:
    found = {name: pattern.fullmatch(filename_of(name)) for name in names}
    return {name: match for name, match in found.items() if match}


def _read_world(tree: Tree, name: str) -> _World:
    with open_state(tree, name) as state:
        zero = ("ds_config", "zero_optimization")
        mics = state.count(*zero, "mics_shard_size")  # with MiCS, only the first group of ranks saves
        return _World(
            data=mics or state.count("dp_world_size"),
            model=state.count("mp_world_size"),
            zero_stage=state.count(*zero, "stage"),
            step=state.count("global_steps"),
            trained=_names(state.at("param_shapes")),
        )


def _names(shapes: Any) -> frozenset[str]:
    groups = shapes if isinstance(shapes, list) else []
    return frozenset(str(name) for group in groups if isinstance(group, dict) for name in group)


def _refuse_missing_ranks(files: dict[str, re.Match[str]], world: _World) -> None:
    """
    Pipeline stages count as model ranks. The file gives only the number of tensor-parallel ranks: at least so many.
    """
    ranks = {(int(match["mp"]), int(match["dp"] or 0)) for match in files.values()}
    if not ranks:
        return
    name, example = next(iter(files.items()))
    model = max(world.model, *(mp + 1 for mp, _ in ranks))
    data = max(world.data, *(dp + 1 for _, dp in ranks)) if example["dp"] else 1
    absent = next(((mp, dp) for mp in range(model) for dp in range(data) if (mp, dp) not in ranks), None)
    if absent is not None:
        missing = name.removesuffix(example[0]) + _filename(example, *absent)
        raise Damaged(f"{missing}: missing; {len(ranks):,} of {model * data:,} such files are here")


def _filename(example: re.Match[str], mp: int, dp: int) -> str:
    shard = f"{example['kind'] or ''}zero_pp_rank_{dp}_" if example["dp"] else ""
    return f"{shard}mp_rank_{mp:02}_{example['what']}_states.pt"


def _verify_pointer(tree: Tree, parent: str, folders: Collection[str]) -> None:
    """A `latest` inside the checkpoint is the pointer that a trainer's own loader follows."""
    name = f"{parent}/{POINTER}".lstrip("/")
    if name not in tree.entries:
        return
    tag = tree.read(name, at_most=LARGEST_POINTER).decode("utf-8", "replace").strip()
    if not tag:
        raise Damaged(f"{name}: empty, should name a folder (torn write)")
    if inside(parent, tag, named_by=name) not in folders:
        raise Damaged(f"{name}: names {tag[:80]!r}, where nothing of DeepSpeed is")
