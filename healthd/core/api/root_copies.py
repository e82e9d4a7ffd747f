"""`RootCopy`: the root of a gang as it was when it failed for good, kept while healthd makes it again."""

from __future__ import annotations

from healthd.core.api.meta import ObjectMeta, Slim
from healthd.core.api.recoveries import GangRef

LONGEST_COPY = 512 * 1024
"""Characters of a copy, compressed. The manifests of most gangs have a few thousand."""


class CopiedRoot(Slim, frozen=True, kw_only=True):
    """One root, and the recovery that makes it again."""

    gang: GangRef
    """The root that was copied."""
    recovery: str
    """The recovery, in the namespace of the gang."""
    version: str
    """The resource version of the object that was copied. That version alone is deleted."""
    manifest: str
    """Its labels, annotations and spec: JSON, compressed by gzip, in base64."""


class RootCopy(Slim, frozen=True, kw_only=True):
    """
    healthd.dev/v1alpha1, in healthd's own namespace, named by the uid of the root.

    It is not part of the Recovery: people who may write recoveries in their namespace could let healthd create what
    they may not create themselves.
    """

    metadata: ObjectMeta
    spec: CopiedRoot
