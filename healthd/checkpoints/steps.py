"""
The steps in a checkpoint root, by name: cheap enough to poll. Only a `last.ckpt` is opened: it may be the newest, and
its name has no step.

The order is by step number, never by timestamp: a copy or a touch changes times, and clocks differ between nodes.
Text pointers (`latest`, `latest_checkpointed_iteration.txt`) are hints of the writer and are not read.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from healthd.checkpoints.bundles import bundles, lost_optimizers
from healthd.checkpoints.formats import Format, recognises
from healthd.checkpoints.formats.custom import Custom
from healthd.checkpoints.formats.lightning import is_last, read_step, times_saved_before
from healthd.checkpoints.formats.marked import Marked
from healthd.checkpoints.step_names import (
    final_name,
    follow,
    is_step,
    is_temporary,
    loads_alone,
    may_be_saved,
    names_step,
    natural,
    parse_step,
    series,
)
from healthd.checkpoints.stores.store import Name
from healthd.checkpoints.stores.urls import Location, store_of
from healthd.checkpoints.tree import kind_of

MODEL_CONFIG = "config.json"
_UNFINISHED = "-unfinished"
_OWN_FOLDER = "give checkpoints a folder of their own"
_DECLARE = "declare a layout (docs/checkpoints.md)"
UNKNOWN_STEP = -1
"""The step of a checkpoint whose name gives no step."""
MOST_NAMES = 1_000_000
"""The limit of names directly in a root. Most may be logs or samples, which are read and not kept."""
MOST_CHECKPOINTS = 100_000
"""The limit of names in a root that may belong to checkpoints."""
_MOST_KINDS = 10_000
"""The number of names for which it is remembered whether they matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A path that looks like the checkpoint of one step."""

    path: Location
    step: int
    unfinished: str = ""
    """Why it is not finished, by its names. Empty when no name says so."""
    beside: tuple[str, ...] = ()
    """The files that form the checkpoint, when *path* only names their group."""
    is_undeclared: bool = False
    """Only a declared layout can make it one that loads; *unfinished* says why."""


def steps(root: Location, declared: Format | None = None) -> list[Candidate]:
    """The candidates to load from *root*, newest step first. Empty when *root* does not exist. Raises OSError."""
    return [candidate for candidate in find(root, declared) if not candidate.unfinished]


def newest_step(root: Location) -> int | None:
    """The highest step by name, verified or not. None when there is none (or no permission to read)."""
    try:
        newest = next(iter(steps(root)), None)
    except OSError:
        return None
    return newest.step if newest and newest.step != UNKNOWN_STEP else None


def find(root: Location, declared: Format | None = None, *, most: int = MOST_NAMES) -> list[Candidate]:
    """
    All candidates, also those with temporary names, newest step first; finished before unfinished.

    *root* is a directory of steps, or one checkpoint itself: a file, or a directory with recognised files and either
    no steps or a step name of its own (`checkpoint-500` may hold `global_step500`). A directory with a single such
    file, which a run overwrites each time (`ckpt.pt`), stands for that file, so that its path can be loaded. That is
    not so when the *declared* format has another file beside it. Files of a step that no format knows are listed as not
    to be loaded. Raises OSError, also for more than *most* names in it.
    """
    root = root.absolute()
    try:
        names = _names(root, declared, most)
    except FileNotFoundError:
        return _bundle_at(root)
    except NotADirectoryError:
        return _bundle_at(root) or [Candidate(path=root, step=_known_step(root.name))]
    if isinstance(declared, Custom) and declared.names_steps:
        return _declared(root, declared, names)
    together = _bundles(root, names)
    members = {name for bundle in together for name in bundle.beside}
    alone = (_candidate(root, listed, names) for listed in names.values() if listed.name not in members)
    found = [*together, *filter(None, alone)]
    files = {name for name, listed in names.items() if not (listed.is_folder or is_temporary(name))}
    owned = [name for name in names if _is_owned(name, declared)]
    owned = [name for name in owned if not (names[name].is_folder and parse_step(name) is not None)]
    describes_a_step = isinstance(declared, Custom | Marked)  # so its files may have any numbers
    if not (found or describes_a_step) and (rows := series(name for name in owned if name in files)):
        return _of_series(root, rows)
    if owned and (not found or _is_one_step(root, found)):
        return [_itself(root, owned, names)]
    strange = (name for name in files if not (_is_owned(name, declared) or is_last(name)) and may_be_saved(name))
    found += _of_no_format(root, strange, {candidate.step for candidate in found})
    return sorted(found, key=_newness, reverse=True)


def _is_owned(name: str, declared: Format | None) -> bool:
    return recognises(name) or (declared is not None and declared.owns(name))


def _of_series(root: Location, rows: list[dict[str, int]]) -> list[Candidate]:
    """Steps by a number that no word explains. Where each step has several files, only a declaration can say which."""
    if len(rows) > 1:
        some = ", ".join(min(row) for row in rows[:3])
        why = f"each step seems to have several files here ({some}), and none says which belong together: {_DECLARE}"
        return [Candidate(path=root, step=UNKNOWN_STEP, unfinished=why, is_undeclared=True)]
    found = [Candidate(path=root / name, step=number) for name, number in rows[0].items()]
    return sorted(found, key=_newness, reverse=True)


def _is_one_step(root: Location, found: list[Candidate]) -> bool:
    """
    Whether *root*, which has the name of a step, is that checkpoint and no directory of steps: what was *found* in it
    is of its own step, or numbered as parts are.
    """
    if not is_step(root.name):
        return False
    own = parse_step(root.name)
    others = [candidate for candidate in found if candidate.step != own]
    if any(names_step(candidate.path.name) for candidate in others):
        return False
    return len(others) < len(found) or follow({candidate.step for candidate in others})


def _of_no_format(root: Location, names: Iterable[str], known: Collection[int]) -> list[Candidate]:
    """
    Those of *names*, which no format knows, that name a step, unless another file or folder of it is *known*: work that
    was saved is never overlooked.
    """
    found = []
    for name in names:
        step = parse_step(name)
        if step is not None and step not in known:
            why = f"no known checkpoint format has files with such a name ({name}): {_DECLARE}"
            found.append(Candidate(path=root / name, step=step, unfinished=why, is_undeclared=True))
    return found


def _names(root: Location, declared: Format | None, most: int) -> dict[str, Name]:
    """The names directly in *root* that may belong to checkpoints. Raises OSError when there are too many."""
    kept: dict[str, Name] = {}
    known: dict[str, bool] = {}
    for count, listed in enumerate(store_of(root).names(root), start=1):
        if count > most:
            raise OSError(errno.E2BIG, f"more than {most:,} names in it, too many to list: {_OWN_FOLDER}")
        kind = kind_of(listed.name)
        matters = known.get(kind)
        if matters is None:
            matters = _matters(listed.name)
            if len(known) < _MOST_KINDS:
                known[kind] = matters
        if matters or (declared is not None and _is_declared(declared, listed.name)):
            kept[listed.name] = listed
        if len(kept) > MOST_CHECKPOINTS:
            raise OSError(errno.E2BIG, f"more than {MOST_CHECKPOINTS:,} names of checkpoints in it, too many to sort")
    return kept


def _matters(name: str) -> bool:
    """Whether a file or folder of this name belongs to a checkpoint, or says something about one."""
    if name == MODEL_CONFIG or name.endswith(_UNFINISHED) or is_last(name) or recognises(name):
        return True
    return parse_step(final_name(name)) is not None


def _is_declared(declared: Format, name: str) -> bool:
    return declared.owns(name) or (isinstance(declared, Custom) and declared.step_of(name) is not None)


def _declared(root: Location, layout: Custom, names: Iterable[str]) -> list[Candidate]:
    """The steps whose names the user declared, or *root* itself when its own name is a step."""
    steps = {name: layout.step_of(name) for name in names}
    found = [Candidate(path=root / name, step=step) for name, step in steps.items() if step is not None]
    if not found and any(layout.owns(name) for name in names):
        own = layout.step_of(root.name)
        return [Candidate(path=root, step=_known_step(root.name) if own is None else own)]
    return sorted(found, key=_newness, reverse=True)


def _newness(candidate: Candidate) -> tuple[int, bool, bool, int, object]:
    """
    The sort key. Of one step: finished first, then a name that the next save does not overwrite, then the last one
    saved.
    """
    name = candidate.path.name
    return candidate.step, not candidate.unfinished, not is_last(name), times_saved_before(name), natural(name)


def _itself(root: Location, owned: list[str], names: dict[str, Name]) -> Candidate:
    """The single checkpoint that *root* is, by its recognised names: its only file, or the directory."""
    done = [name for name in owned if not is_temporary(name)]
    is_pretrained = MODEL_CONFIG in names  # a Hugging Face model is loaded by its folder
    if (
        len(done) == 1
        and parse_step(root.name) is None
        and loads_alone(done[0])
        and not (names[done[0]].is_folder or is_pretrained)
    ):
        return Candidate(path=root / done[0], step=UNKNOWN_STEP)
    return Candidate(path=root, step=_known_step(root.name))


def _known_step(name: str) -> int:
    step = parse_step(name)
    return UNKNOWN_STEP if step is None else step


def _bundles(root: Location, names: Iterable[str]) -> list[Candidate]:
    """
    The files directly in *root* that belong together and give a step. Files with temporary names are listed one by
    one.
    """
    done = [name for name in names if recognises(name) and not is_temporary(name)]
    lost = lost_optimizers(name for name in done if parse_step(name.rpartition(".")[0]) is not None)
    return [
        Candidate(
            path=root / path,
            step=step,
            beside=files,
            unfinished=f"not finished: no {lost[path]}, which other steps have" if path in lost else "",
        )
        for path, files in bundles(done).items()
        if (step := parse_step(path)) is not None
    ]


def _bundle_at(path: Location) -> list[Candidate]:
    """The bundle that *path* names or that contains *path*, if there is one."""
    try:
        names = [listed.name for listed in store_of(path).names(path.parent)]
    except OSError:
        return []
    found = bundles(name for name in names if recognises(name)).items()
    here = ((name, files) for name, files in found if path.name == name or path.name in files)
    return [Candidate(path=path.parent / name, step=_known_step(name), beside=files) for name, files in here]


def _step_in_name(root: Location, last: Name) -> int | None:
    """The step that is stored inside. None for a link: its target stands beside it under its own name."""
    return None if last.is_link else read_step(root / last.name, is_folder=last.is_folder)


def _candidate(root: Location, listed: Name, names: dict[str, Name]) -> Candidate | None:
    name = listed.name
    temporary = is_temporary(name)
    step = _step_in_name(root, listed) if is_last(name) else parse_step(final_name(name))
    if step is None or not (listed.is_folder or temporary or recognises(name)):
        return None
    if temporary:
        return Candidate(path=root / name, step=step, unfinished="not finished: temporary name")
    if f"{name}{_UNFINISHED}" in names:
        return Candidate(path=root / name, step=step, unfinished=f"not finished: {name}{_UNFINISHED} stands beside it")
    return Candidate(path=root / name, step=step)
