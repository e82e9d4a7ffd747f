"""The namespace: only its uid is of interest, as an identity."""

from __future__ import annotations

from healthd.core.api.meta import ObjectMeta, Slim

KUBE_SYSTEM = "kube-system"
"""Every cluster has it from its beginning to its end, so its uid is the identity of the cluster."""


class Namespace(Slim, frozen=True, kw_only=True):
    """v1."""

    metadata: ObjectMeta
