"""
The text that a user writes for a location of checkpoints: a path, `file:///path`, or the URL of a bucket.

Credentials are never part of it: they come from the platform, where obstore looks for them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from healthd.checkpoints.stores.clients import CannotConnect, open_bucket
from healthd.checkpoints.stores.local import local_store
from healthd.checkpoints.stores.objects import ObjectPath, ObjectStore
from healthd.checkpoints.stores.store import CheckpointStore

Location = Path | ObjectPath
"""The location of a checkpoint, or of a folder of checkpoints."""

EXTRAS = {"s3": "s3", "gs": "gcs", "az": "azure", "abfss": "azure"}
"""The package extra that each scheme needs."""


class NoSuchStore(ValueError):
    """This location cannot be read. The message says what to write or to install instead."""


def locate(text: str, environment: Mapping[str, str] = os.environ) -> Location:
    """The location that *text* names. Raises NoSuchStore."""
    try:
        url = urlsplit(text)
    except ValueError as error:  # for brackets, which in a URL are only valid around an address
        raise NoSuchStore(f"{text}: no URL ({error}): use a path, or a bucket's name without brackets") from error
    if url.scheme in ("", "file"):
        return _path(text, url.scheme, url.netloc, url.path)
    if url.scheme not in EXTRAS:
        known = ", ".join(f"{scheme}://" for scheme in EXTRAS)
        raise NoSuchStore(
            f"{text}: no kind of store that healthd can read: use a path, file:///path, or one of {known}"
        )
    if not url.netloc:
        raise NoSuchStore(f"{text}: without a bucket: write {url.scheme}://BUCKET/PATH")
    key = "/".join(part for part in text.split("://", 1)[1].split("/")[1:] if part)
    if ".." in key.split("/"):
        raise NoSuchStore(f"{text}: .. has no meaning in a bucket")
    return ObjectPath(f"{url.scheme}://{url.netloc}", key, _open(url.scheme, url.netloc, environment))


def is_bucket(text: str) -> bool:
    """Whether *text* is the URL of a bucket that `locate` can read when the extra is installed."""
    return urlsplit(text).scheme in EXTRAS


def store_of(location: Location) -> CheckpointStore[Any]:
    """The store that reads *location*."""
    return local_store() if isinstance(location, Path) else location.store


def _path(text: str, scheme: str, host: str, path: str) -> Path:
    if host and scheme == "file":
        raise NoSuchStore(f"{text}: names the machine {host!r}: write file:///path with three slashes")
    return Path(unquote(path)) if scheme else Path(text)


def _open(scheme: str, bucket: str, environment: Mapping[str, str]) -> ObjectStore:
    try:
        import obstore  # noqa: F401 - whether it is there
    except ImportError as error:
        raise NoSuchStore(f"{scheme}:// needs another package: pip install 'healthd[{EXTRAS[scheme]}]'") from error
    try:
        return ObjectStore(open_bucket(scheme, bucket, environment))
    except CannotConnect as error:
        raise NoSuchStore(f"{scheme}://{bucket}: {error}") from error
