"""
What the name of a checkpoint says: its step, whether it is finished, and whether it may be one at all. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable

from healthd.core.untrusted import LARGEST_STEP

_DIGITS = r"\d{1,255}"
"""
A number in a name, which may be too large for a step. No file name is longer. A location, and the last words of a rank,
may have thousands of digits, and those are no number: `int` refuses them.
"""
_WORDS = (
    r"(?:global_?)?steps?",
    r"iter(?:ation)?s?|it|batch|ba",
    r"checkpoint|ckpt|chkpt|cp|snapshot|model|save|^(?:train_?)?state|^weights",
    r"epoch|ep",
)
"""Words before a step number. An earlier row wins in a name such as `epoch=1-step=500`."""
_NUMBERS = [re.compile(rf"(?:^|[-_.=,])(?:{words})[-_.=]?({_DIGITS})(?=$|[-_.=,])", re.IGNORECASE) for words in _WORDS]
_BEFORE_WORD = re.compile(
    rf"(?:^|[-_.=,])({_DIGITS})[-_]?(?:epochs?|(?:global_?)?steps?|iter(?:ation)?s?)(?=$|[-_.=,])", re.IGNORECASE
)
"""A number before its word, such as `9epoch` or `rl_model_500_steps`."""
_COUNTING = (_NUMBERS[0], _NUMBERS[1], _NUMBERS[3], _BEFORE_WORD)
"""Words that count steps or epochs. Parts of one checkpoint are numbered as well, but not with these."""
_PAIR = re.compile(r"[-_=](\d{1,18})(?=$|[-_=,])")
"""A number right after another one. A loss after an epoch (`weights.01-0.25`) has a point."""
EPOCH = 10**9
"""What an epoch counts for in the step of a name that has both (`checkpoint_3_1200`): whether the second number goes on
from epoch to epoch or begins anew, the later save has the higher step."""
_NOT_SAVED_BY_TRAINERS = re.compile(
    r"\.(?:log|out|err|txt|md|rst|html?|pdf|jsonl?|csv|tsv|ya?ml|toml|ini|cfg|conf|lock|pid|sock|sha\d+|md5|sig|diff|patch"
    r"|bak|old|orig|swp|png|jpe?g|gif|svg|webp|bmp|tiff?|mp[34]|wav|flac|ogg|avi|webm|pyc?|ipynb|sh|cu|c|cc|cpp|h"
    r"|tfrecords?|mds|onnx|gguf|tflite|engine|mlmodel|pb(?:txt)?|tfevents\S*|parquet|arrow|db|sqlite3?|prof|trace|link|url)"
    r"(?:\.(?:gz|zst|xz|bz2|zip))?$",
    re.IGNORECASE,
)
"""The suffix of a log, a picture, a table, data, a program, an export: files that lie beside checkpoints."""
_IN_SERIES = re.compile(rf"(?<![^\W_])(?<!\.){_DIGITS}(?![\d.])")
"""A number by itself: not that of `resnet50`, nor of 0.9999."""
_OF_A_PART = re.compile(
    r"(?<![A-Za-z])(?:rank|shard|part|piece|chunk|proc(?:ess)?|worker|node|host|gpu|device|[tpdme]p|layer|expert|local|states?|of|seed"
    r"|fold|split|version|v)[-_= ]?$",
    re.IGNORECASE,
)
"""Words before the number of a part of one checkpoint."""
_MOST_PARTS = 10**6
"""The numbers of ranks and parts are smaller. Those of days are not."""
_WHOLE = re.compile(rf"(?:(?:{'|'.join(_WORDS)})[-_.=]?)?\d{{1,18}}", re.IGNORECASE)
_BARE = re.compile(_DIGITS)
_PLAIN = re.compile(r"[A-Za-z0-9_.=+,%@-]+")
_TIME = re.compile(
    r"(?<!\d)(?<!step)(?<!iter)(?<!step[-_.=])(?<!iter[-_.=])"
    r"(20\d\d)-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])(?:[-_T](\d\d)-?(\d\d)-?(\d\d))?(?!\d)",
    re.IGNORECASE,
)
"""
A date, or a time of day with it, as `strftime` writes them into names. After a word for steps, or without such a day in
the calendar, it is a step and two further numbers, such as `step-2000-08-16` and `ckpt-2000-64-08`.
"""
_SHARD = re.compile(r"-of-\d", re.IGNORECASE)
_ALONE = re.compile(
    r"\.(?:pt|pth|pyth|th|chkpt|bin|ckpt|safetensors|npz|npy|msgpack|keras|(?:weights\.)?h5|hdf5|nemo|ubj|tar|pkl)$",
    re.IGNORECASE,
)
"""The suffix of a file that can be loaded by itself. An index, a manifest or one of many pieces cannot."""
_BEST = re.compile(r"(?:^|[-_.])best(?=$|[-_.])", re.IGNORECASE)
_SUFFIXES = re.compile(r"(?:\.[A-Za-z]\w*)+$")
_TEMPORARY = re.compile(
    r"^\.|^tmp[-_.]|~$|-unfinished$|\.orbax-checkpoint-tmp|[-_.](?:tmp|temp|partial|part|incomplete|inprogress|writing|staging)(?=$|[-_.])",
    re.IGNORECASE,
)


def parse_step(name: str) -> int | None:
    """
    The step number in a checkpoint name, such as `checkpoint-500` or `0000500`. None when there is none, or one that is
    too large for a step.
    """
    step = number_of(name)
    return step if step is not None and step <= LARGEST_STEP else None


def number_of(name: str) -> int | None:
    """
    The number in a checkpoint name that stands for the step, however large it is.

    Of a name with an epoch and a number, such as `checkpoint_3_1200`: `EPOCH` for each epoch, and the number.
    """
    if not _PLAIN.fullmatch(name) or _SHARD.search(name):
        return None
    stem = without_suffix(name)
    if _BARE.fullmatch(stem):
        return int(stem)
    for number in _NUMBERS:
        if match := number.search(stem):
            pair = None if number in _NUMBERS[:2] else _PAIR.match(stem, match.end())
            return _with_epoch(int(match[1]), int(pair[1])) if pair else int(match[1])
    match = _BEFORE_WORD.search(stem)
    return int(match[1]) if match else None


def _with_epoch(epoch: int, number: int) -> int:
    return epoch * EPOCH + min(number, EPOCH - 1) if epoch < EPOCH else epoch


def without_suffix(name: str) -> str:
    """
    A name without the suffix of a file that can be loaded. A time in the name of such a file is one number, so that a
    later one is a higher step. A folder that is called by a time holds a whole run, and is left as it is.
    """
    stem = _ALONE.sub("", name)
    return stem if stem == name else _joined_times(stem)


def _joined_times(stem: str) -> str:
    return _TIME.sub(lambda time: "".join(part or "" for part in time.groups()), stem)


def names_step(name: str) -> bool:
    """Whether a word in it says that its number counts steps or epochs, and not the parts of one checkpoint."""
    stem = _ALONE.sub("", name)
    return any(number.search(stem) for number in _COUNTING)


def may_be_saved(name: str) -> bool:
    """Whether a file of this name with a step in it may be a checkpoint, for all that its suffix says."""
    return _NOT_SAVED_BY_TRAINERS.search(name) is None


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """The sort key in which `epoch_9` comes before `epoch_11`."""
    parts = re.split(f"({_DIGITS})", name)
    return tuple((text, int(number or 0)) for text, number in zip(parts[::2], [*parts[1::2], ""], strict=True))


def series(names: Iterable[str]) -> list[dict[str, int]]:
    """
    The files that differ in one number alone, which no word explains: `llama-7b-300.pt`, `llama-7b-600.pt`. For each
    such row of files the number of each.

    Numbers that follow each other (0, 1, 2) are those of ranks or parts.
    """
    rows: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for name in names:
        pattern = _ALONE if loads_alone(name) else _SUFFIXES
        suffix = "".join(match[0] for match in pattern.finditer(name))
        stem = _joined_times(pattern.sub("", name))
        last = next(reversed(list(_IN_SERIES.finditer(stem))), None)
        if last is not None and not _OF_A_PART.search(stem[: last.start()]):
            rows[stem[: last.start()], stem[last.end() :] + suffix][name] = int(last[0])
    return [
        row for row in rows.values() if not follow(row.values()) or (len(row) > 1 and min(row.values()) > _MOST_PARTS)
    ]


def follow(numbers: Collection[int]) -> bool:
    """Whether they follow each other without a gap, as those of ranks and parts do."""
    return max(numbers) - min(numbers) < len(numbers)


def is_step(name: str) -> bool:
    """Whether it is a step and nothing else."""
    return _WHOLE.fullmatch(name) is not None


def loads_alone(name: str) -> bool:
    """Whether a file of this name can be loaded by itself."""
    return _ALONE.search(name) is not None and not _SHARD.search(name)


def is_best(name: str) -> bool:
    """Whether its writer calls it the best so far, such as `model_best.pth.tar`: a copy, and never a newer save."""
    return _BEST.search(name) is not None


def is_temporary(name: str) -> bool:
    """Whether an unfinished writer, or a person, gives such a name."""
    return _TEMPORARY.search(name) is not None


def final_name(name: str) -> str:
    """The final name for a temporary name: the text before the mark, or after it when the name starts with the mark."""
    temporary = _TEMPORARY.search(name)
    if temporary is None:
        return name
    return name[: temporary.start()] or name[temporary.end() :]
