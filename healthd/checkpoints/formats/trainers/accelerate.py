"""
Folders of `Accelerator.save_state`: `checkpoint_3`, or any name.

No marker says that all is written. The main rank writes the model first. Each rank writes its `random_states_N.pkl`
after all its other files. Those files are archives of `torch.save`, which their names do not show. Source:
accelerate/checkpointing.py (`save_accelerator_state`) and accelerate/accelerator.py (`save_state`).
"""

from __future__ import annotations

import re
from functools import partial

from healthd.checkpoints.formats.beside import older_steps, step_beside_has
from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.formats.torch.torch_zip import verify_file
from healthd.checkpoints.formats.trainers.hugging_face import has_model, has_optimizer, refuse_gaps, refuse_other_states
from healthd.checkpoints.tree import Damaged, Tree, survey
from healthd.checkpoints.workers import for_each

_RANDOM = re.compile(r"random_states_(\d{1,6})\.pkl")
_FOLDER = re.compile(r"checkpoint_\d{1,18}")
_WRITTEN_EARLY = re.compile(r"(?:optimizer|scheduler|sampler|dl_state_dict)(?:_\d+)?\.bin")
"""Files that the main rank writes before any rank writes its random states."""
_MODEL = re.compile(r"(?:pytorch_)?model[^/]*(?:/.*)?")
_CUSTOM = re.compile(r"custom_checkpoint_(\d{1,6})\.pkl")
_COMPARED = 2
"""The number of steps before one. A program that registers fewer objects than before looks like a lost file."""


class Accelerate:
    """Model, optimizer, and random states of ranks without a gap exist. The `.pkl` files are complete."""

    name = "accelerate"

    def owns(self, filename: str) -> bool:
        """The random states, and the objects that a program registered."""
        return any(pattern.fullmatch(filename) for pattern in (_RANDOM, _CUSTOM))

    def detect(self, tree: Tree) -> bool:
        """
        Any such file at the top, or files that are written before, when names or the step beside show that they are of
        Accelerate.
        """
        if any(self.owns(name) for name in tree.kinds):
            return True
        if _FOLDER.fullmatch(tree.path.name) and any(_WRITTEN_EARLY.fullmatch(name) for name in tree.kinds):
            return True
        return any(_MODEL.fullmatch(name) for name in tree.kinds) and step_beside_has(tree, "random_states_0.pkl")

    def verify(self, tree: Tree, level: VerifyLevel) -> None:
        """QUICK reads the directory of each archive; FULL every byte. Raises Damaged."""
        if not any(_RANDOM.fullmatch(name) for name in tree.entries):
            raise Damaged("random_states_0.pkl: missing; each rank writes its own last (save not finished)")
        refuse_gaps(tree, _RANDOM)
        refuse_gaps(tree, _CUSTOM)
        _refuse_lost(tree)
        if not has_model(tree):
            raise Damaged("no model beside the random states (model.safetensors or pytorch_model.bin)")
        if not has_optimizer(tree):
            raise Damaged("no optimizer beside the random states (optimizer.bin)")
        for_each(
            partial(verify_file, tree, level),
            sorted(name for name in tree.entries if self.owns(name)),
            at_once=tree.at_once,
        )
        refuse_other_states(tree, [name for name in tree.entries if _RANDOM.fullmatch(name)], "torch_manual_seed")


def _refuse_lost(tree: Tree) -> None:
    """Refuse a missing file that one of the two steps before has: its object was registered, and is loaded."""
    for step in older_steps(tree)[:_COMPARED]:
        try:
            names = survey(step).entries
        except Damaged:
            continue
        registered = (name for name in sorted(names) if _WRITTEN_EARLY.fullmatch(name) or _CUSTOM.fullmatch(name))
        lost = next((name for name in registered if name not in tree.entries), None)
        if lost:
            raise Damaged(f"{lost}: missing; {step.name} has it")
