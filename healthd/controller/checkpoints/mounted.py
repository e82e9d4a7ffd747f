"""
The checkpoints of gangs that save where this process can read: `file:///path`, `pvc://claim/path`, or a bucket such as
`s3://bucket/path`.

A claim is mounted here at another place than in the gang's pods, so there are two names for each checkpoint. What
leaves this module is the one that the pods know; where they do not tell, it stays a `pvc://` URL.

What a gang names is its owner's word, and the controller can read what he may not: places are kept within bounds, also
where a link leads out of them.

What is there was written by users, and may be made to take time and memory: processes look at it that can be ended
(`healthd.checkpoints.processes`). They are few, in even shares for each namespace
(`healthd.controller.checkpoints.readers`): all gangs of a cluster may be restarted at once, the file server has other
work, and memory has an end.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace

from healthd.checkpoints.processes import PROGRAM
from healthd.checkpoints.report import Inquiry
from healthd.checkpoints.stores.urls import is_bucket
from healthd.controller.checkpoints.readers import Readers
from healthd.controller.ports import CheckpointAnswer
from healthd.core.api import ChosenCheckpoint, Recovery, RejectedCheckpoint
from healthd.core.api.locations import allowed_in, is_below, parts_of
from healthd.core.checkpoint.precheck import refusing
from healthd.core.checkpoint.verification import Report, saves
from healthd.core.recovery.gang import Mount, Root
from healthd.threads import Threads

LONGEST_LOOK = 10.0
"""Seconds; a file server that hangs must not hold up everything else for the sake of a look at progress."""
LONGEST_REPORT = 120.0
"""Seconds; nobody waits for this one, and tens of thousands of files take their time."""
KEPT_REJECTIONS = 20
"""They are stored in the Recovery, and an object has a size limit; the newest tell the story."""
PLACERS = 6
"""Threads that ask for the folders of claims, as `core.fair_shares` counts them."""
_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class Bounds(NamedTuple):
    """Where the controller may read."""

    folders: tuple[Path, ...]
    buckets: tuple[str, ...]
    """URLs, each with all that is below it."""

    @classmethod
    def of(cls, namespace: str, volumes_at: Path, rows: Sequence[str]) -> Bounds:
        """For gangs of *namespace*: its own folder below *volumes_at*, and what *rows* of the configuration give it."""
        allowed = allowed_in(namespace, rows)
        return cls(
            folders=(volumes_at / namespace, *(Path(each) for each in allowed if not is_bucket(each))),
            buckets=tuple(each for each in allowed if is_bucket(each)),
        )


@dataclass(frozen=True, slots=True)
class CheckpointLocation:
    """Where a gang's checkpoints are: *here*, and as its pods name the same folder."""

    here: str
    """A path, or the URL of a bucket."""
    there: str
    bounds: tuple[Path, ...] | None = None
    """Folders that a path must be in; None: it may be anywhere."""

    def seen_there(self, path: str) -> str:
        """The name that the pods have for a *path* of here."""
        if self.there == self.here:
            return path
        if path == self.here:
            return self.there
        return self.there.rstrip("/") + "/" + path.removeprefix(f"{self.here}/")


class FileCheckpoints:
    """
    Looks where the root of a gang says. Claims are mounted below *volumes_at*.

    For a gang nothing is read outside of the folder of its namespace there and what the rows of *allowed* give that
    namespace; None allows everything. Credentials for buckets come from the *environment* and what it names. A
    verification that takes longer than *within* is ended, and refused.
    """

    def __init__(
        self,
        volumes_at: Path = Path("/checkpoints"),
        allowed: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        within: timedelta = timedelta(minutes=30),
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._volumes_at = volumes_at
        self._allowed = allowed
        self._within = within.total_seconds()
        self._readers = Readers(environment, program)
        self._placers = Threads("find claims", PLACERS)
        self._placing: Counter[str] = Counter()
        """Threads that ask for the folder of a claim."""

    async def latest(
        self,
        root: Root,
        newer_than: int | None = None,
        recovery: Recovery | None = None,  # noqa: ARG002 - the protocol's
        doubted: Sequence[ChosenCheckpoint] = (),
    ) -> CheckpointAnswer:
        """The newest checkpoint that will load; a store that does not answer, or a hostile one, is a reason."""
        place = await self._place_of(root)
        if isinstance(place, str):
            return _unseen(root.options.checkpoint, place)
        fmt = root.options.checkpoint_format
        inquiry = _inquiry(place, format=fmt, newer_than=newer_than, doubted=saves(doubted))
        try:
            report = seen_there(await self._readers.verify(inquiry, self._within, root.ref.namespace), place)
        except OSError as error:
            return _unseen(place.there, str(error))
        return CheckpointAnswer(report.found, report.rejected)

    async def reads(self, root: Root) -> bool:
        """Whether the place that *root* names can be looked at from here. Raises TimeoutError."""
        return isinstance(await self._place_of(root), CheckpointLocation)

    async def newest_step(self, root: Root) -> int | None:
        """The highest step that there is by name. Raises OSError when the store cannot be read or does not answer."""
        place = await self._place_of(root)
        if isinstance(place, str):
            return None
        report = await self._readers.look(_inquiry(place, names_only=True), LONGEST_LOOK, root.ref.namespace)
        return report.found.step if report.found and report.found.step >= 0 else None

    async def report(self, root: Root) -> Report | None:
        """A quick look; None where it cannot be had from here. Raises OSError as `newest_step` does."""
        place = await self._place_of(root)
        if isinstance(place, str):
            return None if on_claim(root.options.checkpoint) else refusing(root, place)
        inquiry = _inquiry(place, format=root.options.checkpoint_format, quick=True)
        return seen_there(await self._readers.look(inquiry, LONGEST_REPORT, root.ref.namespace), place)

    async def _place_of(self, root: Root) -> CheckpointLocation | str:
        """Not on the event loop: a claim may be mounted from a file server that hangs. Raises TimeoutError."""
        namespace, allowed = root.ref.namespace, self._allowed
        bounds = None if allowed is None else Bounds.of(namespace, self._volumes_at, allowed)
        placing = partial(place_of, root, self._volumes_at, bounds)
        claim = on_claim(root.options.checkpoint)
        if claim is None:
            return placing()
        volume = f"{self._volumes_at}/{namespace}/{claim.claim}"
        if self._placing[volume] >= PLACERS:
            raise TimeoutError(f"{volume} has not answered earlier looks")

        def place() -> CheckpointLocation | str:
            self._placing[volume] += 1
            try:
                return placing()
            finally:
                self._placing[volume] -= 1

        try:
            async with asyncio.timeout(LONGEST_LOOK):
                return await self._placers.run(place, who=namespace)
        except TimeoutError as error:
            raise TimeoutError(str(error) or f"{volume} has not answered within {LONGEST_LOOK:.0f} s") from error


def _inquiry(place: CheckpointLocation, **how: Any) -> Inquiry:
    return Inquiry(location=place.here, bounds=None if place.bounds is None else [*map(str, place.bounds)], **how)


def place_of(root: Root, volumes_at: Path, bounds: Bounds | None = None) -> CheckpointLocation | str:
    """Where the checkpoints of *root* are, or why they cannot be read. A claim has its own bounds."""
    location = root.options.checkpoint
    if why := why_no_place(location):
        return why
    if (path := path_of(location)) is not None:
        return CheckpointLocation(str(path), str(path), bounds.folders if bounds else None)
    if is_bucket(location):
        return _in_bucket(location, bounds)
    place = on_claim(location)
    if place is None:
        return _NOT_ON_A_CLAIM
    volume = volumes_at / root.ref.namespace / place.claim
    if not volume.is_dir():
        return f"the claim is not mounted in the controller's pod (at {volume}; see checkpoints.volumes_at)"
    return CheckpointLocation(str(volume / place.inside), in_pods(root.mounts, place) or location, (volume,))


def why_no_place(location: str) -> str:
    """Why *location*, which its owner wrote, names no place that could be read; empty where it does."""
    url = parts_of(location)
    if path_of(location) is not None or (url.scheme and is_bucket(location)):
        return ""
    if url.scheme == "pvc":
        return "" if on_claim(location) else _NOT_ON_A_CLAIM
    return "healthd reads pvc://claim/path, file:///path, and buckets: s3://, gs://, az://, abfss://"


_NOT_ON_A_CLAIM = "not a place on a claim: write pvc://claim/path"


def _in_bucket(location: str, bounds: Bounds | None) -> CheckpointLocation | str:
    """Bounds first: what they forbid is not even asked for."""
    if bounds is not None and not any(is_below(location, bucket) for bucket in bounds.buckets):
        allowed = ", ".join(bounds.buckets) or "no bucket"
        return f"{location} is outside of what the controller may read ({allowed}; see checkpoints.allowed)"
    return CheckpointLocation(location, location)


def seen_there(report: Report, place: CheckpointLocation) -> Report:
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
