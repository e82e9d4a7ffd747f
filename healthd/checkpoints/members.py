"""
How many ranks saved a checkpoint, and which files a step has, when its files do not say what there must be.

A rank that did not save is detected only by comparison: earlier steps of the same writer have its file. A gang that
was made smaller on purpose looks the same. So a step is compared only with the few steps before it. After that many
smaller steps in a row, the smaller number is accepted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Protocol, runtime_checkable

from healthd.checkpoints.bundles import is_state
from healthd.checkpoints.formats.format import Format
from healthd.checkpoints.steps import Candidate
from healthd.checkpoints.tree import Damaged, Tree, filename_of, number_free, survey

COMPARED = 2
"""The number of steps before one that it is compared with."""
_RANK = re.compile(r"rank[-_]?\d{1,6}(?:_\d{1,6})*|(?:(?<=/)|^)shard-\d{5}-(?=model-)")
"""A rank in a name. torch.distributed.checkpoint calls it a shard in the name of a safetensors file."""

_SINGLE_FILES = frozenset({"torch_zip", "safetensors"})
"""The formats in which no file says which others there are. Trainers written by hand use them."""
_INDEX = ".index.json"
"""Which shard has which tensor. It is written last, and a trainer that reads by it finds no model without it."""
_MODEL = re.compile(r"(?:pytorch_)?(?:model|weights)\.\w+", re.IGNORECASE)


@runtime_checkable
class Counts(Protocol):
    """A format that can count its ranks better than by names with `rank` and a number."""

    def members(self, tree: Tree) -> int | None:
        """
        How many ranks saved it. None when its files say how many there must be: then `verify` checks that number.
        """
        ...


def members_of(formats: Sequence[Format], tree: Tree) -> int:
    """How many ranks saved *tree*, which has these *formats*. 0 when they cannot be counted, or need not be."""
    counts = [fmt.members(tree) for fmt in formats if isinstance(fmt, Counts)]
    known = [count for count in counts if count is not None]
    return max(known, default=0) if counts else by_names(tree)


def by_names(tree: Tree) -> int:
    """The largest number of files of *tree* whose names differ only by the rank number."""
    kinds = Counter(_RANK.sub("rank", name) for name in tree.entries if _RANK.search(name))
    return max(kinds.values(), default=0)


def fewer(members: int, formats: Sequence[Format], before: Sequence[Candidate]) -> str:
    """
    Why a step with *members* ranks is incomplete compared with the steps *before* it, the newest first. Empty if it is
    complete.
    """
    if not members:
        return ""
    for earlier in islice((each for each in before if not each.unfinished), COMPARED):
        try:
            tree = survey(earlier.path, beside=earlier.beside)
            there = members_of([fmt for fmt in formats if fmt.detect(tree)], tree)
        except Damaged:
            continue
        if there > members:
            so = "not all ranks saved; of a gang that was made smaller, the third such step is believed"
            return f"{members:,} of {there:,} ranks are here, by the files of {earlier.path.name} ({so})"
    return ""


def lost_file(tree: Tree, format: str, before: Sequence[Candidate]) -> str:  # noqa: A002 - as in `latest`
    """
    Why a step of files that say nothing of each other is not finished, compared with the steps *before* it. Empty if it
    is.

    Only a model, the index of its shards and the state of its optimizer are missed, and only where both steps before
    have them: a trainer may save a best model now and then, or the optimizer every n-th time. One that leaves it out
    from now on is believed at its next step.
    """
    if format not in _SINGLE_FILES:
        return ""
    finished = list(islice((each for each in before if not each.unfinished), COMPARED))
    if len(finished) < COMPARED or any(number_free(each.path.name) != number_free(tree.path.name) for each in finished):
        return ""
    try:
        saved = [_needed(survey(each.path, beside=each.beside)) for each in finished]
    except Damaged:
        return ""
    kinds = {number_free(name) for name in tree.entries}
    lost = next((name for kind, name in saved[0].items() if kind in saved[1] and kind not in kinds), "")
    return f"not finished: no file like {lost}, which both steps before have" if lost else ""


def _needed(tree: Tree) -> Mapping[str, str]:
    """The files that a trainer goes on from, by their names without numbers."""
    return {number_free(name): name for name in tree.entries if _is_needed(filename_of(name))}


def _is_needed(filename: str) -> bool:
    return is_state(filename) or _MODEL.fullmatch(filename) is not None or filename.endswith(_INDEX)
