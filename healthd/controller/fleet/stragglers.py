"""
Compare the ranks of each gang by what agents publish of their pods and GPUs, and report those that the others wait for.

A report changes nothing: no node is cordoned and no recovery begins. Where the owner of a gang allows it, the
reconciler asks what is slow now, and moves the gang (`core.recovery.planned.slow_nodes`). The record of it is on the
root, so a restarted controller or a new leader reports it no second time. A write has the version of the root that was
read as its precondition: of two controllers one succeeds, and only that one reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec
import structlog

from healthd.clock import Clock
from healthd.cluster.port import Cluster, ClusterError, NotFound, Refused
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.fleet.work_requests import WorkRequests
from healthd.core.api import ANNOTATION_STRAGGLERS
from healthd.core.config import HangPolicy
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.gang_work import GangWork
from healthd.core.hang.work.slow_gpus import SlowGpus
from healthd.core.hang.work.straggler_text import minutes, sentence_of
from healthd.core.printable import printable
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.hangs.gang_silence import ranks
from healthd.core.recovery.hangs.gang_stragglers import (
    clocks_of,
    explained,
    is_compared,
    name_of,
    next_record,
    nodes_of,
    open_stragglers,
    pods_of,
    stopped,
    work_of,
)
from healthd.core.recovery.planned.slow_nodes import with_history
from healthd.gangs.adapter import GangAdapter
from healthd.telemetry.events import NORMAL, WARNING, Announce, about_gang, silently
from healthd.telemetry.metrics import Metrics, SlowRank

log = structlog.get_logger()

EVERY = timedelta(seconds=15)
WATCHED_EVERY = timedelta(seconds=2)
"""The same of gangs of which a rank may be slow: agents are asked, and the answer decides."""
AT_ONCE = 50
"""Gangs that are compared in one go."""


class Stragglers:
    """Compares the gangs of *cluster_state*. It pauses while *trouble* gives a reason not to trust the cache."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        cluster_state: ClusterState,
        adapters: Mapping[str, GangAdapter[Any]],
        policy: HangPolicy,
        metrics: Metrics,
        announce: Announce = silently,
        trouble: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._cluster_state = cluster_state
        self._adapters = adapters
        self._policy = policy
        self._metrics = metrics
        self._announce = announce
        self._trouble = trouble
        self._requests = WorkRequests(cluster, cluster_state)
        self._has_compared = False
        self._gangs: dict[str, GangWork] = {}
        """By uid of the root."""
        self._gpus: dict[str, SlowGpus] = {}
        """By uid of the root."""
        self._unwritten: dict[str, list[Straggler]] = {}
        """By uid of the root: changes whose record is not written yet."""
        self._refused: dict[str, set[tuple[str, datetime]]] = {}
        """By uid of the root: rank and begin of those that were reported, and whose record was refused."""

    async def run(self) -> None:
        """Run until cancelled."""
        compared_at = self._clock.now()
        while True:
            watched = self._watched()
            await self._clock.sleep(WATCHED_EVERY if watched else EVERY)
            if self._trouble():
                continue
            try:
                since = self._clock.now() - compared_at  # below 0: the clock was set back
                if watched and timedelta(0) <= since < EVERY:
                    await self._compare(watched)
                else:
                    compared_at = self._clock.now()
                    await self.compare()
                self.show()
            except Exception as error:  # a failed report must not stop the recoveries
                log.exception("stragglers.failed", error=str(error))

    async def compare(self) -> None:
        """Compare all gangs, and report what changed. Other tasks have their turn meanwhile."""
        roots = [root for root in self._cluster_state.roots.values() if is_compared(root, self._policy)]
        uids = {root.ref.uid for root in roots}
        self._gangs = {uid: gang for uid, gang in self._gangs.items() if uid in uids}
        self._gpus = {uid: gpus for uid, gpus in self._gpus.items() if uid in uids}
        self._unwritten = {uid: changes for uid, changes in self._unwritten.items() if uid in uids}
        self._refused = {uid: known for uid, known in self._refused.items() if uid in uids}
        await self._compare(roots)
        self._has_compared = True

    async def _compare(self, roots: Sequence[Root]) -> None:
        self._requests.begin_pass()
        for number, root in enumerate(roots, start=1):
            changes = self._unwritten.pop(root.ref.uid, []) + self._changes(root, self._clock.now())
            if changes:
                await self._record(root, changes)
            await self._ask(root)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _ask(self, root: Root) -> None:
        """Ask agents for the newest minutes of this gang, where one of its ranks may be slow."""
        gang, now = self._gangs.get(root.ref.uid), self._clock.now()
        if gang is not None and (asked := gang.to_ask(now)):
            nodes = nodes_of(asked, self._cluster_state.view(root.ref))
            await self._requests.ask(nodes, max(asked.values()))

    def _watched(self) -> list[Root]:
        """The gangs of which more will be known soon."""
        watched = {uid for uid, gang in self._gangs.items() if gang.is_watched(self._clock.now())}
        return [root for root in self._cluster_state.roots.values() if root.ref.uid in watched] if watched else []

    def show(self) -> None:
        """Set the gauge of slow ranks."""
        self._metrics.show_stragglers(self._rows())

    def present(self, root: Root) -> Sequence[Straggler]:
        """The ranks of a gang that are slow now, by what agents publish: its owner can change the record."""
        if not is_compared(root, self._policy):
            return ()
        if not self._has_compared:
            return open_stragglers(root, self._clock.now())  # a new leader ends no alert before it has looked
        found = [each.present for each in self._detectors(root)]
        return list({straggler.rank: straggler for each in found for straggler in each}.values())

    def slow_now(self, root: Root) -> Sequence[Straggler]:
        """
        The slow ranks of a gang, where the newest that agents publish shows each of them to be slow; else none. A
        record alone shows nothing: its owner can write it, and a new leader has not looked yet.
        """
        if not is_compared(root, self._policy) or root.ref.uid in self._unwritten:
            return ()
        now = self._clock.now()
        present = [each for each in self._detectors(root) if each.present]
        shown = [each.slow_now(now) for each in present]
        return [straggler for each in shown for straggler in each] if all(shown) else ()

    def _detectors(self, root: Root) -> Iterator[GangWork | SlowGpus]:
        """What compares this gang, by its work and by the clocks of its GPUs."""
        if gang := self._gangs.get(root.ref.uid):
            yield gang
        if gpus := self._gpus.get(root.ref.uid):
            yield gpus

    def _rows(self) -> Iterable[SlowRank]:
        for root in self._cluster_state.roots.values():
            for each in self.present(root):
                yield SlowRank(root.ref.namespace, root.ref.name, each.rank, each.node, each.since)

    def _changes(self, root: Root, now: datetime) -> list[Straggler]:
        """What began or ended. Where too little is known of the gang, nothing does."""
        uid, view = root.ref.uid, self._cluster_state.view(root.ref)
        if over := stopped(view, now):
            self._gangs.pop(uid, None)
            self._gpus.pop(uid, None)
            return [each for each in over if (each.rank, each.since) not in self._refused.get(uid, ())]
        changes = self._changes_of_work(root, view, now) + self._changes_of_clocks(root, view, now)
        return [each if each.ended_at else self._adopted(each, view, root) for each in changes]

    def _changes_of_work(self, root: Root, view: GangView, now: datetime) -> list[Straggler]:
        work = work_of(view, now)
        if work is None:
            return []
        gang = self._gangs.get(root.ref.uid)
        if gang is None or not gang.is_of(work) or gang.is_ahead(now):
            gang = self._gangs[root.ref.uid] = GangWork(work)
            for each in open_stragglers(root, now):
                if not each.gpu:
                    gang.adopt(each)
        return gang.observe(work, now)

    def _changes_of_clocks(self, root: Root, view: GangView, now: datetime) -> list[Straggler]:
        clocks = clocks_of(view, now)
        if not clocks:
            return []
        gpus = self._gpus.get(root.ref.uid)
        if gpus is None or gpus.pods != pods_of(view):
            gpus = self._gpus[root.ref.uid] = SlowGpus(pods_of(view))
            names = {name_of(pod, root) for pod in ranks(view)}
            for each in open_stragglers(root, now):
                if each.gpu and each.rank in names:  # the owner of a gang can write its record
                    gpus.adopt(each)
        return gpus.observe(clocks, now)

    def _adopted(self, straggler: Straggler, view: GangView, root: Root) -> Straggler:
        """One that begins, with all that is known of it."""
        known = self._explained(straggler, view, root)
        (self._gpus if straggler.gpu else self._gangs)[root.ref.uid].adopt(known)
        return known

    def _explained(self, straggler: Straggler, view: GangView, root: Root) -> Straggler:
        return with_history(explained(straggler, view), root, self._cluster_state.of_gang(root.ref), self._policy)

    async def _record(self, root: Root, changes: list[Straggler]) -> None:
        """Record *changes* and report them. Where another write came first, both wait for the next comparison."""
        try:
            await self._store(root, changes)
        except Refused as error:  # such as an older admission policy
            name, space = root.ref.name, root.ref.namespace
            log.warning("gang.stragglers_not_stored", gang=name, namespace=space, error=str(error))
            self._refused.setdefault(root.ref.uid, set()).update((each.rank, each.since) for each in changes)
        except ClusterError as error:
            log.info("stragglers.retry", gang=root.ref.name, namespace=root.ref.namespace, error=str(error))
            self._unwritten[root.ref.uid] = changes
            return
        for each in changes:
            self._report(root, each)

    async def _store(self, root: Root, changes: Sequence[Straggler]) -> None:
        """Raises ClusterError."""
        record = next_record(root, changes)
        if record is None:
            return
        notes = {ANNOTATION_STRAGGLERS: msgspec.json.encode(record).decode()}
        with suppress(NotFound):
            await self._adapters[root.ref.kind].patch(self._cluster, root, {"metadata": {"annotations": notes}})

    def _report(self, root: Root, straggler: Straggler) -> None:
        about = about_gang(root.ref, self._adapters[root.ref.kind].kind)
        names = {"gang": root.ref.name, "namespace": root.ref.namespace, "rank": straggler.rank}
        if straggler.ended_at is None:
            message = sentence_of(straggler)
            log.warning("gang.straggler", **names, node=straggler.node, why=message)
            self._announce(about, WARNING, "GangStraggler", message)
            return
        how = "was stopped with the others" if straggler.was_stopped else "keeps up with the others again"
        how = "was slow until its gang hung" if straggler.hung else how
        message = f"rank {printable(straggler.rank)} {how}, after {minutes(straggler.since, straggler.ended_at)}"
        log.info("gang.straggler_over", **names, how=message)
        self._announce(about, NORMAL, "GangStragglerOver", message)
