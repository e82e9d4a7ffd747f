"""What every topic of the configuration has in common."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from msgspec import Meta


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every topic: immutable, every field has a default, and an unknown key is an error."""


def span(description: str, *, at_least: timedelta = timedelta(0)) -> Meta:
    """The meta data of a key that holds a duration of *at_least* so much."""
    return Meta(description=description, extra={"at_least": at_least})
