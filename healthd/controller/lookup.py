"""
The checkpoints of gangs that save where this process can read: `file:///path`, `pvc://claim/path`, or a bucket such as
`s3://bucket/path`.

A claim is mounted here at another place than in the gang's pods, so there are two names for each checkpoint. What
leaves this module is the one that the pods know; where they do not tell, it stays a `pvc://` URL.

What a gang names is its owner's word, and the controller can read what he may not: places are kept within bounds, also
where a link leads out of them.

Verification reads many files, so it runs in threads. They are few: all gangs of a cluster may be restarted at once, and
the file server has other work. A store that hangs keeps one thread, not one for each time that somebody looks.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

from msgspec.structs import replace

from healthd.checkpoints.formats import Level, UnknownFormat
from healthd.checkpoints.latest import Cache, Latest, latest, newest_step
from healthd.checkpoints.report import report_on
from healthd.checkpoints.stores.local import confined_to
from healthd.checkpoints.stores.urls import Location, NoSuchStore, is_bucket, locate
from healthd.controller.ports import CheckpointAnswer
from healthd.core.gang import Mount, Root
from healthd.core.locations import parts_of
from healthd.core.objects import ChosenCheckpoint, Recovery, RejectedCheckpoint
from healthd.core.precheck import refusing
from healthd.core.verification import Report
from healthd.threads import Threads

T = TypeVar("T")

LONGEST_LOOK = 10.0
"""Seconds; a file server that hangs must not hold up everything else for the sake of a look at progress."""
LONGEST_REPORT = 120.0
"""Seconds; nobody waits for this one, and tens of thousands of files take their time."""
KEPT_REJECTIONS = 20
"""They are stored in the Recovery, and an object has a size limit; the newest tell the story."""
VERIFIERS, LOOKERS = 4, 16
_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class Bounds(NamedTuple):
    """Where the controller may read."""

    folders: tuple[Path, ...]
    buckets: tuple[str, ...]
    """URLs, each with all that is below it."""

    @classmethod
    def of(cls, allowed: Sequence[str]) -> Bounds:
        """Paths and URLs as they stand in the configuration."""
        return cls(
            folders=tuple(Path(each) for each in allowed if not is_bucket(each)),
            buckets=tuple(each.rstrip("/") for each in allowed if is_bucket(each)),
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a gang's checkpoints are: *here*, and as its pods name the same folder."""

    here: Location
    there: str
    bounds: tuple[Path, ...] | None = None
    """Folders that a path must be in; None: it may be anywhere."""

    def out_of_bounds(self) -> str:
        """Why it may not be looked at; empty where it may. Reads the file system: links are followed."""
        if self.bounds is None or not isinstance(self.here, Path):
            return ""
        real = self.here.resolve()
        if any(real.is_relative_to(bound.resolve()) for bound in self.bounds):
            return ""
        through = f"a link leads to {real}, which" if real != self.here else str(real)
        allowed = ", ".join(map(str, self.bounds))
        return f"{through} is outside of what the controller may read ({allowed}; see checkpoints.allowed)"

    def seen_there(self, path: str) -> str:
        """The name that the pods have for a *path* of here."""
        if self.there == str(self.here):
            return path
        if path == str(self.here):
            return self.there
        return self.there.rstrip("/") + "/" + path.removeprefix(f"{self.here}/")


class FileCheckpoints:
    """
    Looks where the root of a gang says, and remembers what was proven. Claims are mounted below *volumes_at*.

    Nothing is read outside of that folder and the folders and buckets that are *allowed*; None allows everything.
    Credentials for buckets come from the *environment* and what it names.
    """

    def __init__(
        self,
        volumes_at: Path = Path("/checkpoints"),
        allowed: Sequence[str] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._volumes_at = volumes_at
        self._bounds = None if allowed is None else Bounds.of((str(volumes_at), *allowed))
        self._environment = environment
        self._proven = Cache()
        self._verifiers = Threads("verify checkpoints", VERIFIERS)
        self._lookers = Threads("look for checkpoints", LOOKERS)
        self._looked_at: set[tuple[str, str]] = set()

    async def latest(
        self,
        root: Root,
        newer_than: int | None = None,
        recovery: Recovery | None = None,  # noqa: ARG002 - the protocol's
    ) -> CheckpointAnswer:
        """The newest checkpoint that will load. Raises OSError when the store cannot be read."""
        place = self._place_of(root)
        if isinstance(place, str):
            return _unseen(root.options.checkpoint, place)
        return await self._verifiers.run(lambda: self._look(place, root.options.checkpoint_format, newer_than))

    def reads(self, root: Root) -> bool:
        """Whether the place that *root* names can be looked at from here."""
        return isinstance(self._place_of(root), Place)

    async def newest_step(self, root: Root) -> int | None:
        """The highest step that there is by name. Raises OSError when the store cannot be read or does not answer."""
        place = self._place_of(root)
        if isinstance(place, str):
            return None
        return await self._once(str(place.here), lambda: _newest_step(place))

    async def report(self, root: Root) -> Report | None:
        """A quick look; None where it cannot be had from here. Raises OSError as `newest_step` does."""
        place = self._place_of(root)
        if isinstance(place, str):
            return None if on_claim(root.options.checkpoint) else refusing(root, place)
        declared = root.options.checkpoint_format
        where = str(place.here)
        return await self._once(where, lambda: self._report(place, declared), LONGEST_REPORT, who=root.ref.uid)

    def _report(self, place: Place, declared: str) -> Report:
        if refusal := place.out_of_bounds():
            return Report(rejected=[RejectedCheckpoint(path=place.there, step=-1, reason=refusal)])
        try:
            with confined_to(place.bounds):
                report = report_on(place.here, format=declared, level=Level.QUICK, cache=self._proven)
        except UnknownFormat as error:
            return Report(rejected=[RejectedCheckpoint(path=place.there, step=-1, reason=str(error))])
        return seen_there(report, place)

    def _place_of(self, root: Root) -> Place | str:
        return place_of(root, self._volumes_at, self._bounds, self._environment)

    async def _once(self, where: str, look: Callable[[], T], longest: float = LONGEST_LOOK, *, who: str = "") -> T:
        """What *look* answers, unless an earlier look of theirs there has not come back. Raises TimeoutError."""
        key = (who, where)
        if key in self._looked_at:
            raise TimeoutError(f"{where} has not answered an earlier look")

        def looking() -> T:
            self._looked_at.add(key)
            try:
                return look()
            finally:
                self._looked_at.discard(key)

        try:
            async with asyncio.timeout(longest):
                return await self._lookers.run(looking)
        except TimeoutError as error:
            raise TimeoutError(f"{where} has not answered within {longest:.0f} s") from error

    def _look(self, place: Place, declared: str, newer_than: int | None) -> CheckpointAnswer:
        if refusal := place.out_of_bounds():
            return _unseen(place.there, refusal)
        try:
            with confined_to(place.bounds):
                answer = latest(place.here, format=declared, newer_than=newer_than, cache=self._proven)
        except UnknownFormat as error:
            return CheckpointAnswer(None, [RejectedCheckpoint(path=place.there, step=-1, reason=str(error))])
        return _answer(answer, place)


def _newest_step(place: Place) -> int | None:
    if place.out_of_bounds():
        return None
    with confined_to(place.bounds):
        return newest_step(place.here)


def place_of(
    root: Root, volumes_at: Path, bounds: Bounds | None = None, environment: Mapping[str, str] = os.environ
) -> Place | str:
    """Where the checkpoints of *root* are, or why they cannot be read. A claim has its own bounds."""
    location = root.options.checkpoint
    if why := why_no_place(location):
        return why
    if (path := path_of(location)) is not None:
        return Place(path, str(path), bounds.folders if bounds else None)
    if is_bucket(location):
        return _in_bucket(location, bounds, environment)
    place = on_claim(location)
    if place is None:
        return _NOT_ON_A_CLAIM
    volume = volumes_at / root.ref.namespace / place.claim
    if not volume.is_dir():
        return f"the claim is not mounted in the controller's pod (at {volume}; see checkpoints.volumes_at)"
    return Place(volume / place.inside, in_pods(root.mounts, place) or location, (volume,))


def why_no_place(location: str) -> str:
    """Why *location*, which its owner wrote, names no place that could be read; empty where it does."""
    url = parts_of(location)
    if path_of(location) is not None or (url.scheme and is_bucket(location)):
        return ""
    if url.scheme == "pvc":
        return "" if on_claim(location) else _NOT_ON_A_CLAIM
    return "healthd reads pvc://claim/path, file:///path, and buckets: s3://, gs://, az://, abfss://"


_NOT_ON_A_CLAIM = "not a place on a claim: write pvc://claim/path"


def _in_bucket(location: str, bounds: Bounds | None, environment: Mapping[str, str]) -> Place | str:
    """Bounds first: what they forbid is not even asked for."""
    if bounds is not None and not any(f"{location}/".startswith(f"{bucket}/") for bucket in bounds.buckets):
        allowed = ", ".join(bounds.buckets) or "no bucket"
        return f"{location} is outside of what the controller may read ({allowed}; see checkpoints.allowed)"
    try:
        here = locate(location, environment)
    except NoSuchStore as error:
        return str(error)
    return Place(here, str(here))


def seen_there(report: Report, place: Place) -> Report:
    """*report* with the names that the gang's own pods know."""
    found, rejected = report.found, report.rejected[:KEPT_REJECTIONS]
    return replace(
        report,
        found=found and replace(found, path=place.seen_there(found.path)),
        rejected=[replace(each, path=place.seen_there(each.path)) for each in rejected],
    )


class OnClaim(NamedTuple):
    """A folder on a claim."""

    claim: str
    inside: PurePosixPath


def on_claim(location: str) -> OnClaim | None:
    """What `pvc://claim/path` names; None where it names nothing on a claim."""
    url = parts_of(location)
    claim, inside = url.netloc, PurePosixPath(unquote(url.path).strip("/") or ".")
    is_one = url.scheme == "pvc" and _CLAIM.fullmatch(claim) and ".." not in inside.parts
    return OnClaim(claim, inside) if is_one else None


def in_pods(mounts: tuple[Mount, ...], place: OnClaim) -> str:
    """Where the gang's pods see *place*; empty where they do not mount it."""
    for mount in mounts:
        if mount.claim == place.claim and place.inside.is_relative_to(mount.sub_path or "."):
            return str(PurePosixPath(mount.path) / place.inside.relative_to(mount.sub_path or "."))
    return ""


def path_of(location: str) -> Path | None:
    """The local path behind a checkpoint location; None when there is none, or it is not on a file system."""
    url = parts_of(location)
    if url.scheme in ("", "file") and url.path and not url.netloc:
        return Path(unquote(url.path) if url.scheme else location)
    return None


def _unseen(where: str, why: str) -> CheckpointAnswer:
    """Not the same as empty: what is saved there must not be lost by a fresh start."""
    return CheckpointAnswer(None, [RejectedCheckpoint(path=where, step=-1, reason=why)] if where else [])


def _answer(answer: Latest, place: Place) -> CheckpointAnswer:
    found = answer.found
    return CheckpointAnswer(
        ChosenCheckpoint(
            path=place.seen_there(found.path), step=found.step, format=found.format, saved_ns=found.saved_ns
        )
        if found
        else None,
        [
            RejectedCheckpoint(path=place.seen_there(r.path), step=r.step, reason=r.reason)
            for r in answer.rejected[:KEPT_REJECTIONS]
        ],
    )
