"""Admission policies: changes that the API server makes to objects before it stores them."""

from __future__ import annotations

from healthd.core.api.meta import ObjectMeta, Slim


class MutatingAdmissionPolicy(Slim, frozen=True, kw_only=True):
    """Changes new objects by rules within the API server. healthd only checks whether it exists."""

    metadata: ObjectMeta
