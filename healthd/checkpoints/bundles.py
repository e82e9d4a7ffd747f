"""
Files beside each other that are one checkpoint together, told by names: TensorFlow's index and shards, PaddlePaddle's
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
"""Of Keras; without an index beside it a model of its own, for epochs are written with five digits as well."""
_RANK = re.compile(r"(?P<before>.*?rank[-_]?)(?P<rank>\d{1,6})(?P<after>(?:\D.*)?)")


def bundles(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """
    The bundles among *names*: what a loader is given, and its files.

    TensorFlow and PaddlePaddle are given what their names begin with, Keras its index; of ranks the lowest stands for
    all, and one rank alone is no bundle.
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
    The bundles of PaddlePaddle without their optimizer, each with the file that is missing.

    A model may be all that is saved. But where another step has an optimizer, one without it was not finished: it is
    written after the model.
    """
    prefixes: dict[str, set[str]] = defaultdict(set)
    for name in names:
        prefix, _, suffix = name.rpartition(".")
        prefixes[suffix].add(prefix)
    models, optimizers = prefixes[_MODEL], prefixes[_OPTIMIZER]
    return {model: f"{model}.{_OPTIMIZER}" for model in models - optimizers} if models & optimizers else {}


def rank_of(name: str) -> tuple[str, int, str] | None:
    """What stands before the number of the rank in the name of a file, the number, and what stands after it."""
    match = _RANK.fullmatch(name)
    return (match["before"], int(match["rank"]), match["after"]) if match else None


def _is_meta(name: str) -> bool:
    """The graph of TensorFlow 1, which says nothing by itself."""
    return name.endswith(".meta")
