"""Checks what the files of one save must agree on: the step that each of them contains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from healthd.checkpoints.torch_state import TorchState, open_state
from healthd.checkpoints.tree import Damaged, Tree
from healthd.checkpoints.workers import for_each


def refuse_other_steps(
    tree: Tree, names: Sequence[str], what: str, read: Callable[[TorchState], float | None]
) -> float | None:
    """
    The step in all files of `torch.save` in *names*, when they contain one.

    Raises Damaged and names the different file when the steps differ, as after a copy from two saves.
    """

    def read_step(name: str) -> float | None:
        with open_state(tree, name) as state:
            return read(state)

    steps = dict(zip(names, for_each(read_step, names, at_once=tree.at_once), strict=True))
    known = {name: step for name, step in steps.items() if step is not None}
    if not known:
        return None
    usual = Counter(known.values()).most_common(1)[0][0]
    odd = next((name for name, step in known.items() if step != usual), None)
    if odd is not None:
        raise Damaged(f"{odd}: of {what} {known[odd]:.0f}, the others of {usual:.0f} (a shard of another save?)")
    return usual
