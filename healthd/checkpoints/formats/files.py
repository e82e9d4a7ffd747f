"""What the folders of Hugging Face's libraries hold, by names: a model, an optimizer, one file for each rank."""

from __future__ import annotations

import re

from healthd.checkpoints.formats.deepspeed import DeepSpeed
from healthd.checkpoints.stores.urls import store_of
from healthd.checkpoints.tree import Damaged, Location, Tree, filename_of, survey

_MODEL = re.compile(
    r".*\.safetensors(?:\.index\.json)?|(?:pytorch|adapter|diffusion_pytorch)_model.*\.bin(?:\.index\.json)?"
)
_MODEL_FOLDER = re.compile(r"(?:pytorch_model|model)\w*")
"""Of FSDP, in the format `torch_dcp`."""
_OPTIMIZER = re.compile(r"optimizer[-\w]*\.(?:bin|pt)(?:_\d+)*")
_OPTIMIZER_FOLDER = re.compile(r"optimizer(?:_\d+)?")
_NUMBER = re.compile(r"\d+")
_MOST_BESIDE = 4
"""Of the steps beside one, so many are looked at."""


def has_model(tree: Tree) -> bool:
    """Whether some file is one of a model, in any folder; the format of that file says whether it is whole."""
    return (
        any(_MODEL.fullmatch(filename_of(name)) for name in tree.entries)
        or _has_folder(tree, _MODEL_FOLDER)
        or DeepSpeed().detect(tree)
    )


def has_optimizer(tree: Tree) -> bool:
    """Whether the optimizer's state is there, as a file, as FSDP's folder or in DeepSpeed's."""
    return (
        any(_OPTIMIZER.fullmatch(name) for name in tree.entries)
        or _has_folder(tree, _OPTIMIZER_FOLDER)
        or DeepSpeed().detect(tree)
    )


def step_beside_has(tree: Tree, filename: str, *, newer: bool = False) -> bool:
    """
    Whether another step beside this one, a folder of the same name but for its numbers, has this file at its top.

    The same writer made both, so that this one will have it as well once it is whole. With *newer* of later steps
    alone: then it had the file and is being deleted. False when nobody can tell.
    """
    own, parent = tree.path.name, tree.path.parent
    if not _NUMBER.search(own) or tree.path != tree.base:
        return False
    try:
        names = [listed.name for listed in store_of(parent).names(parent) if listed.is_folder]
    except OSError:
        return False
    alike = [name for name in names if name != own and _NUMBER.sub("0", name) == _NUMBER.sub("0", own)]
    if newer:
        alike = [name for name in alike if _numbers(name) > _numbers(own)]
    newest = sorted(alike, key=_numbers, reverse=True)[:_MOST_BESIDE]
    return any(_is_file(parent / name / filename) for name in newest)


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(number[:18]) for number in _NUMBER.findall(name))


def _is_file(path: Location) -> bool:
    try:
        return path.name in survey(path).entries
    except Damaged:
        return False


def refuse_gaps(tree: Tree, pattern: re.Pattern[str]) -> None:
    """
    Raise Damaged when a number is missing among the files at the top that match *pattern*, whose group is the number.

    From the lowest that is there: on disks of its own each node has the files of its ranks.
    """
    names = {int(match[1]): match for name in tree.entries if (match := pattern.fullmatch(name))}
    if not names:
        return
    lowest = min(names)
    absent = next((number for number in range(lowest, max(names)) if number not in names), None)
    if absent is not None:
        match = names[lowest]
        name = match[0][: match.start(1)] + str(absent) + match[0][match.end(1) :]
        raise Damaged(f"{name}: missing; {len(names):,} such files are here (not all ranks saved)")


def _has_folder(tree: Tree, pattern: re.Pattern[str]) -> bool:
    return any("/" in name and pattern.fullmatch(name.partition("/")[0]) for name in tree.entries)
