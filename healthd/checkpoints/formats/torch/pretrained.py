"""
The files that loaders of Hugging Face's libraries need beside the weights: the index of the shards, and
configurations.

Source: `save_pretrained` and `load_sharded_checkpoint` in transformers, `split_state_dict_into_shards_factory` in
huggingface_hub.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import msgspec

from healthd.checkpoints.encodings.jsons import refuse_no_text
from healthd.checkpoints.formats.beside import names_a_step, step_beside_has
from healthd.checkpoints.tree import Damaged, Tree, filename_of, folder_of

LARGEST_JSON = 64 << 20
"""Bytes."""
CONFIGURATION = "config.json"
_LATER = "generation_config.json"
"""Written after the configuration of the model. When it is torn, the loaders continue without it."""
_NEEDED = re.compile(
    r"(?:(?:adapter_|tokenizer_|(?:pre)?processor_)?config|tokenizer|special_tokens_map|added_tokens|vocab)\.json"
)
"""JSON that the libraries write beside weights. Without it they load neither model nor tokenizer."""
_SHARD = re.compile(
    r"(?P<stem>(?:pytorch_|adapter_|diffusion_pytorch_)?model)(?P<variant>\.\w+)?-(?P<number>\d{5})-of-\d{5}"
    r"(?P<suffix>\.safetensors|\.bin)"
)
"""A shard with the name that the libraries give it. They count from 1."""
_WEIGHTS = re.compile(
    r"(?:pytorch_|diffusion_pytorch_)?model(?:\.\w+)?(?:-\d{5}-of-\d{5})?(?:\.safetensors|\.bin)(?:\.index\.json)?"
)
"""A whole model, one of its shards or their index, with the name that the libraries give it."""
_PYTHONS_OWN = ((b"NaN", b"0"), (b"Infinity", b"0"), (b"\\ud", b"\\u0"), (b"\\uD", b"\\u0"))
"""
Values that only Python writes and reads as JSON (NaN and infinite losses, half a surrogate pair), and their
replacements. Texts may contain them, too, and stay texts.
"""


class _Model(msgspec.Struct):
    model_type: str


def model_in(names: Collection[str]) -> list[str]:
    """The weights of a model that is loaded by its folder, where *names* are directly in that."""
    return sorted(filter(_WEIGHTS.fullmatch, names)) if CONFIGURATION in names else []


def refuse_lost_index(tree: Tree, shards: Collection[str]) -> None:
    """
    Raise Damaged when shards with the libraries' own names have no index: without it the libraries load nothing.

    Ranks that each write their own shard count from 0. Those are from another writer, and nothing is missing.
    """
    matches = [(name, match) for name in sorted(shards) if (match := _SHARD.fullmatch(filename_of(name)))]
    own = {(folder_of(name), match["stem"]) for name, match in matches if not int(match["number"])}
    for name, match in matches:
        folder, stem = folder_of(name), match["stem"]
        prefix, variant = f"{folder}/".lstrip("/"), match["variant"] or ""
        indexes = [f"{prefix}{stem}{match['suffix']}.index{variant}.json"]
        indexes += [f"{prefix}{stem}{variant}{match['suffix']}.index.json"]
        if (folder, stem) not in own and not any(index in tree.entries for index in indexes):
            raise Damaged(f"{indexes[0]}: missing; loaders find shards such as {filename_of(name)} by it (torn save?)")


def refuse_bad_configurations(tree: Tree, weights: Iterable[str]) -> None:
    """
    Raise Damaged when a configuration in the folder of *weights* is not complete JSON, or the model's is missing.
    """
    folders = {folder_of(name) for name in weights}
    for name in sorted(tree.entries):
        if _NEEDED.fullmatch(filename_of(name)) and folder_of(name) in folders:
            refuse_torn_json(tree, name)
    if "" in folders:
        _refuse_lost_configuration(tree)


def _refuse_lost_configuration(tree: Tree) -> None:
    """For a folder with the weights at its top."""
    has_later = _LATER in tree.entries
    if CONFIGURATION in tree.entries:
        if has_later and not _names_a_model(tree):
            raise Damaged(f"{CONFIGURATION}: names no model_type, as every model has one that has a {_LATER}")
    elif has_later:
        raise Damaged(f"{CONFIGURATION}: missing; {_LATER} is there, which is written after it")
    elif names_a_step(tree) and step_beside_has(tree, CONFIGURATION):
        raise Damaged(f"{CONFIGURATION}: missing; a step beside has it (torn save, or being deleted?)")


def _names_a_model(tree: Tree) -> bool:
    raw = without_pythons_own(tree.read(CONFIGURATION, at_most=LARGEST_JSON))
    try:
        return bool(msgspec.json.decode(raw, type=_Model).model_type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def refuse_torn_json(tree: Tree, name: str) -> None:
    """Raise Damaged when the file is not complete JSON, as Python writes it."""
    raw = tree.read(name, at_most=LARGEST_JSON)
    try:
        refuse_no_text(raw)
        _refuse_no_json(raw)
    except (ValueError, RecursionError) as error:  # a DecodeError is a ValueError
        raise Damaged(f"{name}: {'not whole JSON (torn write)' if raw else 'empty file'}") from error


def without_pythons_own(raw: bytes) -> bytes:
    """Standard JSON: Python's own decoder would keep all values in memory at once."""
    for own, usual in _PYTHONS_OWN:
        raw = raw.replace(own, usual)
    return raw


def _refuse_no_json(raw: bytes) -> None:
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)  # builds no values
    except msgspec.DecodeError:
        msgspec.json.decode(without_pythons_own(raw), type=msgspec.Raw)
