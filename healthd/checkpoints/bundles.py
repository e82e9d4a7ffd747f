"""
Files in one folder that together are one checkpoint, recognised by name: TensorFlow's index and shards, PaddlePaddle's
model and optimizer, Keras' index and shards, files of ranks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

_PREFIXED = re.compile(r"(?P<prefix>.+)\.(?:index|meta|data-\d{5,}-of-\d{5,}|pdparams|pdopt)")
_MODEL, _OPTIMIZER = "pdparams", "pdopt"
_INDEX = ".weights.json"
_SHARD = re.compile(r"(?P<before>.+)_\d{5,}\.weights\.h5")
"""
The shards of Keras. Without an index beside it, such a file is a model by itself: epochs also have five digits.
"""
_RANK = re.compile(r"(?P<before>.*?rank[-_]?)(?P<rank>\d{1,6})(?P<after>(?:\D.*)?)")


def bundles(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """
    The bundles among *names*: the path for the loader, and the files of the bundle.

    The loaders of TensorFlow and PaddlePaddle take the common prefix of the names. The loader of Keras takes the
    index. For files of ranks, the lowest rank is the path. A single rank is no bundle.
    """
    names = list(names)
    indexes = {name for name in names if name.endswith(_INDEX)}
    found: dict[str, list[str]] = defaultdict(list, {index: [index] for index in indexes})
    ranks: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for name in names:
        if match := _PREFIXED.fullmatch(name):
            found[match["prefix"]].append(name)
        elif (match := _SHARD.fullmatch(name)) and match["before"] + _INDEX in indexes:
            found[match["before"] + _INDEX].append(name)
        elif match := _RANK.fullmatch(name):
            ranks[match["before"], match["after"]][int(match["rank"])] = name
    for files in ranks.values():
        if len(files) > 1:
            found[files[min(files)]] = list(files.values())
    return {path: tuple(sorted(files)) for path, files in found.items() if not all(map(_is_meta, files))}


def lost_optimizers(names: Iterable[str]) -> dict[str, str]:
    """
    The PaddlePaddle bundles without an optimizer, each with the name of the missing file.

    A model may be all that is saved. But when another step has an optimizer, a step without one is not finished: the
    optimizer is written after the model.
    """
    prefixes: dict[str, set[str]] = defaultdict(set)
    for name in names:
        prefix, _, suffix = name.rpartition(".")
        prefixes[suffix].add(prefix)
    models, optimizers = prefixes[_MODEL], prefixes[_OPTIMIZER]
    return {model: f"{model}.{_OPTIMIZER}" for model in models - optimizers} if models & optimizers else {}


def rank_of(name: str) -> tuple[str, int, str] | None:
    """The rank number in a file name, with the text before it and the text after it."""
    match = _RANK.fullmatch(name)
    return (match["before"], int(match["rank"]), match["after"]) if match else None


def _is_meta(name: str) -> bool:
    """The graph of TensorFlow 1, which alone proves nothing."""
    return name.endswith(".meta")
