"""
The result of checking one location, in one small object that one program can send to another.

Blocks on the store. It changes nothing there.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from healthd.checkpoints.formats import UnknownFormat
from healthd.checkpoints.latest import Cache, Checkpoint, Rejected, VerifyLevel, latest, newest_step
from healthd.checkpoints.stores.local import confined_to, without_links
from healthd.checkpoints.stores.urls import Location, NoSuchStore, locate
from healthd.core.api import ChosenCheckpoint, RejectedCheckpoint, unread_place
from healthd.core.checkpoint.verification import SaveId, VerificationReport
from healthd.core.printable import printable


class Inquiry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to check, and how thoroughly."""

    location: str
    """A path, or the URL of a bucket."""
    bounds: list[str] | None = None
    """Folders that the path must be in, also after following links. None: no restriction."""
    format: str = ""
    """The format as its owner declared it. Empty to detect it."""
    quick: bool = False
    """Check only headers and sizes."""
    names_only: bool = False
    """Return only the highest step by name, unverified."""
    newer_than: int | None = None
    """Steps up to this one are not checked."""
    doubted: tuple[SaveId, ...] = ()
    """Saves that are taken only when there is no other, and never as a newer one."""


def report_on(inquiry: Inquiry, cache: Cache | None = None) -> VerificationReport:
    """The report. When nothing can be read, the report has the reason."""
    try:
        place = locate(inquiry.location)
    except NoSuchStore as error:
        return _refused(inquiry, str(error))
    if refusal := _out_of_bounds(place, inquiry.bounds):
        return _refused(inquiry, refusal)
    with confined_to(None if inquiry.bounds is None else map(Path, inquiry.bounds)):
        if inquiry.names_only:
            step = newest_step(place)
            return VerificationReport() if step is None else VerificationReport(found=ChosenCheckpoint(step=step))
        try:
            return _verified(place, inquiry, cache)
        except UnknownFormat as error:
            return _refused(inquiry, str(error))


def _refused(inquiry: Inquiry, why: str) -> VerificationReport:
    return VerificationReport(rejected=[unread_place(printable(inquiry.location), printable(why)[:500])])


def _out_of_bounds(place: Location, bounds: list[str] | None) -> str:
    """Why *place* may not be read. Empty when it may. Links are followed."""
    if bounds is None or not isinstance(place, Path):
        return ""
    real = without_links(place)
    if any(real.is_relative_to(Path(bound).resolve()) for bound in bounds):
        return ""
    through = f"a link leads to {real}, which" if real != place else str(real)
    return f"{through} is outside of what the controller may read ({', '.join(bounds)}; see checkpoints.allowed)"


def _verified(place: Location, inquiry: Inquiry, cache: Cache | None) -> VerificationReport:
    level = VerifyLevel.QUICK if inquiry.quick else VerifyLevel.FULL
    answer = latest(
        place,
        format=inquiry.format,
        level=level,
        newer_than=inquiry.newer_than,
        cache=cache,
        doubted=inquiry.doubted,
    )
    found = answer.found
    return VerificationReport(
        found=_chosen(found) if found else None,
        rejected=[_rejected(each) for each in answer.rejected],
        size=found.size if found else 0,
        write_seconds=found.write_seconds if found else 0.0,
        free=_free(place) if isinstance(place, Path) else -1,
    )


def _chosen(found: Checkpoint) -> ChosenCheckpoint:
    return ChosenCheckpoint(path=found.path, step=found.step, format=found.format, saved_ns=found.saved_ns)


def _rejected(refused: Rejected) -> RejectedCheckpoint:
    return RejectedCheckpoint(path=refused.path, step=refused.step, reason=refused.reason, unread=refused.unread)


def _free(root: Path) -> int:
    """Bytes that a user may still write there. -1 when that is unknown. A bucket has no limit."""
    try:
        room = os.statvfs(root)
    except OSError:
        return -1
    return room.f_bavail * room.f_frsize
