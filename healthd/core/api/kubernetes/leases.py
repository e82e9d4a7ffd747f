"""Leases: the slots of the budget, and leader election."""

from __future__ import annotations

from healthd.core.api.meta import ObjectMeta, Slim
from healthd.core.untrusted import Moment


class LeaseSpec(Slim, frozen=True, kw_only=True):
    """Who holds a lease."""

    holder_identity: str = ""
    acquire_time: Moment | None = None
    renew_time: Moment | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int = 0
    """How often the holder changed."""


class Lease(Slim, frozen=True, kw_only=True):
    """A coordination.k8s.io/v1 Lease. healthd's budget is a set of them, one per slot in use."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()
