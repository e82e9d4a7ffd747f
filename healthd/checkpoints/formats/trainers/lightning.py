"""
Checkpoints of PyTorch Lightning: a `.ckpt` file, or with sharded strategies a folder of that name.

A file is one archive of `torch.save` (checked as `torch_zip`), renamed into place when it is complete. A folder of
FSDP or of a mesh is a `torch_dcp` folder and `meta.pt`, written after it. A folder of DeepSpeed has `checkpoint/`
inside. Source: lightning/pytorch/trainer/connectors/checkpoint_connector.py and lightning/pytorch/strategies.
"""

from __future__ import annotations

import re

from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.formats.trainers.deepspeed import DeepSpeed
from healthd.checkpoints.torch_state import open_state
from healthd.checkpoints.tree import Damaged, Location, Tree, survey

META = "meta.pt"
_SUFFIX = ".ckpt"
_LAST = re.compile(r"last(?:-v\d{1,6})?\.ckpt")
_AGAIN = re.compile(r"-v(\d{1,6})\.ckpt$")
_VERSION = "pytorch-lightning_version"


class Lightning:
    """Has what Lightning needs to resume: in a file also the optimizer, in a folder `meta.pt`."""

    name = "lightning"

    def owns(self, filename: str) -> bool:  # noqa: ARG002 - any `.ckpt` is of torch
        """No file by its name alone: the suffix belongs to `torch_zip`."""
        return False

    def detect(self, tree: Tree) -> bool:
        """A `.ckpt` file that contains Lightning's version, or a `.ckpt` folder. Raises Damaged."""
        if not tree.path.name.endswith(_SUFFIX):
            return False
        if tree.path == tree.base:
            return META in tree.entries or any(name.endswith(".distcp") for name in tree.entries)
        if tree.path.name not in tree.entries:
            return False  # a prefix of TensorFlow's names
        with open_state(tree, tree.path.name) as state:
            return state.at(_VERSION) is not None

    def verify(self, tree: Tree, level: VerifyLevel) -> None:  # noqa: ARG002 - the rest is read as `torch_zip`
        """The same at both levels. Raises Damaged."""
        if tree.path == tree.base:
            _verify_folder(tree)
        else:
            _verify_file(tree, tree.path.name)


def is_last(filename: str) -> bool:
    """Whether this is the name of `save_last`. It has no step, but may be newer than all names with a step."""
    return _LAST.fullmatch(filename) is not None


def times_saved_before(filename: str) -> int:
    """
    How often Lightning had saved under this name: it continues the count when the file exists, as after a restart.
    """
    match = _AGAIN.search(filename)
    return int(match[1]) if match else 0


def read_step(path: Location, *, is_folder: bool) -> int | None:
    """The step inside a checkpoint of Lightning. None when it cannot be read. One small read."""
    try:
        file = path / META if is_folder else path
        tree = survey(file)
        with open_state(tree, file.name) as state:
            return state.count("global_step") or None
    except (Damaged, OSError):
        return None


def _verify_file(tree: Tree, name: str) -> None:
    with open_state(tree, name) as state:
        if state.at("state_dict") is None:
            raise Damaged(f"{name}: a checkpoint of Lightning without a model")
        if state.at("optimizer_states") is None:
            raise Damaged(f"{name}: the model only (save_weights_only), from which Lightning does not resume")


def _verify_folder(tree: Tree) -> None:
    if DeepSpeed().detect(tree):
        return
    if META not in tree.entries:
        raise Damaged(f"{META}: missing; it is written last (save not finished)")
    tree.require(".metadata")
