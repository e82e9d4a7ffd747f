"""
The steps in a checkpoint root, by name: cheap enough to poll.

The order is by step number, never by timestamp: a copy or a touch changes times, and clocks differ between nodes.
Text pointers (`latest`, `latest_checkpointed_iteration.txt`) are hints of the writer and are not read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from healthd.checkpoints.bundles import bundles, is_state, lost_optimizers
from healthd.checkpoints.formats import Format, recognises
from healthd.checkpoints.formats.layouts.custom import Custom
from healthd.checkpoints.formats.layouts.marked import Marked
from healthd.checkpoints.formats.torch.pretrained import CONFIGURATION, model_in
from healthd.checkpoints.formats.trainers.lightning import is_last, times_saved_before
from healthd.checkpoints.listing import MOST_NAMES, UNFINISHED, Listing, read_listing
from healthd.checkpoints.step_names import (
    follow,
    is_best,
    is_step,
    is_temporary,
    loads_alone,
    may_be_saved,
    names_step,
    natural,
    number_of,
    parse_step,
    series,
)
from healthd.checkpoints.stores.urls import Location, store_of
from healthd.checkpoints.tree import number_free
from healthd.core.untrusted import LARGEST_STEP

DECLARE = "declare a layout (docs/checkpoints.md)"
_TOO_LARGE = "its number is too large for a step, which has at most 18 digits; a time in nanoseconds has more"
UNKNOWN_STEP = -1
"""The step of a checkpoint whose name gives no step."""


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
    """Only its user can make it one that loads, as by a declared layout; *unfinished* says why."""


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

    *root* is a directory, or one checkpoint: a file, or what the files of a bundle begin with. Raises OSError, also for
    more than *most* names in it.
    """
    root = root.absolute()
    try:
        listing = read_listing(root, declared, most)
    except FileNotFoundError:
        return _bundle_at(root)
    except NotADirectoryError:
        return _bundle_at(root) or [Candidate(path=root, step=_known_step(root.name))]
    return sorted(map(_within_limit, _of_folder(listing)), key=_newness, reverse=True)


def _bundle_at(path: Location) -> list[Candidate]:
    """The bundle that *path* names or that contains *path*, if there is one."""
    try:
        names = [listed.name for listed in store_of(path).names(path.parent)]
    except OSError:
        return []
    found = bundles(name for name in names if recognises(name)).items()
    here = ((name, files) for name, files in found if path.name == name or path.name in files)
    return [Candidate(path=path.parent / name, step=_known_step(name), beside=files) for name, files in here]


def _of_folder(listing: Listing) -> list[Candidate]:
    """
    The steps that its user declared, or those that the words in names tell. Where no word tells one: those that numbers
    tell, or the folder as one checkpoint, which a folder with the name of a step may also be beside such words
    (`checkpoint-500` with `global_step500` in it).
    """
    if isinstance(listing.declared, Custom) and listing.declared.names_steps:
        return _declared(listing, listing.declared)
    named = _named(listing)
    if not named:
        found = _numbered(listing) or _whole(listing)
    else:
        found = _whole(listing) if _is_one_step(listing.root, named) else []
    return found or [*named, *_of_no_format(listing, named)]


def _within_limit(candidate: Candidate) -> Candidate:
    if candidate.step <= LARGEST_STEP:
        return candidate
    return replace(candidate, step=UNKNOWN_STEP, unfinished=_TOO_LARGE, is_undeclared=True)


def _declared(listing: Listing, layout: Custom) -> list[Candidate]:
    """The steps whose names the user declared, or the root itself when its own name is a step."""
    root, steps = listing.root, {name: layout.step_of(name) for name in listing.names}
    found = [Candidate(path=root / name, step=step) for name, step in steps.items() if step is not None]
    if not found and any(map(layout.owns, listing.names)):
        own = layout.step_of(root.name)
        return [Candidate(path=root, step=_known_step(root.name) if own is None else own)]
    return found


def _named(listing: Listing) -> list[Candidate]:
    """The bundles of files that belong together, and the other files and folders, by the words in their names."""
    done = [name for name in listing.names if recognises(name) and not is_temporary(name)]
    lost = lost_optimizers(name for name in done if number_of(name.rpartition(".")[0]) is not None)
    together = [
        Candidate(
            path=listing.root / path,
            step=step,
            beside=files,
            unfinished=f"not finished: no {lost[path]}, which other steps have" if path in lost else "",
        )
        for path, files in bundles(done).items()
        if (step := number_of(path)) is not None
    ]
    members = {name for bundle in together for name in bundle.beside}
    states = {number_free(name) for name in members if is_state(name)}
    alone = [
        Candidate(path=listing.root / name, step=step, unfinished=_why_unfinished(name, listing, states))
        for name, listed in listing.names.items()
        if name not in members and (step := listing.step_of(name)) is not None
        if listed.is_folder or is_temporary(name) or recognises(name)
    ]
    return together + alone


def _why_unfinished(name: str, listing: Listing, states: Collection[str]) -> str:
    """Why *name* is not to be loaded. *states*: names of optimizers that stand beside their models, free of numbers."""
    if is_temporary(name):
        return "not finished: temporary name"
    mark = f"{name}{UNFINISHED}"
    if mark in listing.names:
        return f"not finished: {mark} stands beside it"
    return "not finished: its model is missing, which other steps have" if number_free(name) in states else ""


def _numbered(listing: Listing) -> list[Candidate]:
    """
    Steps by a number that no word explains. Where each step has several files, only a declaration can say which. A
    declared marker or layout describes one step, whose files may have any numbers.
    """
    if isinstance(listing.declared, Custom | Marked):
        return []
    rows = series(name for name in listing.files() if loads_alone(name) and listing.owns(name))
    of_a_step = [*map(min, rows), *model_in(listing.names)]
    if rows and len(of_a_step) > 1:
        some = ", ".join(of_a_step[:3])
        why = f"each step seems to have several files here ({some}), and none says which belong together: {DECLARE}"
        return [Candidate(path=listing.root, step=UNKNOWN_STEP, unfinished=why, is_undeclared=True)]
    return [Candidate(path=listing.root / name, step=step) for row in rows for name, step in row.items()]


def _is_one_step(root: Location, found: Sequence[Candidate]) -> bool:
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


def _whole(listing: Listing) -> list[Candidate]:
    """
    The folder as one checkpoint, or the only file of one in it, which a run overwrites each time (`ckpt.pt`), so that
    its path can be loaded; a copy of the best one beside it changes nothing. Empty when no format knows a name in it.
    """
    root, names = listing.root, listing.names
    owned = [name for name in filter(listing.owns, names) if not names[name].is_folder or number_of(name) is None]
    done = [name for name in owned if not is_temporary(name)]
    last = done if listing.declared else [name for name in done if not is_best(name)] or done
    is_folder = CONFIGURATION in names or parse_step(root.name) is not None  # a Hugging Face model, or a step
    if not is_folder and len(last) == 1 and loads_alone(last[0]) and not names[last[0]].is_folder:
        return [Candidate(path=root / last[0], step=UNKNOWN_STEP)]
    return [Candidate(path=root, step=_known_step(root.name))] if owned else []


def _of_no_format(listing: Listing, named: Sequence[Candidate]) -> list[Candidate]:
    """
    The files that name a step and that no format knows, unless another file or folder of that step is *named*: work
    that was saved is never overlooked.
    """
    known = {candidate.step for candidate in named}
    return [
        Candidate(
            path=listing.root / name,
            step=step,
            unfinished=f"no known checkpoint format has files with such a name ({name}): {DECLARE}",
            is_undeclared=True,
        )
        for name in listing.files()
        if may_be_saved(name) and not (listing.owns(name) or is_last(name))
        if (step := number_of(name)) is not None and step not in known
    ]


def _newness(candidate: Candidate) -> tuple[int, bool, bool, int, object]:
    """
    The sort key. Of one step: finished first, then a name that the next save does not overwrite, then the last one
    saved.
    """
    name = candidate.path.name
    return candidate.step, not candidate.unfinished, not is_last(name), times_saved_before(name), natural(name)


def _known_step(name: str) -> int:
    step = parse_step(name)
    return UNKNOWN_STEP if step is None else step
