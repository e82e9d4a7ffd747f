"""
Files in one folder that together are one checkpoint, recognised by name: TensorFlow's index and shards, PaddlePaddle's
model and optimizer, Keras' index and shards, files of ranks, a model and the state of its optimizer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain

from healthd.checkpoints.step_names import loads_alone, without_suffix

_PREFIXED = re.compile(r"(?P<prefix>.+)\.(?:index|meta|data-\d{5,}-of-\d{5,}|pdparams|pdopt)")
_MODEL, _OPTIMIZER = "pdparams", "pdopt"
_INDEX = ".weights.json"
_SHARD = re.compile(r"(?P<before>.+)_\d{5,}\.weights\.h5")
"""
The shards of Keras. Without an index beside it, such a file is a model by itself: epochs also have five digits.
"""
_RANK = re.compile(r"(?P<before>.*?rank[-_]?)(?P<rank>\d{1,6})(?P<after>(?:\D.*)?)")
_STATE = re.compile(
    r"(?<![A-Za-z])(?:optim(?:izer)?|opt|(?:lr[-_]?)?sched(?:uler)?|(?:grad[-_]?)?scaler)(?![A-Za-z])", re.IGNORECASE
)
"""A word for what a trainer saves beside its model, and needs to go on."""
_OF_MODELS = ("model", "weights", "net", "checkpoint", "ckpt")


def bundles(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """
    The bundles among *names*: the path for the loader, and the files of the bundle.

    The loaders of TensorFlow and PaddlePaddle take the common prefix of the names. The loader of Keras takes the
    index. For files of ranks, the lowest rank is the path. A single rank is no bundle. Of a model and
    its optimizer, the model is the path.
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
    taken = set(chain(*found.values(), *(files.values() for files in ranks.values())))
    for model, states in _with_states(name for name in names if name not in taken).items():
        found[model] = [model, *states]
    for files in ranks.values():
        if len(files) > 1:
            found[files[min(files)]] = list(files.values())
    return {path: tuple(sorted(files)) for path, files in found.items() if not all(map(_is_meta, files))}


def _with_states(names: Iterable[str]) -> dict[str, list[str]]:
    """The models beside which the state of an optimizer stands under a name that differs in that word alone."""
    by_stem: dict[str, list[str]] = defaultdict(list)
    for name in filter(loads_alone, names):
        by_stem[without_suffix(name)].append(name)
    found: dict[str, list[str]] = defaultdict(list)
    for stem, states in by_stem.items():
        model = next((by_stem[other] for other in _models_of(stem) if other in by_stem), [])
        if len(model) == 1:
            found[model[0]] += states
    return found


def _models_of(stem: str) -> Iterator[str]:
    """What the model is called whose state *stem* names. Nothing when *stem* names no state."""
    if not (word := _STATE.search(stem)):
        return
    before, after = stem[: word.start()], stem[word.end() :]
    yield from (f"{before}{model}{after}" for model in _OF_MODELS)
    yield before.rstrip("-_.") + after
    yield before + after.lstrip("-_.")


def is_state(name: str) -> bool:
    """Whether a word in it says that it is the state of an optimizer, or what belongs to one."""
    return _STATE.search(name) is not None


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
