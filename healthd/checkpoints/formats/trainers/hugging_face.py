"""What folders of Hugging Face's libraries contain, by names: a model, an optimizer, one file per rank."""

from __future__ import annotations

import re
from collections.abc import Sequence

from healthd.checkpoints.formats.trainers.deepspeed import DeepSpeed
from healthd.checkpoints.torch_state import open_state
from healthd.checkpoints.tree import Damaged, Tree, filename_of
from healthd.checkpoints.workers import for_each

_MODEL = re.compile(
    r".*\.safetensors(?:\.index\.json)?|(?:pytorch|adapter|diffusion_pytorch)_model.*\.bin(?:\.index\.json)?"
)
_MODEL_FOLDER = re.compile(r"(?:pytorch_model|model)\w*")
"""The optimizer of FSDP, in the format `torch_dcp`."""
_OPTIMIZER = re.compile(r"optimizer[-\w]*\.(?:bin|pt)(?:_\d+)*")
_OPTIMIZER_FOLDER = re.compile(r"optimizer(?:_\d+)?")


def has_model(tree: Tree) -> bool:
    """Whether a file is one of a model, in any folder. The format of that file decides whether it is complete."""
    return (
        any(_MODEL.fullmatch(filename_of(name)) for name in tree.entries)
        or _has_folder(tree, _MODEL_FOLDER)
        or DeepSpeed().detect(tree)
    )


def has_optimizer(tree: Tree) -> bool:
    """Whether the optimizer's state exists, as a file, as FSDP's folder or in DeepSpeed's folder."""
    return (
        any(_OPTIMIZER.fullmatch(name) for name in tree.entries)
        or _has_folder(tree, _OPTIMIZER_FOLDER)
        or DeepSpeed().detect(tree)
    )


def refuse_gaps(tree: Tree, pattern: re.Pattern[str]) -> None:
    """
    Raise Damaged when a number is missing among the files at the top that match *pattern*, whose group is the number.

    Counted from the lowest existing number: with local disks, each node has the files of its ranks.
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


def refuse_other_states(tree: Tree, names: Sequence[str], key: str) -> None:
    """
    Raise Damaged when one of *names*, the random states of ranks, can be read and lacks the *key* that all of them
    have.
    """

    def check(name: str) -> None:
        with open_state(tree, name) as state:
            if isinstance(state.value, dict) and state.value and key not in state.value:
                raise Damaged(f"{name}: not the random states of a rank (another file under this name?)")

    for_each(check, sorted(names), at_once=tree.at_once)


def _has_folder(tree: Tree, pattern: re.Pattern[str]) -> bool:
    return any("/" in name and pattern.fullmatch(name.partition("/")[0]) for name in tree.entries)
