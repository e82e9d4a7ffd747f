"""
Leader election with a Lease: work runs only while this process holds the Lease.

A candidate takes a Lease that has no holder, or one that did not change for the lease duration that its holder set. The
candidate uses its own clock for this: the times in the Lease come from another machine, and are for people. A leader
that cannot renew in time ends its work before another can begin. A process that was paused learns late that it was
deposed: its late writes are stopped by their preconditions, never by the Lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar

import structlog

from healthd.clock import Clock
from healthd.cluster.informer import Informer, Watched
from healthd.cluster.port import AlreadyExists, Cluster, ClusterError, Conflict, NotFound, Unusable
from healthd.cluster.waiting import first, within
from healthd.core.api import Lease, LeaseSpec, ObjectMeta

log = structlog.get_logger(__name__)

A = TypeVar("A")

_RETRY = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidacy:
    """One candidate for one Lease. The defaults are those of the Kubernetes control plane."""

    identity: str
    """Unique for each process: two processes with the same identity would both lead."""
    name: str
    namespace: str
    lasts: timedelta = timedelta(seconds=15)
    """After so long without a renewal by the leader, another candidate may take over."""
    renew_within: timedelta = timedelta(seconds=10)
    """A leader that cannot renew for so long gives up; *lasts* is longer by the time that its work needs to end."""
    renew_every: timedelta = timedelta(seconds=2)

    @classmethod
    def lasting(cls, lasts: timedelta, *, identity: str, name: str, namespace: str) -> Candidacy:
        """A candidate with a lease duration of *lasts*; all other times in the proportion of the defaults."""
        return cls(
            identity=identity,
            name=name,
            namespace=namespace,
            lasts=lasts,
            renew_within=lasts * 2 / 3,
            renew_every=lasts * 2 / 15,
        )


class Deposed(Exception):
    """The work was ended, because the Lease is no longer ours or could not be renewed in time."""


async def lead(cluster: Cluster, clock: Clock, candidacy: Candidacy, work: Callable[[], Coroutine[Any, Any, A]]) -> A:
    """
    Wait until this process leads, run *work*, and return its result.

    The Lease is released when the work has ended, so that a standby takes over at once. Raises Deposed.
    """
    lease = _HeldLease(cluster, clock, candidacy)
    await lease.win()
    log.info("leader.elected", identity=candidacy.identity, lease=candidacy.name)
    working, holding = asyncio.create_task(work()), asyncio.create_task(lease.hold())
    try:
        await asyncio.wait((working, holding), return_when=asyncio.FIRST_COMPLETED)
        return holding.result() if holding.done() else working.result()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
        await lease.give_back()


class _HeldLease:
    """The Lease as one candidate sees it."""

    def __init__(self, cluster: Cluster, clock: Clock, candidacy: Candidacy) -> None:
        self._cluster = cluster
        self._clock = clock
        self._me = candidacy
        self._seen = ""
        """The version of the Lease that was seen last, and since when."""
        self._seen_at = clock.now()
        self._not_elected = ""
        """Why the Lease could not be taken, as was logged."""
        self._version = ""
        """The resource version of our last write of the Lease."""
        self._until = clock.now()
        """The Lease is ours until then, even if no renewal succeeds."""

    async def win(self) -> None:
        """Return when the Lease is ours."""
        fields = {"metadata.name": self._me.name}
        informer = Informer(
            self._cluster, self._clock, [Watched(kind=Lease, namespace=self._me.namespace, fields=fields)]
        )
        wake = asyncio.Event()
        informer.listen(lambda _: wake.set())
        watching = asyncio.create_task(informer.run())
        try:
            await first(informer.until_synced(), asyncio.wait((watching,)))
            while (wait := await self._try(informer)) is not None:
                await first(wake.wait(), self._clock.sleep(wait))
                wake.clear()
                if watching.done():
                    watching.result()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _try(self, informer: Informer) -> timedelta | None:
        """Take the Lease if it is free. None: it is ours now; else how long to wait at most."""
        began = self._clock.now()
        try:
            try:
                seen = await informer.get(Lease, self._me.name, self._me.namespace)
            except NotFound:
                taken = await within(self._clock, self._patience, self._cluster.create(self._new(began)))
            else:
                if (wait := self._free_in(seen, began)) > timedelta(0):
                    return wait
                taken = await within(self._clock, self._patience, self._take(seen, began))
        except Unusable:
            raise
        except (AlreadyExists, Conflict) as error:  # another was faster
            log.debug("leader.not_yet", error=str(error))
            return _RETRY
        except (ClusterError, TimeoutError) as error:
            self._report_not_elected(str(error) or "no answer in time")
            return _RETRY
        self._is_ours(taken, began)
        return None

    def _report_not_elected(self, error: str) -> None:
        """Log it once: where no candidate may write the Lease, nothing else says why none leads."""
        if error != self._not_elected:
            log.warning("leader.not_elected", lease=self._me.name, namespace=self._me.namespace, error=error)
        self._not_elected = error

    async def hold(self) -> NoReturn:
        """Renew the Lease for as long as possible. Raises Deposed."""
        while True:
            left = self._until - self._clock.now()
            if left <= timedelta(0):
                raise Deposed(
                    f"lease {self._me.name} could not be renewed for {self._me.renew_within.total_seconds():g} s"
                )
            await self._clock.sleep(min(self._me.renew_every, left))
            began = self._clock.now()
            if began < self._until:
                await self._renew(began)

    async def _renew(self, began: datetime) -> None:
        patch = {"spec": {"renewTime": began}}
        try:
            lease = await within(self._clock, self._left(began), self._patched(patch, self._version))
            self._is_ours(lease, began)
        except Conflict:
            await self._read_holder()
        except NotFound:
            raise Deposed(f"lease {self._me.name} was deleted") from None
        except Unusable:
            raise
        except (ClusterError, TimeoutError) as error:
            log.warning("leader.not_renewed", lease=self._me.name, error=str(error))

    async def _read_holder(self) -> None:
        """The Lease was changed by another, or by our own write whose answer was lost. Raises Deposed."""
        try:
            lease = await within(self._clock, self._left(self._clock.now()), self._read())
        except (ClusterError, TimeoutError) as error:
            log.warning("leader.not_renewed", lease=self._me.name, error=str(error))
            return
        if lease.spec.holder_identity != self._me.identity:
            raise Deposed(f"{lease.spec.holder_identity or 'no one'} holds lease {self._me.name} now")
        self._version = lease.metadata.resource_version

    async def give_back(self) -> None:
        """Release the Lease so that a standby takes over now, if it is still ours and the API server answers."""
        try:
            lease = await within(self._clock, self._patience, self._read())
            if lease.spec.holder_identity == self._me.identity:
                patch = {"spec": {"holderIdentity": None, "renewTime": self._clock.now()}}
                await within(self._clock, self._patience, self._patched(patch, lease.metadata.resource_version))
        except (ClusterError, TimeoutError) as error:
            log.info("leader.release_failed", lease=self._me.name, error=str(error))

    def _free_in(self, lease: Lease, now: datetime) -> timedelta:
        """How long the Lease must still stay unchanged before it may be taken."""
        if lease.metadata.resource_version != self._seen:
            self._seen, self._seen_at = lease.metadata.resource_version, now
        if lease.spec.holder_identity in ("", self._me.identity):
            return timedelta(0)
        promised = lease.spec.lease_duration_seconds
        lasts = timedelta(seconds=promised) if promised else self._me.lasts
        return self._seen_at + lasts - now

    async def _take(self, seen: Lease, now: datetime) -> Lease:
        spec = {
            "holderIdentity": self._me.identity,
            "leaseDurationSeconds": self._lasts_seconds(),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": seen.spec.lease_transitions + 1,
        }
        return await self._patched({"spec": spec}, seen.metadata.resource_version)

    def _new(self, now: datetime) -> Lease:
        return Lease(
            metadata=ObjectMeta(name=self._me.name, namespace=self._me.namespace),
            spec=LeaseSpec(
                holder_identity=self._me.identity,
                lease_duration_seconds=self._lasts_seconds(),
                acquire_time=now,
                renew_time=now,
            ),
        )

    def _lasts_seconds(self) -> int:
        return max(1, round(self._me.lasts.total_seconds()))

    def _is_ours(self, lease: Lease, since: datetime) -> None:
        """Our time counts from before the request; a candidate that reads the Lease counts from later."""
        self._version = lease.metadata.resource_version
        self._until = since + self._me.renew_within

    async def _patched(self, patch: dict[str, Any], version: str) -> Lease:
        return await self._cluster.patch(
            Lease, self._me.name, patch, namespace=self._me.namespace, resource_version=version
        )

    async def _read(self) -> Lease:
        return await self._cluster.get(Lease, self._me.name, self._me.namespace)

    def _left(self, now: datetime) -> timedelta:
        """Time limit for one request of a leader: no request may last longer than the Lease."""
        return min(self._patience, self._until - now)

    @property
    def _patience(self) -> timedelta:
        """Time limit for one request: it must leave time for another try."""
        return self._me.renew_within / 2
