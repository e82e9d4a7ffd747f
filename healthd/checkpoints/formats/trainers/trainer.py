"""
`checkpoint-500` of the Hugging Face Trainer, and of libraries built on it.

The main rank writes the model first and `trainer_state.json` last. It does not wait for the other ranks, which write
at the same time. Archives, safetensors and folders of DeepSpeed or FSDP inside are checked as those formats. Source:
`Trainer._save_checkpoint` and `_load_optimizer_and_scheduler` in transformers/trainer.py.
"""

from __future__ import annotations

import re
from itertools import islice

import msgspec

from healthd.checkpoints.formats.beside import step_beside_has
from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.formats.torch.pretrained import LARGEST_JSON, refuse_torn_json, without_pythons_own
from healthd.checkpoints.formats.trainers.hugging_face import has_model, has_optimizer, refuse_gaps, refuse_other_states
from healthd.checkpoints.tree import Damaged, Tree

STATE = "trainer_state.json"
INCOMPLETE = "checkpoint-is-incomplete.txt"
_FOLDER = re.compile(r"checkpoint-(\d{1,18})")
_LOADED_JSON = re.compile(r"(?:\w*config|tokenizer|special_tokens_map|added_tokens|vocab)\.json")
_RNG = re.compile(r"rng_state_(\d{1,6})\.pth")
_RANDOM = re.compile(r"rng_state(?:_\d{1,6})?\.pth")
_OWN = re.compile(r"training_args\.bin|(?:optimizer|scheduler|scaler)\.pt|rng_state(?:_\d{1,6})?\.pth")
"""Files that only the trainer writes into a `checkpoint-500`, all of them before its state."""
_KEYS = frozenset(
    {
        "best_global_step",
        "best_metric",
        "best_model_checkpoint",
        "epoch",
        "eval_steps",
        "global_step",
        "is_hyper_param_search",
        "is_local_process_zero",
        "is_world_process_zero",
        "log_history",
        "logging_steps",
        "max_steps",
        "num_input_tokens_seen",
        "num_train_epochs",
        "save_steps",
        "stateful_callbacks",
        "total_flos",
        "train_batch_size",
        "trial_name",
        "trial_params",
    }
)
"""Keys of the state in version 5. The trainer fails on an unknown key, but other versions have other keys."""
_KEY = re.compile(rb'^  "([^"\n]{1,40})": ', re.MULTILINE)
"""A key at the top level of JSON, in the layout of the trainer."""
_MOST_KEYS = 1_000


class _State(msgspec.Struct):
    global_step: int


class Trainer:
    """The trainer's state exists and is of this step. So do the model and the files that belong to the optimizer."""

    name = "trainer"

    def owns(self, filename: str) -> bool:
        """The state. All other files belong to other formats."""
        return filename == STATE

    def detect(self, tree: Tree) -> bool:
        """
        Its state. In a `checkpoint-500`, also files that are written before it, or any content when the step beside
        has a state.
        """
        if STATE in tree.entries or INCOMPLETE in tree.entries:
            return True
        if not _FOLDER.fullmatch(tree.path.name):
            return False
        return any(_OWN.fullmatch(name) for name in tree.kinds) or step_beside_has(tree, STATE)

    def verify(self, tree: Tree, level: VerifyLevel) -> None:  # noqa: ARG002 - there is nothing more to read
        """The same at both levels. Raises Damaged."""
        if INCOMPLETE in tree.entries:
            raise Damaged(f"{INCOMPLETE}: the writer removes it last (save not finished)")
        if STATE not in tree.entries:
            raise Damaged(f"{STATE}: missing; it is written last (save not finished)")
        _refuse_other_step(tree, read_step(tree))
        if not has_model(tree):
            raise Damaged(f"no model beside {STATE}")
        _refuse_half_an_optimizer(tree)
        refuse_gaps(tree, _RNG)
        refuse_other_states(tree, [name for name in tree.entries if _RANDOM.fullmatch(name)], "cpu")
        for name in sorted(tree.entries):
            if _LOADED_JSON.fullmatch(name):
                refuse_torn_json(tree, name)


def read_step(tree: Tree) -> int:
    """The step in `trainer_state.json`. Raises Damaged."""
    raw = tree.read(STATE, at_most=LARGEST_JSON)
    try:
        step = _parse(raw)
    except (ValueError, TypeError, KeyError, RecursionError) as error:  # a DecodeError is a ValueError
        raise Damaged(f"{STATE}: not the whole state of a trainer (torn write)") from error
    _refuse_misspelt(raw)
    return step


def _parse(raw: bytes) -> int:
    try:
        return msgspec.json.decode(raw, type=_State).global_step
    except msgspec.DecodeError:
        return msgspec.json.decode(without_pythons_own(raw), type=_State).global_step


def _refuse_misspelt(raw: bytes) -> None:
    """A key that is one letter off a missing key is damage. A key unlike all others is from another version."""
    keys = {match[1].decode(errors="replace") for match in islice(_KEY.finditer(raw), _MOST_KEYS)}
    for key in sorted(keys - _KEYS):
        meant = next((known for known in sorted(_KEYS - keys) if _is_one_letter_off(key, known)), None)
        if meant:
            raise Damaged(f"{STATE}: has the key {key!r}, where {meant} should be (changed bytes)")


def _is_one_letter_off(key: str, known: str) -> bool:
    return len(key) == len(known) and sum(a != b for a, b in zip(key, known, strict=True)) == 1


def _refuse_other_step(tree: Tree, step: int) -> None:
    match = _FOLDER.fullmatch(tree.path.name)
    if match and step != int(match[1]):
        raise Damaged(f"{STATE}: of step {step}, in the folder of {int(match[1])} (of another save?)")


def _refuse_half_an_optimizer(tree: Tree) -> None:
    """
    When one of the two is missing, the trainer starts both fresh without a message. When both are missing, either the
    trainer saves only the model (then there are no random states either), or an old step is being deleted. DeepSpeed
    keeps both in its own folder.
    """
    if "optimizer.pt" in tree.entries:
        tree.require("scheduler.pt")
        return
    if has_optimizer(tree):
        return
    for beside in ("scheduler.pt", *(name for name in tree.kinds if _RANDOM.fullmatch(name))):
        if beside in tree.entries:
            raise Damaged(f"optimizer.pt: missing; {beside} is there")
    if step_beside_has(tree, "optimizer.pt", newer=True):
        raise Damaged("optimizer.pt: missing; a newer step beside has it (being deleted?)")
