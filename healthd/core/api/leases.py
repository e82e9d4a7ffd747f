"""Leases: slots of the budget, and who leads."""

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
    """How often it went from one holder to another."""


class Lease(Slim, frozen=True, kw_only=True):
    """A coordination.k8s.io/v1 Lease. healthd's budget is a set of them: one per slot, made when it is taken."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()
