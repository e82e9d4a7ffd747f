"""
How many ranks saved a checkpoint, when its files do not say how many there must be.

A rank that did not save is detected only by comparison: earlier steps of the same writer have its file. A gang that
was made smaller on purpose looks the same. So a step is compared only with the few steps before it. After that many
smaller steps in a row, the smaller number is accepted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Protocol, runtime_checkable

from healthd.checkpoints.formats.format import Format
from healthd.checkpoints.steps import Candidate
from healthd.checkpoints.tree import Damaged, Tree, survey

COMPARED = 2
"""The number of steps before one that it is compared with."""
_RANK = re.compile(r"rank[-_]?\d{1,6}(?:_\d{1,6})*|(?:(?<=/)|^)shard-\d{5}-(?=model-)")
"""A rank in a name. torch.distributed.checkpoint calls it a shard in the name of a safetensors file."""


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
