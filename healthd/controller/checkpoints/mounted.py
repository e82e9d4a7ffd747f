"""
The checkpoints of gangs that save where this process can read: `file:///path`, `pvc://claim/path`, or a bucket such as
`s3://bucket/path`.

A claim has another mount path here than in the gang's pods, so each checkpoint has two names. This module returns the
name that the pods use; where the pods do not show it, the name stays a `pvc://` URL.

The owner of a gang names the location, and the controller can read more than the owner may. So locations are kept
within bounds, also where a link leads out of them.

The files were written by users, and may be made to cost time and memory. So they are read by processes that can be
ended (`healthd.checkpoints.processes`). These processes are few, in even shares for each namespace
(`healthd.controller.checkpoints.readers`): all gangs of a cluster may be restarted at once, the file server has other
work, and memory is limited.
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
from healthd.core.api import ChosenCheckpoint, Recovery, unread_place
from healthd.core.api.locations import VOLUMES_AT, allowed_in, is_below, parts_of
from healthd.core.checkpoint.precheck import refusing
from healthd.core.checkpoint.verification import VerificationReport, saves
from healthd.core.recovery.gang import ClaimMount, Root
from healthd.threads import Threads

READ_LIMIT = 10.0
"""Seconds; a file server that hangs must not delay everything else because of a check of progress."""
LONGEST_REPORT = 120.0
"""Seconds; no recovery waits for this report, and tens of thousands of files take long."""
KEPT_REJECTIONS = 20
"""They are stored in the Recovery, and an object has a size limit; the newest ones are enough."""
PLACERS = 6
"""Threads that check the folders of claims, as `core.fair_shares` counts them."""
_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class Bounds(NamedTuple):
    """Where the controller may read."""

    folders: tuple[Path, ...]
    buckets: tuple[str, ...]
    """URLs; each allows everything below it."""

    @classmethod
    def of(cls, namespace: str, volumes_at: Path, rows: Sequence[str]) -> Bounds:
        """For gangs of *namespace*: its own folder below *volumes_at*, and what *rows* of the configuration allow."""
        allowed = allowed_in(namespace, rows)
        return cls(
            folders=(volumes_at / namespace, *(Path(each) for each in allowed if not is_bucket(each))),
            buckets=tuple(each for each in allowed if is_bucket(each)),
        )


@dataclass(frozen=True, slots=True)
class CheckpointLocation:
    """Where a gang's checkpoints are: *here* in this process, *there* in its pods; both are the same folder."""

    here: str
    """A path, or the URL of a bucket."""
    there: str
    bounds: tuple[Path, ...] | None = None
    """Folders that a path must be in; None: any path is allowed."""

    def seen_there(self, path: str) -> str:
        """The name in the pods for a *path* here."""
        if self.there == self.here:
            return path
        if path == self.here:
            return self.there
        return self.there.rstrip("/") + "/" + path.removeprefix(f"{self.here}/")


class FileCheckpoints:
    """
    Reads checkpoints at the location that the root of a gang names. Claims are mounted below *volumes_at*.

    A gang can read only the folder of its namespace there, and what the rows of *allowed* give to that namespace; None
    allows everything. Credentials for buckets come from the *environment* and what it names. A verification that takes
    longer than *within* is ended, and the checkpoint is refused.
    """

    def __init__(
        self,
        volumes_at: Path = Path(VOLUMES_AT),
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
        """Threads that check the folder of a claim now, by folder."""

    async def latest(
        self,
        root: Root,
        newer_than: int | None = None,
        recovery: Recovery | None = None,  # noqa: ARG002 - the protocol's
        doubted: Sequence[ChosenCheckpoint] = (),
    ) -> CheckpointAnswer:
        """The newest checkpoint that will load. When the store does not answer or is hostile, a rejection says so."""
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
        """Whether this process can read the location that *root* names. Raises TimeoutError."""
        return isinstance(await self._place_of(root), CheckpointLocation)

    async def newest_step(self, root: Root) -> int | None:
        """The highest step by name. Raises OSError when the store cannot be read or does not answer."""
        place = await self._place_of(root)
        if isinstance(place, str):
            return None
        report = await self._readers.read(_inquiry(place, names_only=True), READ_LIMIT, root.ref.namespace)
        return report.found.step if report.found and report.found.step >= 0 else None

    async def report(self, root: Root) -> VerificationReport | None:
        """A quick check; None when this process cannot read the location. Raises OSError as `newest_step` does."""
        place = await self._place_of(root)
        if isinstance(place, str):
            return None if on_claim(root.options.checkpoint) else refusing(root, place)
        inquiry = _inquiry(place, format=root.options.checkpoint_format, quick=True)
        return seen_there(await self._readers.read(inquiry, LONGEST_REPORT, root.ref.namespace), place)

    async def _place_of(self, root: Root) -> CheckpointLocation | str:
        """Not on the event loop: the file server of a claim may hang. Raises TimeoutError."""
        namespace, allowed = root.ref.namespace, self._allowed
        bounds = None if allowed is None else Bounds.of(namespace, self._volumes_at, allowed)
        placing = partial(place_of, root, self._volumes_at, bounds)
        claim = on_claim(root.options.checkpoint)
        if claim is None:
            return placing()
        volume = f"{self._volumes_at}/{namespace}/{claim.claim}"
        if self._placing[volume] >= PLACERS:
            raise TimeoutError(f"{volume} has not answered earlier reads")

        def place() -> CheckpointLocation | str:
            self._placing[volume] += 1
            try:
                return placing()
            finally:
                self._placing[volume] -= 1

        try:
            async with asyncio.timeout(READ_LIMIT):
                return await self._placers.run(place, who=namespace)
        except TimeoutError as error:
            raise TimeoutError(str(error) or f"{volume} has not answered within {READ_LIMIT:.0f} s") from error


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
        return f"the claim is not mounted in the controller's pod (at {volume})"
    return CheckpointLocation(str(volume / place.inside), in_pods(root.mounts, place) or location, (volume,))


def why_no_place(location: str) -> str:
    """Why *location*, which the gang's owner wrote, is not readable by its form; empty when it is."""
    url = parts_of(location)
    if path_of(location) is not None or (url.scheme and is_bucket(location)):
        return ""
    if url.scheme == "pvc":
        return "" if on_claim(location) else _NOT_ON_A_CLAIM
    return "healthd reads pvc://claim/path, file:///path, and buckets: s3://, gs://, az://, abfss://"


_NOT_ON_A_CLAIM = "not a place on a claim: write pvc://claim/path"


def _in_bucket(location: str, bounds: Bounds | None) -> CheckpointLocation | str:
    """Bounds first: a location outside of them is never requested."""
    if bounds is not None and not any(is_below(location, bucket) for bucket in bounds.buckets):
        allowed = ", ".join(bounds.buckets) or "no bucket"
        return f"{location} is outside of what the controller may read ({allowed}; see checkpoints.allowed)"
    return CheckpointLocation(location, location)


def seen_there(report: VerificationReport, place: CheckpointLocation) -> VerificationReport:
    """*report* with the paths that the gang's own pods use."""
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
    """The folder that `pvc://claim/path` names; None when *location* is not on a claim."""
    url = parts_of(location)
    claim, inside = url.netloc, PurePosixPath(unquote(url.path).strip("/") or ".")
    is_one = url.scheme == "pvc" and _CLAIM.fullmatch(claim) and ".." not in inside.parts
    return OnClaim(claim, inside) if is_one else None


def in_pods(mounts: tuple[ClaimMount, ...], place: OnClaim) -> str:
    """The path of *place* in the gang's pods; empty when they do not mount it."""
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
    """Not the same as empty: a start without a checkpoint must not lose what is saved there."""
    return CheckpointAnswer(None, [unread_place(where, why)] if where else [])
