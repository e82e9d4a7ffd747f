"""
The API server's rules for names, labels and annotation keys. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from healthd.cluster.port import Invalid
from healthd.core.api import Resource

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels and no similar characters: a generated name is no word by chance."""
_LONGEST_PREFIX = 58
"""With this limit the generated name fits into a label value."""


def generated_name(prefix: str, seed: str) -> str:
    """*prefix*, cut where an API server cuts it, and five characters drawn from *seed*."""
    digest = hashlib.blake2s(seed.encode(), digest_size=5).digest()
    return prefix[:_LONGEST_PREFIX] + "".join(_SUFFIX_ALPHABET[byte % len(_SUFFIX_ALPHABET)] for byte in digest)


def check_identity(resource: Resource, name: str, namespace: str) -> None:
    """Raises Invalid when *name* or *namespace* cannot name an object of this kind."""
    if not _is_subdomain(name):
        raise Invalid(f"{resource.kind}: metadata.name: {name!r} must be lower case letters, digits, '-' and '.'")
    if resource.namespaced and not _is_subdomain(namespace):
        raise Invalid(f"{resource.kind} {name}: metadata.namespace: {namespace!r} is not the name of a namespace")
    if not resource.namespaced and namespace:
        raise Invalid(f"{resource.kind} {name}: metadata.namespace: must be empty, the kind has cluster scope")


def check_marks(where: str, metadata: Mapping[str, Any]) -> None:
    """Raises Invalid for labels, annotation keys, finalizers or owners that an API server would refuse."""
    if sum(bool(owner.get("controller")) for owner in metadata.get("ownerReferences", [])) > 1:
        raise Invalid(f"{where}: metadata.ownerReferences: only one owner can be the controller")
    _check_keys(f"{where}: metadata.labels", metadata.get("labels", {}))
    _check_keys(f"{where}: metadata.annotations", metadata.get("annotations", {}))
    _check_keys(f"{where}: metadata.finalizers", metadata.get("finalizers", []))
    for key, value in metadata.get("labels", {}).items():
        if value and not _is_label_value(value):
            raise Invalid(f"{where}: metadata.labels[{key}]: {value!r} must be at most 63 of A-Z a-z 0-9 '-' '_' '.'")


def _check_keys(where: str, keys: Iterable[str]) -> None:
    for key in keys:
        prefix, slash, name = key.rpartition("/")
        if not _is_label_value(name) or (slash and not _is_subdomain(prefix)):
            raise Invalid(f"{where}: {key!r} is not a qualified name such as example.com/name")


def _is_label_value(text: str) -> bool:
    return len(text) <= 63 and _QUALIFIED.fullmatch(text) is not None


def _is_subdomain(text: str) -> bool:
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None
