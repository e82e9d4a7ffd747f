"""
Keeps the account of each gang's GPU time on its root, and counts what is new in it.

The account lies on the root and not in a process: a restarted controller or a new leader goes on from there. A write
has the version of the root that was read as its precondition, so of two controllers one succeeds, and only that one
counts. So nothing is counted twice. What a process counted after its last scrape is lost with the process, at most one
write of each gang; the accounts have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import structlog

from healthd.cluster.port import (
    Cluster,
    Conflict,
    NotFound,
    Refused,
    TooManyRequests,
    Unavailable,
)
from healthd.controller.cache.cluster_state import ClusterState
from healthd.core.accounting.figures import figures
from healthd.core.accounting.settle import SETTLE_EVERY, as_of, is_due, saving_of, settle, with_real_size
from healthd.core.accounting.timeline import counted
from healthd.core.api import ANNOTATION_GPU_TIME, Recovery
from healthd.core.api.gpu_time import GpuTime
from healthd.core.recovery.gang import GangView, Root
from healthd.gangs.adapter import GangAdapter
from healthd.telemetry.metrics import GangGpuTime, Metrics

log = structlog.get_logger()

SHOW_AGAIN = timedelta(minutes=5)
"""The gauges of a gang are added up again when its account has changed, else so often."""
MOST_ADDED_UP = 100
"""In one pass, which holds up the loop: in a storm every gang has a recovery. The others show what they did before."""


class _Unanswered(NamedTuple):
    """A write that may or may not have taken effect."""

    before: GpuTime | None
    after: GpuTime
    increments: Counter[str]


class _Written(NamedTuple):
    """Of the last account that this process has written: its owner may write another one."""

    until: int
    gpus: int
    missing: int


class _Shown(NamedTuple):
    """What is shown of a gang, since when."""

    account: GpuTime
    at: datetime
    gang: GangGpuTime


class GpuTimeRecorder:
    """Brings accounts up to date through *cluster*, and shows them in *metrics*."""

    def __init__(self, cluster: Cluster, adapters: Mapping[str, GangAdapter[Any]], metrics: Metrics) -> None:
        self._cluster = cluster
        self._adapters = adapters
        self._metrics = metrics
        self._unanswered: dict[str, _Unanswered] = {}
        """By uid of the root."""
        self._written: dict[str, _Written] = {}
        """By uid of the root."""
        self._refused: dict[str, datetime] = {}
        """By uid of the root: when a write is tried again that the API server refused."""
        self._shown: dict[str, _Shown] = {}
        """By uid of the root."""
        metrics.start_gpu_time_at_zero()

    async def record(self, view: GangView, recoveries: Sequence[Recovery], now: datetime) -> None:
        """Bring the account of a gang that has no active recovery up to date. A failed write is made later."""
        root = view.root
        if root is None or not _is_counted(root) or now < self._refused.get(root.ref.uid, now):
            return
        self._count_unanswered(root)
        before = self._believed(root)
        after = settle(before, view, recoveries, now)
        if after is None or not is_due(before, after):
            return
        if before is not None and _written(before) != self._written.get(root.ref.uid):
            after = settle(with_real_size(before, view), view, recoveries, now) or after
        await self._store(root, after, now)

    def measure(self, cluster_state: ClusterState, now: datetime) -> None:
        """Set the gauges of single gangs."""
        self._metrics.show_gpu_time(self._gangs(cluster_state, now))
        uids = {root.ref.uid for root in cluster_state.roots.values()}
        self._shown = {uid: shown for uid, shown in self._shown.items() if uid in uids}
        self._refused = {uid: again for uid, again in self._refused.items() if uid in uids}
        self._written = {uid: written for uid, written in self._written.items() if uid in uids}
        self._unanswered = {uid: write for uid, write in self._unanswered.items() if uid in uids}

    async def _store(self, root: Root, after: GpuTime, now: datetime) -> None:
        after, increments = counted(root.gpu_time, after)
        notes = {ANNOTATION_GPU_TIME: msgspec.json.encode(after).decode()}
        try:
            await self._adapters[root.ref.kind].patch(self._cluster, root, {"metadata": {"annotations": notes}})
        except (Conflict, NotFound):
            return  # the root changed since it was read: the next reconcile sees it
        except Unavailable:
            self._unanswered[root.ref.uid] = _Unanswered(root.gpu_time, after, increments)
            return
        except (Refused, TooManyRequests) as error:  # such as an older admission policy
            if root.ref.uid not in self._refused:
                log.warning("gpu_time.not_stored", gang=root.ref.name, namespace=root.ref.namespace, error=str(error))
            self._refused[root.ref.uid] = now + SETTLE_EVERY
            return
        self._written[root.ref.uid] = _written(after)
        self._unanswered.pop(root.ref.uid, None)  # it had no effect, or this write would have been refused
        self._metrics.count_gpu_time(increments)

    def _believed(self, root: Root) -> GpuTime | None:
        """The stored account; None where somebody has put back an older one, whose time would be counted twice."""
        account = root.gpu_time
        written = self._written.get(root.ref.uid)
        is_older = account is not None and written is not None and account.until < written.until
        return None if is_older else account

    def _count_unanswered(self, root: Root) -> None:
        """Count a write without an answer once the root shows it."""
        write = self._unanswered.get(root.ref.uid)
        if write is None or root.gpu_time == write.before:
            return
        del self._unanswered[root.ref.uid]
        if root.gpu_time == write.after:
            self._metrics.count_gpu_time(write.increments)

    def _gangs(self, cluster_state: ClusterState, now: datetime) -> Iterator[GangGpuTime]:
        left = MOST_ADDED_UP
        for root in cluster_state.roots.values():
            if root.gpu_time is None or not _is_counted(root):
                continue
            shown = self._shown.get(root.ref.uid)
            if left and (shown is None or shown.account is not root.gpu_time or now - shown.at >= SHOW_AGAIN):
                left -= 1
                account = as_of(root.gpu_time, cluster_state.active(root.ref), saving_of(root), now)
                shown = self._shown[root.ref.uid] = _Shown(root.gpu_time, now, _gang(root, account))
            if shown is not None:
                yield shown.gang


def _gang(root: Root, account: GpuTime) -> GangGpuTime:
    found = figures([account])
    return GangGpuTime(root.ref.namespace, root.ref.name, found.ettr, found.lost)


def _written(account: GpuTime) -> _Written:
    return _Written(account.until, account.gpus, account.missing)


def _is_counted(root: Root) -> bool:
    return root.options.restart and not root.invalid
