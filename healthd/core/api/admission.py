"""What the API server does to objects before it stores them."""

from __future__ import annotations

from healthd.core.api.meta import ObjectMeta, Slim


class MutatingAdmissionPolicy(Slim, frozen=True, kw_only=True):
    """Changes new objects by rules that the API server holds itself. Only whether it is there matters to healthd."""

    metadata: ObjectMeta
