"""
What an API server's answer means to callers of the port. Pure.
"""

from __future__ import annotations

import msgspec

from healthd.cluster.port import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TooManyRequests,
    Unavailable,
)

_DISRUPTION_BUDGET = "DisruptionBudget"
_UNKNOWN = "the server could not find the requested resource"
_LONGEST_WORDS = 2000
"""Of an answer that is no Status: a proxy's page of HTML needs no more to be known for what it is."""


class Cause(msgspec.Struct, frozen=True):
    """One reason of a refusal, and the field that it is about."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True, rename="camel"):
    """What a refusal is about."""

    causes: list[Cause] | None = None
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """The body of every refusal, and the object of a watch's ERROR event."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None

    @property
    def causes(self) -> list[Cause]:
        """Every cause that is told."""
        return (self.details and self.details.causes) or []


_STATUS = msgspec.json.Decoder(Status)


def parse_status(code: int, body: bytes) -> Status:
    """The Status in an answer with HTTP status *code*; made up from the text where a proxy or an overload gave none."""
    try:
        status = _STATUS.decode(body)
    except msgspec.MsgspecError:
        status = Status()
    if status.code == 0 or not status.message:
        status = Status(code=code, message=body[:_LONGEST_WORDS].decode(errors="replace").strip())
    return status


def failure(status: Status, where: str) -> ClusterError:
    """The error that callers of the port get; *where* says what was asked of whom. Keeps the server's words."""
    kind = _kind(status)
    words = status.message or f"HTTP status {status.code}"
    if words == _UNKNOWN:
        words = f"{where}: {words}: does this cluster know the kind?"
    return Unavailable(f"{where}: {status.code}: {words}") if kind is Unavailable else kind(words)


def is_refused_by_budget(status: Status) -> bool:
    """A PodDisruptionBudget forbids this eviction: no overload, and no reason to try again soon."""
    return any(cause.reason == _DISRUPTION_BUDGET for cause in status.causes)


def is_another_uid(status: Status) -> bool:
    """A patch named a uid that the object does not have: an API server calls that an invalid change of the uid."""
    return status.code == 422 and any(cause.field == "metadata.uid" for cause in status.causes)


def _kind(status: Status) -> type[ClusterError]:
    match status.code:
        case 404:
            return NotFound
        case 409:
            return AlreadyExists if status.reason == "AlreadyExists" else Conflict
        case 410:
            return Gone
        case 429:
            return TooManyRequests
        case 403:
            return Forbidden
        case 400 | 405 | 406 | 413 | 415 | 422:
            return Invalid
    return Unavailable
