"""The location of checkpoints, as written by a gang's owner: `pvc://claim/path`, `file:///path`, or a bucket's URL."""

from __future__ import annotations

import re
from collections.abc import Iterable
from posixpath import normpath
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

VOLUMES_AT = "/checkpoints"
"""
Where the claims of gangs are mounted in the controller's pod, by namespace and claim. The manifest that mounts them
uses the same path. The pod has nothing else there, so no site needs another path.
"""


def parts_of(location: str) -> SplitResult:
    """The parts of a URL. They are empty for an invalid one, such as `s3://[x`."""
    try:
        return urlsplit(location)
    except ValueError:
        return urlsplit("")


def is_below(place: str, folder: str) -> bool:
    """Whether *place* is *folder* or inside it. Both are URLs, or paths without dots."""
    return f"{place}/".startswith(f"{folder.rstrip('/')}/")


class Allowed(NamedTuple):
    """A location that gangs may use, with everything below it."""

    location: str
    namespaces: frozenset[str]
    """The namespaces whose gangs may use it; `*` means all."""


EVERY = "*"
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LOCATION = re.compile(r"/|(s3|gs|az|abfss)://[^/\[\]]+(/|$)")


def parse_allowed(row: str) -> Allowed:
    """What a row of the configuration allows, such as `s3://training/team-a for team-a`. Raises ValueError."""
    location, _, names = row.rpartition(" for ")
    namespaces = frozenset(re.split(r"[,\s]+", names.strip()))
    if not location:
        raise ValueError(f"{row!r} does not say for whom: write `{row} for NAMESPACE, NAMESPACE`, or `{row} for *`")
    if not _LOCATION.match(location):
        raise ValueError(f"{location!r} is no absolute path, and no URL such as s3://bucket/path")
    if bad := sorted(name for name in namespaces if name != EVERY and not _NAMESPACE.fullmatch(name)):
        raise ValueError(f"{row!r}: {', '.join(map(repr, bad))} is no namespace; `*` stands for every one")
    return Allowed(normpath(location) if location.startswith("/") else location.rstrip("/"), namespaces)


def allowed_in(namespace: str, rows: Iterable[str]) -> tuple[str, ...]:
    """The locations among *rows* that a gang of *namespace* may name."""
    parsed = map(parse_allowed, rows)
    return tuple(each.location for each in parsed if each.namespaces & {namespace, EVERY})
