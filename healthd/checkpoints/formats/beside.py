"""The steps beside a step: folders whose names differ only by numbers, made by the same writer."""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import gt, lt, ne

from healthd.checkpoints.stores.urls import Location, store_of
from healthd.checkpoints.tree import Damaged, Tree, survey

_NUMBER = re.compile(r"\d+")
_STEP = re.compile(
    r"\d+|(?:.*[-_.=])?(?:checkpoint|ckpt|(?:global_?)?step|iter(?:ation)?|batch|ba|epoch|ep)s?[-_.=]?\d+(?:[-_.=].*)?",
    re.IGNORECASE,
)
_MOST = 4


def older_steps(tree: Tree) -> list[Location]:
    """The newest few older steps, when the folder's name is that of a step and not of a run."""
    return _beside(tree, lt) if names_a_step(tree) else []


def names_a_step(tree: Tree) -> bool:
    """Whether the folder's name is that of a step. `exp-1` and `exp-2` may be of two writers."""
    return _STEP.fullmatch(tree.path.name) is not None


def step_beside_has(tree: Tree, filename: str, *, newer: bool = False) -> bool:
    """
    Whether a step beside has this file at its top.

    The same writer made both, so a complete checkpoint has the file, too. With *newer*, a later step counts: then this
    step had the file and is being deleted.
    """
    beside = _beside(tree, gt if newer else ne)
    return any(_is_file(path / filename) for path in beside)


def _beside(tree: Tree, compare: Callable[[tuple[int, ...], tuple[int, ...]], bool]) -> list[Location]:
    """The newest few whose numbers compare to the tree's own as *compare* says. Empty when that is unknown."""
    own, parent = tree.path.name, tree.path.parent
    if not _NUMBER.search(own) or tree.path != tree.base:
        return []
    try:
        names = [listed.name for listed in store_of(parent).names(parent) if listed.is_folder]
    except OSError:
        return []
    alike = [name for name in names if name != own and _NUMBER.sub("0", name) == _NUMBER.sub("0", own)]
    kept = [name for name in alike if compare(_numbers(name), _numbers(own))]
    return [parent / name for name in sorted(kept, key=_numbers, reverse=True)[:_MOST]]


def _is_file(path: Location) -> bool:
    try:
        return path.name in survey(path).entries
    except Damaged:
        return False


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(number[:18]) for number in _NUMBER.findall(name))
