"""
The newest checkpoint that loads, and why the newer ones do not.

The search goes from the newest step down and takes the first valid checkpoint. Nothing is loaded, repaired or removed.
The writers' own pointers (`latest`) are not trusted. Everything here blocks on the store: call it in a thread.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from healthd.checkpoints.cache import Cache, Proof
from healthd.checkpoints.formats import FORMATS, Format, VerifyLevel, declared, recognises
from healthd.checkpoints.formats.layouts.custom import Custom
from healthd.checkpoints.formats.layouts.released import released
from healthd.checkpoints.members import fewer, lost_file, members_of
from healthd.checkpoints.nested import nested
from healthd.checkpoints.steps import UNKNOWN_STEP, Candidate, find, newest_step, steps
from healthd.checkpoints.tree import (
    Damaged,
    Location,
    Tree,
    Unstable,
    Vanished,
    explain,
    refuse_changes,
    survey,
)
from healthd.core.checkpoint.verification import SaveId
from healthd.core.printable import printable

__all__ = [
    "UNKNOWN_STEP",
    "Cache",
    "Candidate",
    "Checkpoint",
    "Latest",
    "Rejected",
    "VerifyLevel",
    "latest",
    "misplaced",
    "newest_step",
    "steps",
    "verify",
]


DOUBTED = (
    "it is good by all that can be seen, but what loaded it failed soon after, twice, or what saved it said that its "
    "state is bad"
)
MOST_CANDIDATES = 1000
"""The number of refused checkpoints in a row after which the search ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that was verified."""

    path: str
    """An absolute path, or a URL."""
    step: int
    """`UNKNOWN_STEP` when its name gives no step."""
    format: str
    saved_ns: int = 0
    """
    When its newest file was written, in ns since 1970 by the store's clock. It distinguishes two saves under one name.
    0 when unknown.
    """
    size: int = 0
    """Bytes of all its files."""
    write_seconds: float = 0.0
    """The time from its oldest file to its newest file."""
    members: int = 0
    """How many ranks saved it, when its files do not say how many there must be. 0: not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A checkpoint that must not be resumed from, and the reason."""

    path: str
    step: int
    reason: str
    """One printable line for a person: which file, and what is wrong with it."""
    unread: bool = False
    """It could not be read, or changed while it was read. So it may load: check again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The newest valid checkpoint, and the newer invalid ones, newest first."""

    found: Checkpoint | None
    rejected: tuple[Rejected, ...] = ()


def latest(
    root: Location,
    *,
    format: str = "",  # noqa: A002 - the word that users see everywhere else
    level: VerifyLevel = VerifyLevel.FULL,
    newer_than: int | None = None,
    cache: Cache | None = None,
    doubted: Collection[SaveId] = (),
) -> Latest:
    """
    The newest checkpoint under *root* that loads.

    When *root* has none, folders below it that have checkpoints are reported as rejected: nothing is taken from them.

    Args:
        root: a directory of steps, or one checkpoint. A missing root counts as empty.
        format: the declared format, which every step must then have; empty to detect it.
        newer_than: steps up to this one are not checked.
        cache: remembers proofs for files that have not changed since.
        doubted: saves that are taken only when there is no other, and never as one newer than another.

    Raises:
        UnknownFormat: *format* is not known. Every other error is a reason in the answer.
    """
    wanted = declared(format) if format else None
    try:
        candidates = find(root, wanted)
    except OSError as error:
        place = Candidate(path=root, step=UNKNOWN_STEP)
        return Latest(found=None, rejected=(_rejected(place, explain(str(root), error), unread=True),))
    if not candidates and newer_than is None:
        return Latest(found=None, rejected=misplaced(root))
    rejected: list[Rejected] = []
    last_resort: Latest | None = None
    verified = 0
    for number, candidate in enumerate(candidates):
        if newer_than is not None and candidate.step <= newer_than:
            break
        verified += not candidate.unfinished
        if verified > MOST_CANDIDATES:
            rejected.append(_rejected(candidate, f"not verified: {MOST_CANDIDATES:,} newer ones were refused"))
            break
        before = candidates[number + 1 :]
        outcome = verify(candidate, format=format, level=level, cache=cache, before=before)
        if isinstance(outcome, Checkpoint) and SaveId(outcome.step, outcome.saved_ns) in doubted:
            last_resort = last_resort or Latest(found=outcome, rejected=tuple(rejected))
            outcome = _rejected(candidate, DOUBTED)
        if isinstance(outcome, Checkpoint):
            return Latest(found=outcome, rejected=tuple(rejected))
        rejected.append(outcome)
    return (last_resort if newer_than is None else None) or Latest(found=None, rejected=tuple(rejected))


def misplaced(root: Location) -> tuple[Rejected, ...]:
    """The folders below *root* that hold checkpoints, for a *root* that has none itself."""
    reason = (
        f"holds checkpoints, but healthd reads only directly below {root.absolute()}: "
        "name this folder as the checkpoint location"
    )
    return tuple(_rejected(folder, reason) for folder in nested(root))


def verify(
    candidate: Candidate,
    *,
    format: str = "",  # noqa: A002 - as in `latest`
    level: VerifyLevel = VerifyLevel.FULL,
    cache: Cache | None = None,
    formats: Sequence[Format] = FORMATS,
    before: Sequence[Candidate] = (),
) -> Checkpoint | Rejected:
    """
    Whether one candidate loads.

    Every format found in it must be valid, so a good model beside a torn optimizer is refused. The declared *format*
    must be found. Compared with the steps *before* it, the newest first, no rank may be missing. *formats* is the
    table for detection. Raises UnknownFormat.
    """
    wanted = declared(format) if format else None
    if candidate.unfinished:
        return _rejected(candidate, candidate.unfinished)

    def prove() -> tuple[Tree, Proof]:
        tree = survey(candidate.path, beside=candidate.beside)
        proof = cache.lookup(tree, format, level) if cache is not None else None
        if proof is None:
            proof = _prove(tree, wanted, level, formats)
            if cache is not None:
                cache.store(tree, format, proof)
        return tree, proof

    try:
        try:
            tree, proof = prove()
        except Vanished:  # a file server that caches lists, or retention: list again
            tree, proof = prove()
    except Damaged as damage:
        return _rejected(candidate, str(damage), unread=damage.is_unread)
    except MemoryError:  # no statement about this checkpoint: other processes may have taken the memory
        raise
    except Exception as error:
        if isinstance(error, RuntimeError) and "new thread" in str(error):
            raise MemoryError(str(error)) from error  # there was no memory for its stack
        why = f"could not be verified, a fault of healthd: {type(error).__name__}: {error}"
        return _rejected(candidate, why, unread=True)  # it may be good, so nothing may start fresh instead
    incomplete = proof.reason or fewer(proof.members, [wanted] if wanted else formats, before)
    if reason := incomplete or lost_file(tree, proof.format, before):
        return _rejected(candidate, reason)
    path = str(candidate.path.absolute())
    if not path.isprintable():
        return _rejected(candidate, "its name has characters that do not print, so no program can be given it")
    return Checkpoint(
        path=path,
        step=candidate.step,
        format=proof.format,
        saved_ns=_saved_ns(tree),
        size=sum(entry.stamp.size for entry in tree.entries.values()),
        write_seconds=_write_seconds(tree),
        members=proof.members,
    )


def _write_seconds(tree: Tree) -> float:
    times = [entry.stamp.mtime_ns for entry in tree.entries.values()]
    return (max(times) - min(times)) / 1e9 if times else 0.0


def _saved_ns(tree: Tree) -> int:
    """
    The newest time of the files that a format owns: a log beside them grows without a save. When no format owns a
    file: of all files.
    """
    return max((tree.entries[name].stamp.mtime_ns for name in tree.owned(recognises) or tree.entries), default=0)


def _prove(tree: Tree, wanted: Format | None, level: VerifyLevel, formats: Sequence[Format]) -> Proof:
    """The proof for exactly these files. Raises Unstable when a file has changed meanwhile."""
    try:
        present = _check(tree, wanted, level, formats)
        proof = Proof(level=level, format=present[0].name, members=members_of(present, tree))
    except Unstable:
        raise
    except Damaged as damage:
        proof = Proof(level=level, format="", reason=str(damage))
    refuse_changes(tree)
    return proof


def _check(tree: Tree, wanted: Format | None, level: VerifyLevel, formats: Sequence[Format]) -> list[Format]:
    """The formats found in it. The first one gives the checkpoint its format name. Raises Damaged."""
    if not tree.entries:
        raise Damaged("an empty directory")
    if wanted and not wanted.detect(tree):
        raise Damaged(f"nothing of the declared format {wanted.name} in it")
    if wanted:
        wanted.verify(tree, level)
    named = wanted.names(tree) if isinstance(wanted, Custom) else ()
    others = [(fmt, released(tree, fmt, named)) for fmt in formats if wanted is None or fmt.name != wanted.name]
    present = [(fmt, seen) for fmt, seen in others if fmt.detect(seen)]
    if not wanted and not present:
        raise Damaged(f"no known checkpoint format in it ({_some(tree)}); declare one, for example marked:DONE")
    for fmt, seen in present:
        fmt.verify(seen, level)
    return [*([wanted] if wanted else []), *(fmt for fmt, _ in present)]


def _some(tree: Tree) -> str:
    names = sorted(tree.entries)
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


def _rejected(candidate: Candidate, reason: str, *, unread: bool = False) -> Rejected:
    """
    A rejection. File names come from users: unprintable characters are escaped, so that a log or terminal is not
    corrupted.
    """
    path = printable(str(candidate.path.absolute()))
    return Rejected(path=path, step=candidate.step, reason=printable(reason)[:500], unread=unread)
