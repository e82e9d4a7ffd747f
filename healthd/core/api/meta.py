"""Metadata that every object has: identity, versions, owners, conditions."""

from __future__ import annotations

import msgspec

from healthd.core.untrusted import Moment


class Slim(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """
    Base of every struct on the wire: camelCase keys, defaults left out, unknown keys ignored.

    Frozen values hold no cycles, so the garbage collector need not track them: decoding takes half the time.
    """


class OwnerReference(Slim, frozen=True, kw_only=True):
    """The owner of an object, which is deleted when its last owner is gone."""

    api_version: str = ""
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Slim, frozen=True, kw_only=True):
    """Identity, versions, labels and annotations of an object."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Moment | None = None
    deletion_timestamp: Moment | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []


class Condition(Slim, frozen=True, kw_only=True):
    """One observed condition. `last_transition_time` changes only with `status`."""

    type: str
    """What it is about."""
    status: str = msgspec.field(default_factory=lambda: "Unknown")
    """From a factory, so it is never left out on the wire: the API server has no default for it."""
    reason: str = ""
    """The reason, in one word for programs."""
    message: str = ""
    """The reason, for a person."""
    last_transition_time: Moment | None = None
    """When the status last changed."""
    last_heartbeat_time: Moment | None = None
    """When it was last confirmed."""
