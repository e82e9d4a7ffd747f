"""
The Job controller and the scheduler of this machine: it carries out what `plan` and `schedule` decide.

Each cycle reads the current state of the cluster. So it may be interrupted anywhere, and the next cycle continues.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog

from healthd.cluster.port import AlreadyExists, Cluster, ClusterError, Conflict, NotFound
from healthd.core.api import Job, Node, Pod
from healthd.core.patches import diff
from healthd.local.jobs.plan import BACKOFF, Drawn, JobPlan, decide, is_tracked
from healthd.local.jobs.schedule import Bind, Unschedulable, decide_bindings, refused
from healthd.local.jobs.template import FINALIZER_TRACKING
from healthd.local.reports.once import Once

log = structlog.get_logger(__name__)

RESYNC = timedelta(seconds=1)
"""The longest time between two cycles without an event. Failed writes are repeated then."""
RETRY = timedelta(milliseconds=100)
"""The wait after a write that failed with Conflict."""


class JobController:
    """Reconciles all Jobs of the cluster: creates and counts their pods, and binds them to slots."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        new_suffix: Callable[[], str],
        free_port: Callable[[], int],
        backoff: timedelta = BACKOFF,
        resync: timedelta = RESYNC,
    ) -> None:
        self._cluster = cluster
        self._resync = resync
        self._due: list[datetime] = []
        """The ends of the back-offs. The end of a back-off makes no event."""
        self._drawn = Drawn(new_suffix=new_suffix, free_port=free_port, backoff=backoff)
        self._missed = False
        """A write failed: the next cycle comes soon, but the same error does not shorten the wait again."""
        self._trouble = Once()

    async def cycle(self, now: datetime) -> timedelta:
        """Reconcile each Job, then each pod without a slot. Returns the longest time until the next cycle."""
        self._missed, self._due = False, []
        jobs = (await self._cluster.list(Job)).items
        owned = _by_owner((await self._cluster.list(Pod)).items)
        unsettled = {job.metadata.uid for job in jobs if not await self._settle(job, owned, now)}
        await self._release_orphans(owned, {job.metadata.uid for job in jobs})
        await self._bind(unsettled, now)
        return RETRY if self._missed else min([self._resync, *(due - now for due in self._due)])

    async def _settle(self, job: Job, owned: dict[str, list[Pod]], now: datetime) -> bool:
        """Reconcile one job. False when a write failed; the next cycle tries again."""
        plan = decide(job, owned.get(job.metadata.uid, []), now, self._drawn)
        if plan.due is not None:
            self._due.append(plan.due)
        try:
            await self._carry_out(job, plan)
        except (Conflict, NotFound, AlreadyExists):  # the object changed since the list
            self._missed = True
            return False
        except ClusterError as error:
            if self._trouble.is_new(job.metadata.uid, str(error)):
                log.warning("job.write_failed", job=job.metadata.name, error=str(error), note="tried until it works")
                self._missed = True
            return False
        self._trouble.over(job.metadata.uid)
        return True

    async def _carry_out(self, job: Job, plan: JobPlan) -> None:
        """The status is written last, so what it says is true."""
        for pod in plan.release:
            await self._release(pod)
        for pod in plan.delete:
            await self._delete(pod)
        for pod in plan.create:
            await self._cluster.create(pod)
        change = diff(job.status, plan.status)
        if change:
            meta = job.metadata
            await self._cluster.patch(
                Job, meta.name, {"status": change}, namespace=meta.namespace, subresource="status", uid=meta.uid
            )

    async def _release(self, pod: Pod) -> None:
        """
        Remove the tracking finalizer from *pod*.

        A merge patch alone is not enough: another finalizer may have been added or removed since the read. So the
        patch requires the resourceVersion that was read.
        """
        kept = [name for name in pod.metadata.finalizers if name != FINALIZER_TRACKING]
        meta = pod.metadata
        await self._cluster.patch(
            Pod,
            meta.name,
            {"metadata": {"finalizers": kept or None}},
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
        )

    async def _delete(self, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._cluster.delete(Pod, meta.name, namespace=meta.namespace, uid=meta.uid)
        except NotFound:
            return

    async def _release_orphans(self, owned: dict[str, list[Pod]], alive: Collection[str]) -> None:
        """Remove the tracking finalizer from pods whose Job is gone: no controller counts them any more."""
        orphans = [pod for uid, pods in owned.items() if uid not in alive for pod in pods if is_tracked(pod)]
        for pod in orphans:
            try:
                await self._release(pod)
            except (Conflict, NotFound):
                self._missed = True
            except ClusterError:  # the next cycle tries again
                continue

    async def _bind(self, unsettled: Collection[str], now: datetime) -> None:
        """Bind pods. Pods of a job whose reconcile failed wait: they may be about to be deleted."""
        pods = (await self._cluster.list(Pod)).items
        nodes = (await self._cluster.list(Node)).items
        for decision in decide_bindings(pods, nodes):
            if _owner_uid(decision.pod) in unsettled:
                continue
            try:
                await self._settle_binding(decision, now)
                self._trouble.over(decision.pod.metadata.uid)
            except (Conflict, NotFound):  # the object changed since the list
                self._missed = True
            except ClusterError as error:
                if self._trouble.is_new(decision.pod.metadata.uid, str(error)):
                    log.warning("pod.bind_failed", pod=decision.pod.metadata.name, error=str(error))
                    self._missed = True

    async def _settle_binding(self, decision: Bind | Unschedulable, now: datetime) -> None:
        pod = decision.pod
        if isinstance(decision, Bind):
            await self._patch(pod, {"spec": {"nodeName": decision.node}})
        elif change := diff(pod.status, refused(pod, decision.why, now)):
            log.info("pod.waits", pod=pod.metadata.name, why=decision.why)
            await self._patch(pod, {"status": change}, subresource="status")

    async def _patch(self, pod: Pod, patch: dict[str, Any], subresource: str = "") -> None:
        meta = pod.metadata
        await self._cluster.patch(
            Pod,
            meta.name,
            patch,
            namespace=meta.namespace,
            subresource=subresource,
            uid=meta.uid,
            resource_version=meta.resource_version,
        )


def _by_owner(pods: Sequence[Pod]) -> dict[str, list[Pod]]:
    """Pods by the uid of the Job that controls them."""
    owned: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if uid := _owner_uid(pod):
            owned[uid].append(pod)
    return owned


def _owner_uid(pod: Pod) -> str:
    owners = pod.metadata.owner_references
    return next((owner.uid for owner in owners if owner.controller and owner.kind == "Job"), "")
