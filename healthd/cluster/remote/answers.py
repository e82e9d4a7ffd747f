"""
Turn an API server's answers into the errors of the port. Pure.
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
    WebhookFailed,
)

_UNKNOWN = ("the server could not find the requested resource", "404 page not found")
"""What an API server says of a kind that it knows not, before and after it has forgotten a deleted definition."""
_DEAD_WEBHOOK = "failed calling webhook "
"""In a 500: the API server works, and refuses what an admission webhook with `failurePolicy: Fail` must see first."""
_LONGEST_MESSAGE = 2000
"""Limit for an answer that is not a Status: this is enough to recognize an HTML page of a proxy."""


class StatusCause(msgspec.Struct, frozen=True):
    """One cause of a refusal, and the field that it is about."""

    field: str = ""


class Details(msgspec.Struct, frozen=True, rename="camel"):
    """What a refusal is about."""

    causes: list[StatusCause] | None = None


class Status(msgspec.Struct, frozen=True):
    """The body of every refusal, and the object of a watch's ERROR event."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None

    @property
    def causes(self) -> list[StatusCause]:
        """Every cause in the answer."""
        return (self.details and self.details.causes) or []


_STATUS = msgspec.json.Decoder(Status)


def parse_status(code: int, body: bytes) -> Status:
    """The Status in an answer with HTTP status *code*; built from the text when a proxy or an overload gave none."""
    try:
        status = _STATUS.decode(body)
    except msgspec.MsgspecError:
        status = Status()
    if status.code == 0 or not status.message:
        status = Status(code=code, message=body[:_LONGEST_MESSAGE].decode(errors="replace").strip())
    return status


def failure(status: Status, where: str) -> ClusterError:
    """The error for callers of the port; *where* names the request and the server. Keeps the server's message."""
    kind = _kind(status)
    words = status.message or f"HTTP status {status.code}"
    if words in _UNKNOWN:
        words = f"{where}: {words}: does this cluster know the kind?"
    return Unavailable(f"{where}: {status.code}: {words}") if kind is Unavailable else kind(words)


def is_another_uid(status: Status) -> bool:
    """The patch had a uid that is not the object's: an API server reports this as an invalid change of the uid."""
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
        case 500 if _DEAD_WEBHOOK in status.message:
            return WebhookFailed
        case 400 | 405 | 406 | 413 | 415 | 422:
            return Invalid
    return Unavailable
