"""
Compare the ranks of each gang by what agents publish of their pods and GPUs, and report those that the others wait for.

A report changes nothing: no node is cordoned and no recovery begins. Where the owner of a gang allows it, the
reconciler asks what is slow now, and moves the gang (`core.recovery.planned.slow_nodes`). The record of it is on the
root, so a restarted controller or a new leader reports it no second time. A write has the version of the root that was
read as its precondition: of two controllers one succeeds, and only that one reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
import structlog

from healthd.clock import Clock
from healthd.cluster.port import Cluster, ClusterError, NotFound, Refused
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.fleet.work_requests import WorkRequests
from healthd.core.api import ANNOTATION_STRAGGLERS
from healthd.core.config import HangPolicy
from healthd.core.hang.straggler import ShownBy, Straggler
from healthd.core.hang.work.gang_work import GangWork
from healthd.core.hang.work.gpus.host_bound_nodes import HostBoundNodes
from healthd.core.hang.work.gpus.slow_gpus import SlowGpus
from healthd.core.hang.work.slow_in_pods import SlowInPods
from healthd.core.hang.work.straggler_text import over_of, sentence_of
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.hangs.gang_silence import ranks
from healthd.core.recovery.hangs.gang_stragglers import (
    clocks_of,
    explained,
    gpu_work_of,
    is_compared,
    name_of,
    next_record,
    nodes_of,
    open_stragglers,
    pods_of,
    slow_in_pods_of,
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


Comparison = GangWork | SlowGpus | HostBoundNodes | SlowInPods
C = TypeVar("C", GangWork, SlowGpus, HostBoundNodes, SlowInPods)


@dataclass
class _ComparedGang:
    """What is known of one gang."""

    work: GangWork | None = None
    gpus: SlowGpus | None = None
    nodes: HostBoundNodes | None = None
    in_pods: SlowInPods | None = None
    unwritten: list[Straggler] = field(default_factory=list)
    """Changes whose record is not written yet."""
    refused: set[tuple[str, str, datetime]] = field(default_factory=set)
    """Those that were reported, and whose record was refused."""

    @property
    def comparisons(self) -> list[Comparison]:
        """By its work, by the clocks and the use of its GPUs, and by ranks and GPUs within its pods."""
        return [each for each in (self.work, self.gpus, self.nodes, self.in_pods) if each is not None]

    def adopt(self, straggler: Straggler) -> None:
        """What is known of one that begins, or was reported by another controller."""
        found: Comparison | None = {
            ShownBy.WORK: self.work,
            ShownBy.CLOCK: self.gpus,
            ShownBy.HOST_BOUND: self.nodes,
            ShownBy.AGENT: self.in_pods,
        }[straggler.shown_by]
        if found is not None:
            found.adopt(straggler)

    def restart(self) -> None:
        """The pods were stopped."""
        self.work = self.gpus = self.nodes = self.in_pods = None


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
        self._gangs: dict[str, _ComparedGang] = {}
        """By uid of the root."""

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
        self._gangs = {root.ref.uid: self._gangs.get(root.ref.uid) or _ComparedGang() for root in roots}
        await self._compare(roots)
        self._has_compared = True

    async def _compare(self, roots: Sequence[Root]) -> None:
        self._requests.begin_pass()
        for number, root in enumerate(roots, start=1):
            known = self._gangs[root.ref.uid]
            unwritten, known.unwritten = known.unwritten, []
            if changes := unwritten + self._changes(root, known, self._clock.now()):
                await self._record(root, changes)
            await self._ask(root)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _ask(self, root: Root) -> None:
        """Ask agents for the newest minutes of this gang, where one of its ranks may be slow."""
        work, now = self._gangs[root.ref.uid].work, self._clock.now()
        if work is not None and (asked := work.to_ask(now)):
            nodes = nodes_of(asked, self._cluster_state.view(root.ref))
            await self._requests.ask(nodes, max(asked.values()))

    def _watched(self) -> list[Root]:
        """The gangs of which more will be known soon."""
        now = self._clock.now()
        watched = {uid for uid, known in self._gangs.items() if known.work is not None and known.work.is_watched(now)}
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
        found = [each.present for each in self._comparisons(root)]
        return list({(each.pod, each.rank, each.pid, each.gpu): each for mine in found for each in mine}.values())

    def slow_now(self, root: Root) -> Sequence[Straggler]:
        """
        The slow ranks of a gang, where the newest that agents publish shows each of them to be slow; else none. A
        record alone shows nothing: its owner can write it, and a new leader has not looked yet.
        """
        known = self._gangs.get(root.ref.uid)
        if not is_compared(root, self._policy) or known is None or known.unwritten:
            return ()
        now = self._clock.now()
        present = [each for each in (known.work, known.gpus) if each is not None and each.present]
        shown = [each.slow_now(now) for each in present]
        return [straggler for each in shown for straggler in each] if all(shown) else ()

    def _comparisons(self, root: Root) -> Sequence[Comparison]:
        known = self._gangs.get(root.ref.uid)
        return known.comparisons if known is not None else ()

    def _rows(self) -> Iterable[SlowRank]:
        for root in self._cluster_state.roots.values():
            for each in self.present(root):
                yield SlowRank(root.ref.namespace, root.ref.name, each.rank, each.node, each.since)

    def _changes(self, root: Root, known: _ComparedGang, now: datetime) -> list[Straggler]:
        """What began or ended. Where too little is known of the gang, nothing does."""
        view = self._cluster_state.view(root.ref)
        if over := stopped(view, now):
            known.restart()
            return [each for each in over if each.identity not in known.refused]
        changes = _changes_of_work(root, known, view, now)
        changes += _changes_of_clocks(root, known, view, now)
        changes += _changes_of_nodes(root, known, view, now)
        changes += _changes_in_pods(root, known, view, now)
        return [each if each.ended_at else self._adopted(each, known, view, root) for each in changes]

    def _adopted(self, straggler: Straggler, known: _ComparedGang, view: GangView, root: Root) -> Straggler:
        """One that begins, with all that is known of it."""
        with_reason = explained(straggler, view)
        if not straggler.is_only_reported:
            with_reason = with_history(with_reason, root, self._cluster_state.of_gang(root.ref), self._policy)
        known.adopt(with_reason)
        return with_reason

    async def _record(self, root: Root, changes: list[Straggler]) -> None:
        """Record *changes* and report them. Where another write came first, both wait for the next comparison."""
        try:
            await self._store(root, changes)
        except Refused as error:  # such as an older admission policy
            name, space = root.ref.name, root.ref.namespace
            log.warning("gang.stragglers_not_stored", gang=name, namespace=space, error=str(error))
            self._gangs[root.ref.uid].refused.update(each.identity for each in changes)
        except ClusterError as error:
            log.info("stragglers.retry", gang=root.ref.name, namespace=root.ref.namespace, error=str(error))
            self._gangs[root.ref.uid].unwritten = changes
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
        message = over_of(straggler, straggler.ended_at)
        log.info("gang.straggler_over", **names, how=message)
        self._announce(about, NORMAL, "GangStragglerOver", message)


def _changes_of_work(root: Root, known: _ComparedGang, view: GangView, now: datetime) -> list[Straggler]:
    work = work_of(view, now)
    if work is None:
        return []
    if known.work is None or not known.work.is_of(work) or known.work.is_ahead(now):
        known.work = _resumed(GangWork(work), root, now, lambda each: each.shown_by is ShownBy.WORK)
    return known.work.observe(work, now)


def _changes_of_clocks(root: Root, known: _ComparedGang, view: GangView, now: datetime) -> list[Straggler]:
    clocks = clocks_of(view, now)
    if not clocks:
        return []
    if known.gpus is None or known.gpus.pods != pods_of(view):
        names = {name_of(pod, root) for pod in ranks(view)}
        known.gpus = _resumed(
            SlowGpus(pods_of(view)), root, now, lambda each: each.shown_by is ShownBy.CLOCK and each.rank in names
        )
    return known.gpus.observe(clocks, now)


def _changes_of_nodes(root: Root, known: _ComparedGang, view: GangView, now: datetime) -> list[Straggler]:
    gpus = gpu_work_of(view, now)
    if gpus is None:
        return []
    if known.nodes is None or not known.nodes.is_of(gpus) or known.nodes.is_ahead(now):
        known.nodes = _resumed(
            HostBoundNodes(gpus), root, now, lambda each: each.shown_by is ShownBy.HOST_BOUND and each.rank in gpus
        )
    return known.nodes.observe(gpus, now)


def _changes_in_pods(root: Root, known: _ComparedGang, view: GangView, now: datetime) -> list[Straggler]:
    published = slow_in_pods_of(view, now)
    if not published:
        return []
    if known.in_pods is None or known.in_pods.pods != pods_of(view):
        names = {pod.metadata.name for pod in ranks(view)}
        known.in_pods = _resumed(
            SlowInPods(pods_of(view)), root, now, lambda each: each.shown_by is ShownBy.AGENT and each.pod in names
        )
    slow = {each.pod for comparison in (known.work, known.nodes) if comparison for each in comparison.present}
    return known.in_pods.observe(published, now, slow=slow)


def _resumed(comparison: C, root: Root, now: datetime, is_its: Callable[[Straggler], bool]) -> C:
    """
    *comparison* with those on record that are its own: another controller may have reported them. The owner of a gang
    can write its record, with ranks and pods that there are not.
    """
    for each in filter(is_its, open_stragglers(root, now)):
        comparison.adopt(each)
    return comparison
