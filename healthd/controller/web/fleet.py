"""
The state of the page, kept up to date from the cluster state at the cost of what changed.

It reads the controller's own cache alone: nothing is asked of the API server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from healthd.controller.cache.cluster_state import ClusterState, GangKey, ObjectKey
from healthd.core.api import IncidentRecord, Node, NodeHealth, Recovery
from healthd.core.api.model import ENDED, BreakerTrigger
from healthd.core.config import BreakerPolicy, Config
from healthd.core.recovery.breaker import open_over, outage_of
from healthd.core.recovery.gang import Root
from healthd.core.recovery.recovery_status import gang_text
from healthd.core.recovery.terms import KUBERNETES, Terms
from healthd.core.report.listing.fleet import FleetSummary, summary
from healthd.core.report.page.details import (
    GangDetail,
    NodeDetail,
    NodeObjects,
    RecoveryDetail,
    gang_detail,
    node_detail,
    recovery_detail,
)
from healthd.core.report.page.details import key_of as recovery_key
from healthd.core.report.page.lists import GangEntry, RecoveryEntry, gang_entry, incident_entry, recovery_entry
from healthd.core.report.page.nodes import NodeCell, node_cell
from healthd.core.report.page.state import PageState, Scope, Surroundings
from healthd.telemetry.isolation import Isolation

V = TypeVar("V")

ENDED_SHOWN = 200
"""Recoveries that have ended, of which so many are in the list: the newest. All have a page."""
OLD_AFTER = timedelta(minutes=1)
"""All cells are made anew so often: an agent that is silent changes no object."""
COUNT_EVERY = timedelta(seconds=1)
"""Between two counts of all nodes, for the head. Only where a node has changed."""
JUDGE_EVERY = timedelta(seconds=5)
"""Between two looks at all nodes for what opens the breaker: of 5,000 nodes, 25 ms."""


async def as_it_says_itself(root: Root) -> Root:
    """*root*, where no other object says anything about it."""
    return root


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSource:
    """Where the page's facts come from."""

    name: str
    """Of the cluster or of the run."""
    cluster_state: ClusterState
    config: Config
    terms: Terms = KUBERNETES
    trouble: Callable[[], str | None] = lambda: None
    """Why the cluster state may be out of date; None if it is not."""
    has_alerts: bool = False
    complete: Callable[[Root], Awaitable[Root]] = as_it_says_itself
    """Adds to a root what its other objects say, by what is cached."""


class Fleet:
    """The state of the page. Call `close` when it is not needed any more."""

    def __init__(self, source: FleetSource) -> None:
        self.state = PageState()
        self.around = _nothing_counted(source)
        self.incidents: Iterable[IncidentRecord] = ()
        """The open incidents, as last read."""
        self._source = source
        self._cluster_state = source.cluster_state
        self._changed = source.cluster_state.follow()
        self._changed.update(source.cluster_state.roots)
        self._roots: dict[GangKey, Root] = {}
        """With what their other objects say. Those of the cluster state stay as they were read."""
        self._cells: dict[str, tuple[Node, NodeHealth | None, NodeCell]] = {}
        self._entries: dict[str, tuple[Recovery, RecoveryEntry]] = {}
        self._isolation = Isolation()
        self._made_anew: datetime | None = None
        self._counted_at: datetime | None = None
        self._judged_at: datetime | None = None
        self._has_changed = True
        """Whether a node changed since the nodes were counted."""

    def close(self) -> None:
        """Stop to follow the cluster state."""
        self._cluster_state.unfollow(self._changed)

    async def refresh(self, now: datetime) -> None:
        """Bring `state` and `around` up to date."""
        changed = await self._complete_roots()
        before = self.state
        self.state = PageState(
            nodes=self._nodes(now),
            gangs=self._gangs(changed, now),
            recoveries=self._recoveries(),
            incidents=_same(before.incidents, {each.spec.key: incident_entry(each) for each in self.incidents}),
        )
        self._count(now)

    def namespaces(self) -> set[str]:
        """Every namespace with something to show."""
        gangs = {each.row.namespace for each in self.state.gangs.values()}
        return gangs | {each.row.namespace for each in self.state.recoveries.values()}

    # One object ------------------------------------------------------------------------------------------------------

    def gang(self, namespace: str, name: str, scope: Scope, now: datetime) -> GangDetail | None:
        """The gang *name*, such as `job/llama`; None where there is none that the viewer may see."""
        roots = self._roots.items()
        root = next((each for key, each in roots if (key.namespace, gang_text(each.ref)) == (namespace, name)), None)
        if root is None or not scope.sees(namespace):
            return None
        pods = self._cluster_state.members(root.ref)
        running = (pod.spec.node_name for pod in pods if pod.status.phase == "Running")
        own = self._cluster_state.of_gang(root.ref)
        return gang_detail(root, running, own, self._objects(scope), now)

    def recovery(self, namespace: str, name: str, scope: Scope, now: datetime) -> RecoveryDetail | None:
        """The recovery *name*; None where there is none that the viewer may see."""
        found = self._cluster_state.get(Recovery, ObjectKey(namespace, name))
        if found is None or not scope.sees(namespace):
            return None
        return recovery_detail(found, self._objects(scope), self._source.terms, now)

    def node(self, name: str, scope: Scope, now: datetime) -> NodeDetail | None:
        """The node *name*; None where there is none that the viewer may see."""
        node = self._cluster_state.nodes.get(name)
        if node is None or not scope.nodes:
            return None
        on = [key for key in self._cluster_state.gangs_on(name) if scope.sees(key.namespace)]
        recoveries = (each for each in self._cluster_state.recoveries() if scope.sees(each.metadata.namespace))
        health, label = self._cluster_state.health.get(name), self._source.config.quarantine.domain_label
        return node_detail(node, health, map(_text, on), recoveries, label, now)

    def _objects(self, scope: Scope) -> NodeObjects | None:
        return NodeObjects(self._cluster_state.nodes, self._cluster_state.health) if scope.nodes else None

    # Tables ----------------------------------------------------------------------------------------------------------

    def _nodes(self, now: datetime) -> Mapping[str, NodeCell]:
        if self._made_anew is None or now - self._made_anew >= OLD_AFTER:
            self._made_anew, self._cells = now, {}
            self._changed.update(self._said_by_others())
        known, health = self._cells, self._cluster_state.health
        label = self._source.config.quarantine.domain_label
        for name, node in self._cluster_state.nodes.items():
            report, former = health.get(name), known.get(name)
            if former is None or former[0] is not node or former[1] is not report:
                with self._isolation.of("page", f"Node {name}"):
                    known[name] = (node, report, node_cell(node, report, label, now))
                self._has_changed = True
        for name in [name for name in known if name not in self._cluster_state.nodes]:
            del known[name]
            self._has_changed = True
        if not self._has_changed:
            return self.state.nodes
        return _same(self.state.nodes, {name: cell for name, (_, _, cell) in known.items()})

    async def _complete_roots(self) -> list[GangKey]:
        """Returns the gangs that have changed."""
        changed = list(self._changed)
        self._changed.clear()
        for key in changed:
            root = self._cluster_state.roots.get(key)
            if root is None:
                self._roots.pop(key, None)
                continue
            self._roots[key] = root
            with self._isolation.of("page", f"{key.kind} {key.namespace}/{key.name}"):
                self._roots[key] = await self._source.complete(root)
        return changed

    def _said_by_others(self) -> list[GangKey]:
        """Gangs of which other objects say something. Not every change of such an object marks its gang."""
        return [key for key, root in self._roots.items() if root is not self._cluster_state.roots.get(key)]

    def _gangs(self, changed: Sequence[GangKey], now: datetime) -> Mapping[str, GangEntry]:
        if not changed:
            return self.state.gangs
        entries = dict(self.state.gangs)
        for key in changed:
            root = self._roots.get(key)
            if root is None:
                entries.pop(_text(key), None)
                continue
            with self._isolation.of("page", f"{key.kind} {key.namespace}/{key.name}"):
                pods, own = self._cluster_state.members(root.ref), self._cluster_state.of_gang(root.ref)
                entries[_text(key)] = gang_entry(root, pods, own, now)
        return entries

    def _recoveries(self) -> Mapping[str, RecoveryEntry]:
        entries: dict[str, tuple[Recovery, RecoveryEntry]] = {}
        for each in _shown(self._cluster_state.recoveries()):
            key = recovery_key(each)
            former = self._entries.get(key)
            with self._isolation.of("page", f"Recovery {key}"):
                entries[key] = former if former and former[0] is each else (each, recovery_entry(each))
        self._entries = entries
        return _same(self.state.recoveries, {key: entry for key, (_, entry) in entries.items()})

    def _count(self, now: datetime) -> None:
        trouble = self._source.trouble() or ""
        state = self._cluster_state
        if self._has_changed and _is_due(self._counted_at, COUNT_EVERY, now):
            self._counted_at, self._has_changed = now, False
            self.around = replace(self.around, fleet=summary(state.nodes, state.health, ()))
        if _is_due(self._judged_at, JUDGE_EVERY, now):
            self._judged_at = now
            self.around = replace(self.around, triggers=_triggers(state, self._source.config.breaker, now))
        if self.around.trouble != trouble:
            self.around = replace(self.around, trouble=trouble)


def _shown(recoveries: Iterable[Recovery]) -> list[Recovery]:
    """Those that go on, and the newest of those that have ended."""
    known = list(recoveries)
    over = [each for each in known if each.status.phase in ENDED]
    going_on = [each for each in known if each.status.phase not in ENDED]
    newest = sorted(over, key=lambda each: each.spec.cause.at, reverse=True)
    return [*going_on, *newest[:ENDED_SHOWN]]


def _triggers(state: ClusterState, policy: BreakerPolicy, now: datetime) -> frozenset[BreakerTrigger]:
    outage = outage_of(state.nodes.values(), state.health, now)
    return open_over(state.recoveries(), outage, policy, now)


def _nothing_counted(source: FleetSource) -> Surroundings:
    empty = FleetSummary(nodes=0, quarantined=0, verdicts={}, spares_free=0, spares_in_use=0, gangs={})
    return Surroundings(
        name=source.name,
        terms=source.terms,
        fleet=empty,
        budget=source.config.quarantine.budget,
        has_alerts=source.has_alerts,
    )


def _is_due(last: datetime | None, every: timedelta, now: datetime) -> bool:
    return last is None or now - last >= every


def _same(before: Mapping[str, V], after: dict[str, V]) -> Mapping[str, V]:
    """*before* itself where nothing changed."""
    if len(before) != len(after):
        return after
    for key, each in after.items():
        former = before.get(key)
        if former is not each and former != each:
            return after
    return before


def _text(key: GangKey) -> str:
    return f"{key.namespace}/{key.kind.lower()}/{key.name}"
