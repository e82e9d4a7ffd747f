"""
What the name of a checkpoint says: its step, whether it is finished, and whether it may be one at all. Pure.
"""

from __future__ import annotations

import re

_WORDS = (
    r"(?:global_?)?steps?",
    r"iter(?:ation)?s?|it|batch|ba",
    r"checkpoint|ckpt|chkpt|cp|snapshot|model|save|^(?:train_?)?state|^weights",
    r"epoch|ep",
)
"""Words before a step number. An earlier row wins in a name such as `epoch=1-step=500`."""
_NUMBERS = [re.compile(rf"(?:^|[-_.=])(?:{words})[-_.=]?(\d{{1,18}})(?=$|[-_.=])", re.IGNORECASE) for words in _WORDS]
_WHOLE = re.compile(rf"(?:(?:{'|'.join(_WORDS)})[-_.=]?)?\d{{1,18}}", re.IGNORECASE)
_BARE = re.compile(r"\d{1,18}")
_PLAIN = re.compile(r"[A-Za-z0-9_.=+-]+")
_SHARD = re.compile(r"-of-\d", re.IGNORECASE)
_ALONE = re.compile(
    r"\.(?:pt|pth|bin|ckpt|safetensors|npz|npy|msgpack|keras|(?:weights\.)?h5|hdf5|nemo|ubj|tar|pkl)$", re.IGNORECASE
)
"""The suffix of a file that can be loaded by itself. An index, a manifest or one of many pieces cannot."""
_TEMPORARY = re.compile(
    r"^\.|^tmp[-_.]|~$|-unfinished$|\.orbax-checkpoint-tmp|[-_.](?:tmp|temp|partial|part|incomplete|inprogress|writing|staging)(?=$|[-_.])",
    re.IGNORECASE,
)


def parse_step(name: str) -> int | None:
    """The step number in a checkpoint name, such as `checkpoint-500` or `0000500`. None when there is none."""
    if not _PLAIN.fullmatch(name) or _SHARD.search(name):
        return None
    stem = _ALONE.sub("", name)
    if _BARE.fullmatch(stem):
        return int(stem)
    for number in _NUMBERS:
        if match := number.search(stem):
            return int(match[1])
    return None


def is_step(name: str) -> bool:
    """Whether it is a step and nothing else."""
    return _WHOLE.fullmatch(name) is not None


def loads_alone(name: str) -> bool:
    """Whether a file of this name can be loaded by itself."""
    return _ALONE.search(name) is not None and not _SHARD.search(name)


def is_temporary(name: str) -> bool:
    """Whether an unfinished writer, or a person, gives such a name."""
    return _TEMPORARY.search(name) is not None


def final_name(name: str) -> str:
    """The final name for a temporary name: the text before the mark, or after it when the name starts with the mark."""
    temporary = _TEMPORARY.search(name)
    if temporary is None:
        return name
    return name[: temporary.start()] or name[temporary.end() :]
