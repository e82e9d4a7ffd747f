"""
What a write may change, as in an API server: pure functions from wire objects to wire objects.

A wire object is the decoded JSON, with every field that was ever written, also fields that no slim struct names.
No function here changes its arguments; none depends on where objects are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from healthd.cluster.embedded import names
from healthd.cluster.port import Conflict, Invalid, NotFound
from healthd.core.api import Resource

Wire = dict[str, Any]

_FIXED = ("name", "namespace", "uid")
"""Set once, at creation; a patch may only repeat them."""
_SERVED = (*_FIXED, "creationTimestamp", "generation", "resourceVersion")
"""Set by the server alone."""
_DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")
"""Set by delete alone."""
_TERMINAL = ("Succeeded", "Failed")
_DEPENDENTS = "foregroundDeletion"
"""The finalizer of an object that is deleted after what it owns."""


def describe(resource: Resource, metadata: Mapping[str, Any]) -> str:
    """How messages name an object: `Pod default/rank-0`."""
    parts = [metadata.get("namespace", ""), metadata.get("name", "")]
    return f"{resource.kind} {'/'.join(part for part in parts if part)}"


def created(resource: Resource, body: Wire, *, uid: str, now: datetime) -> Wire:
    """The object as it is first stored; it already has its final name. Raises Invalid."""
    metadata = dict(body["metadata"])
    names.check_identity(resource, metadata.get("name", ""), metadata.get("namespace", ""))
    where = describe(resource, metadata)
    names.check_marks(where, metadata)
    if metadata.get("resourceVersion"):
        raise Invalid(f"{where}: metadata.resourceVersion: must not be set on an object to be created")
    for field in _DELETION:
        metadata.pop(field, None)
    metadata |= {"uid": uid, "generation": 1, "creationTimestamp": _second(now)}
    dropped = {"metadata", "status"} if resource.has_status else {"metadata"}
    return {**{key: value for key, value in body.items() if key not in dropped}, "metadata": metadata}


def check_preconditions(resource: Resource, old: Wire, *, uid: str = "", resource_version: str = "") -> None:
    """Raises Conflict when *old* is another object, or another version of it, than the caller has read."""
    metadata = old["metadata"]
    if uid and uid != metadata["uid"]:
        raise Conflict(f"{describe(resource, metadata)}: uid is {metadata['uid']}, not {uid}: it was created anew")
    if resource_version and resource_version != metadata["resourceVersion"]:
        current = metadata["resourceVersion"]
        raise Conflict(
            f"{describe(resource, metadata)}: resourceVersion is {current}, not {resource_version}: "
            "it has been changed; read it again"
        )


def patched(resource: Resource, old: Wire, patch: Wire, subresource: str) -> Wire:
    """*old* after a JSON merge patch, or *old* itself when nothing changes. Raises Invalid, NotFound."""
    new = _patched_status(resource, old, patch, subresource) if subresource else _patched_main(resource, old, patch)
    return old if new == old else new


def _patched_status(resource: Resource, old: Wire, patch: Wire, subresource: str) -> Wire:
    if subresource != "status" or not resource.has_status:
        raise NotFound(f"{resource.plural} have no subresource {subresource!r}")
    only_status = {key: value for key, value in patch.items() if key == "status"}
    new: Wire = merged(old, only_status)
    return new


def _patched_main(resource: Resource, old: Wire, patch: Wire) -> Wire:
    kept = {"status"} if resource.has_status else set()
    new: Wire = merged(old, {key: value for key, value in patch.items() if key not in kept})
    where = describe(resource, old["metadata"])
    if new.get("kind") != old.get("kind") or new.get("apiVersion") != old.get("apiVersion"):
        raise Invalid(f"{where}: kind and apiVersion cannot be changed")
    metadata = _guarded(where, old["metadata"], new.get("metadata") or {})
    if not is_same(_desired(new), _desired(old)):
        metadata["generation"] = metadata.get("generation", 0) + 1
    return {**new, "metadata": metadata}


def _guarded(where: str, old: Wire, new: Wire) -> Wire:
    """*new* metadata with the fields that only the server sets restored. Raises Invalid if the patch changes them."""
    for field in _FIXED:
        if new.get(field) not in (None, old.get(field)):
            raise Invalid(f"{where}: metadata.{field}: cannot be changed from {old.get(field)!r} to {new[field]!r}")
    for field in _DELETION:
        if field in new and field not in old:
            raise Invalid(f"{where}: metadata.{field}: cannot be set by a patch; delete the object")
    added = set(new.get("finalizers", ())) - set(old.get("finalizers", ()))
    if added and "deletionTimestamp" in old:
        raise Invalid(f"{where}: metadata.finalizers: {sorted(added)} cannot be added while it is being deleted")
    names.check_marks(where, {key: value for key, value in new.items() if value != old.get(key)})
    served = {field: old[field] for field in (*_SERVED, *_DELETION) if field in old}
    return {**new, **served}


def _desired(body: Wire) -> Wire:
    return {key: value for key, value in body.items() if key not in ("metadata", "status")}


def deleted(resource: Resource, old: Wire, *, now: datetime, grace_seconds: int | None) -> Wire | None:
    """The object after a delete request: None when it is removed at once, *old* itself when nothing changes."""
    if grace_seconds is not None and grace_seconds < 0:
        raise Invalid(f"{describe(resource, old['metadata'])}: gracePeriodSeconds: {grace_seconds} is less than 0")
    if "deletionTimestamp" in old["metadata"]:
        new = _hurried(old, now, grace_seconds)
    else:
        new = _doomed(old, now, _grace_period(resource, old, grace_seconds))
    return None if is_finished(new) else new


def kept_by_dependents(body: Wire) -> Wire:
    """*body*, which will stay until what it owns is gone."""
    metadata = body["metadata"]
    return {**body, "metadata": {**metadata, "finalizers": [*metadata.get("finalizers", ()), _DEPENDENTS]}}


def is_kept_by_dependents(body: Wire) -> bool:
    """Whether it is being deleted, and stays until what it owns is gone."""
    return "deletionTimestamp" in body["metadata"] and _DEPENDENTS in body["metadata"].get("finalizers", ())


def released_by_dependents(body: Wire) -> Wire:
    """*body*, of which all that it owned is gone."""
    metadata = body["metadata"]
    left = [each for each in metadata["finalizers"] if each != _DEPENDENTS]
    return {**body, "metadata": {**metadata, "finalizers": left}}


def is_finished(body: Wire) -> bool:
    """True when the object is being deleted and waits for nothing: no finalizer, and (for a pod) no kubelet."""
    metadata = body["metadata"]
    return "deletionTimestamp" in metadata and not (
        metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    )


def _doomed(old: Wire, now: datetime, period: int) -> Wire:
    metadata = old["metadata"]
    marks = {
        "deletionTimestamp": _second(now + timedelta(seconds=period)),
        "deletionGracePeriodSeconds": period,
        "generation": metadata.get("generation", 0) + 1,
    }
    return {**old, "metadata": {**metadata, **marks}}


def _hurried(old: Wire, now: datetime, grace_seconds: int | None) -> Wire:
    """A second delete may only shorten the grace period, and sets no time that is past: the first request is lost."""
    metadata = old["metadata"]
    current: int = metadata.get("deletionGracePeriodSeconds", 0)
    if grace_seconds is None or grace_seconds >= current:
        return old
    until = msgspec.convert(metadata["deletionTimestamp"], datetime) - timedelta(seconds=current - grace_seconds)
    if until < now:
        until, grace_seconds = now, min(grace_seconds, 1)
    marks = {"deletionTimestamp": _second(until), "deletionGracePeriodSeconds": grace_seconds}
    return {**old, "metadata": {**metadata, **marks}}


def _grace_period(resource: Resource, body: Wire, asked: int | None) -> int:
    """Only a pod that a kubelet may be running has a grace period; all else is deleted at once."""
    spec = body.get("spec", {})
    if resource.kind != "Pod" or not spec.get("nodeName"):
        return 0
    if body.get("status", {}).get("phase") in _TERMINAL:
        return 0
    own: int = spec.get("terminationGracePeriodSeconds", 30)
    return own if asked is None else asked


def _second(moment: datetime) -> Any:
    """A time as in the metadata of an object: cut off to full seconds."""
    return msgspec.to_builtins(moment.replace(microsecond=0))


def owner_uids(body: Wire) -> list[str]:
    """The uids of the object's owners; it is garbage collected when they are all gone."""
    return [reference["uid"] for reference in body["metadata"].get("ownerReferences", ())]


def merged(target: Any, patch: Any) -> Any:
    """JSON merge patch, RFC 7386: None deletes a key, a list replaces the list."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def is_same(new: Any, old: Any) -> bool:
    """Equal. A missing key, an empty object and an empty list count as the same, as in every API server."""
    if new == old:
        return True
    if isinstance(new, dict | None) and isinstance(old, dict | None):
        new, old = new or {}, old or {}
        return all(is_same(new.get(key), old.get(key)) for key in new.keys() | old.keys())
    return not new and not old and isinstance(new, list | None) and isinstance(old, list | None)
