"""Where a gang saves, as its owner wrote it: `pvc://claim/path`, `file:///path`, or the URL of a bucket."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


def parts_of(location: str) -> SplitResult:
    """Of a URL; without any for what is none, such as one with a bracket in the place of a bucket."""
    try:
        return urlsplit(location)
    except ValueError:
        return urlsplit("")
