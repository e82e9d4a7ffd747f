"""What the reconciler of all gangs reads from, writes to and reports to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from healthd.clock import Clock
from healthd.cluster.port import Cluster, Reader
from healthd.controller.fresh_reads import Gather, one_by_one
from healthd.controller.ports import Activity, Checkpoints, NoActivity, UnknownWitnesses, Witnesses
from healthd.core.backoff import Jitter, no_jitter
from healthd.core.hang.straggler import Straggler
from healthd.core.recovery.gang import Root
from healthd.gangs.adapter import GangAdapter
from healthd.telemetry.events import Announce, silently
from healthd.telemetry.metrics import Metrics


def none_slow(root: Root) -> Sequence[Straggler]:  # noqa: ARG001 - the shape of a comparison of ranks
    """No ranks are compared."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcilerDependencies:
    """The reconciler's surroundings. What is left out does nothing, or nothing at the same time."""

    cluster: Cluster
    """Every write goes here, and every read that a write depends on."""
    clock: Clock
    adapters: Mapping[str, GangAdapter[Any]]
    """By kind."""
    checkpoints: Checkpoints
    metrics: Metrics
    namespace: str = ""
    """healthd's own namespace; empty: it has none, as on one server."""
    informer: Reader | None = None
    """Where everything else is read; it may be stale. None: *cluster*."""
    has_rhythms: bool = True
    """Agents report what pods do. `healthd run` samples its ranks itself, and records their silence."""
    activity: Activity = field(default_factory=NoActivity)
    witnesses: Witnesses = field(default_factory=UnknownWitnesses)
    slow_ranks: Callable[[Root], Sequence[Straggler]] = none_slow
    """The ranks of a gang that the others wait for now, by what agents publish."""
    together: Gather = one_by_one
    """How several reads are made at once."""
    jitter: Jitter = no_jitter
    announce: Announce = silently

    @property
    def reader(self) -> Reader:
        """Where reads go that may be stale."""
        return self.informer or self.cluster
