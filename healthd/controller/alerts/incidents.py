"""
Alert people: what the cluster's objects show becomes incidents, and incidents become messages to alert services.

A loop of its own beside the recoveries. It only reads what they show, so nothing that happens here (a service that
hangs, a record that cannot be stored) holds one up. `core.alerts` decides; here is the I/O.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from healthd.alerts.sink import Answer, Sink
from healthd.clock import Clock
from healthd.cluster.port import Cluster, ClusterError, Forbidden, NotFound, Unusable
from healthd.cluster.waiting import first, within
from healthd.controller.alerts.cluster_name import cluster_name
from healthd.controller.alerts.sender import Sender
from healthd.controller.alerts.store import Entry, IncidentStore
from healthd.controller.cache.cluster_state import ClusterState
from healthd.core.alerts.advice import IN_CLUSTER, Advice
from healthd.core.alerts.agents import agent_problems
from healthd.core.alerts.delivery import is_settled
from healthd.core.alerts.gangs import Gangs, may_matter, newest_given_up, problem_of
from healthd.core.alerts.grouping import Tracked
from healthd.core.alerts.hangs import hang_problems, hanging
from healthd.core.alerts.incidents import incidents_now
from healthd.core.alerts.nodes import node_problems
from healthd.core.alerts.problem import Problem
from healthd.core.alerts.stragglers import straggler_problems
from healthd.core.alerts.wording import Context
from healthd.core.api import Recovery
from healthd.core.api.incidents import Severity
from healthd.core.api.model import ENDED
from healthd.core.backoff import Jitter, no_jitter
from healthd.core.config import AlertsPolicy, HangPolicy, QuarantinePolicy
from healthd.core.hang.straggler import Straggler
from healthd.core.recovery.gang import Root
from healthd.telemetry.events import Announce, silently
from healthd.telemetry.isolation import Isolation
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger()

GAP = timedelta(milliseconds=200)
"""Between two looks: changes that come close together are one."""
LEISURE = 4
"""The loop rests for so many times as long as a look took: it has a fifth of a core at most."""
EVERY = timedelta(seconds=5)
"""A look without a change: time alone opens notices and lets texts settle."""
AGENTS_EVERY = timedelta(seconds=30)
"""Between two looks at all nodes for agents that are missing or blind."""
TEXT_FOR = timedelta(seconds=30)
"""The text of a recovery that did not change is made anew after this: its nodes may have changed."""
AT_ONCE = 50
"""Texts that are made in one go: some milliseconds."""
CLEAN_EVERY = timedelta(minutes=10)
RETRY = timedelta(seconds=1)


def none_known(root: Root) -> Sequence[Straggler]:  # noqa: ARG001 - as `Stragglers.present`
    """Where ranks are compared elsewhere, or not at all."""
    return ()


class _Text(NamedTuple):
    version: str
    at: datetime
    problems: list[Problem]


class Alerts:
    """
    The incidents of one leader, over *sinks*, which are those of `policy.sinks`. It pauses while *trouble* gives a
    reason not to trust the cache; what is due is sent all the same. *wake* is set after each change of the cluster
    state.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        cluster_state: ClusterState,
        sinks: Sequence[Sink],
        policy: AlertsPolicy,
        quarantine: QuarantinePolicy,
        *,
        namespace: str,
        metrics: Metrics,
        wake: asyncio.Event,
        announce: Announce = silently,
        trouble: Callable[[], str | None] = lambda: None,
        jitter: Jitter = no_jitter,
        advice: Advice = IN_CLUSTER,
        has_agents: bool = True,
        hang: HangPolicy | None = None,
        stragglers: Callable[[Root], Sequence[Straggler]] = none_known,
    ) -> None:
        """
        *has_agents*: nodes have agents of their own, which may be dead or blind. *hang*: what is done about gangs that
        hang by the reports of agents; None: hangs are reported elsewhere. *stragglers*: the slow ranks of a gang.
        """
        self._stragglers = stragglers
        self._hang = hang
        self._advice = advice
        self._has_agents = has_agents
        self._cluster = cluster
        self._clock = clock
        self._cluster_state = cluster_state
        self._policy = policy
        self._quarantine = quarantine
        self._metrics = metrics
        self._wake = wake
        self._trouble = trouble
        self._isolation = Isolation(metrics)
        self._store = IncidentStore(cluster, clock, namespace)
        routes = {sink.name: sink for sink in policy.sinks}
        self._senders = [
            Sender(sink, routes[sink.name], policy, self._store, clock, metrics, announce, jitter)
            for sink in sinks
            if sink.name in routes
        ]
        metrics.start_alerts_at_zero((each.name for each in self._senders), Answer, Severity)
        self._name = ""
        """Of the cluster."""
        self._texts: dict[str, _Text] = {}
        self._of_agents: list[Problem] = []
        self._agents_at: datetime | None = None
        self._cleaned_at: datetime | None = None
        self._looked: datetime | None = None
        """When the last look began that was completed."""

    async def run(self) -> None:
        """Run until cancelled. Raises Unusable."""
        await self._load()
        self._name = await cluster_name(self._cluster, self._clock, self._policy)
        async with asyncio.TaskGroup() as group:
            for sender in self._senders:
                sender.begin()
                group.create_task(sender.run(), name=f"alerts {sender.name}")
            group.create_task(self._watch(), name="incidents")

    async def _load(self) -> None:
        """Read the stored incidents. Without their kind or the right to it nothing is remembered over a crash."""
        while True:
            try:
                await self._store.load()
            except (NotFound, Forbidden) as error:
                log.error("incidents.not_stored", error=str(error), note="apply the definitions and rights of deploy/")
            except Unusable:
                raise
            except ClusterError as error:
                log.warning("incidents.not_read", error=str(error))
                await self._clock.sleep(RETRY)
                continue
            return

    async def _watch(self) -> None:
        while True:
            self._wake.clear()
            began = self._clock.now()
            try:
                if not self._trouble():
                    await self.look(began)
            except Unusable:
                raise
            except Exception as error:  # a loop that has ended would alert no one
                log.exception("alerts.failed", error=str(error))
            await self._clock.sleep(max(GAP, min(EVERY, LEISURE * (self._clock.now() - began))))
            await first(self._wake.wait(), self._clock.sleep(EVERY))

    async def look(self, now: datetime) -> None:
        """Compare what the cluster state shows with the stored incidents, and store what changed."""
        problems = await self._problems(now)
        known = {key: entry.tracked for key, entry in self._store.entries.items()}
        label = self._quarantine.domain_label
        nodes = self._cluster_state.nodes
        context = Context(
            policy=self._policy, nodes=nodes, domain_label=label, now=now, cluster=self._name, advice=self._advice
        )
        changed = incidents_now(problems, known, context)
        entries = [self._take(each) for each in sorted(changed, key=_pages_first)]
        keys = {entry.key for entry in entries}
        late = [entry for entry in self._store.unsaved() if entry.key not in keys]
        await self._store.save_all([*entries, *late], self._offer)
        await self._clean(now)
        self._measure(now)
        self._metrics.loop_succeeded("alerts", now)
        self._looked = now

    async def finish(self, limit: timedelta) -> int:
        """
        Before the end of the process: look once more, and wait until every service has what it is to get, for *limit*
        at most. Returns how many messages still wait; the next leader sends them.
        """
        with suppress(TimeoutError):
            await within(self._clock, limit, self._caught_up(self._clock.now()))
        return sum(sender.waiting(self._clock.now()) for sender in self._senders)

    async def _caught_up(self, asked: datetime) -> None:
        while self._looked is None or self._looked < asked or any(each.waiting(asked) for each in self._senders):
            self._wake.set()
            await self._clock.sleep(GAP / 2)

    def _take(self, tracked: Tracked) -> Entry:
        incident, before = tracked.incident, self._store.entries.get(tracked.incident.key)
        if before is None:
            self._metrics.incidents_opened.labels(incident.severity.value).inc()
        if before is None or before.tracked.incident.revision != incident.revision:
            log.info(
                "incident.resolved" if incident.resolved else "incident.updated" if before else "incident.opened",
                incident=incident.key,
                revision=incident.revision,
                severity=incident.severity.value,
                title=incident.title,
            )
        return self._store.take(tracked)

    # Problems ---------------------------------------------------------------------------------------------------------

    async def _problems(self, now: datetime) -> list[Problem]:
        state = self._cluster_state
        recoveries = list(state.recoveries())
        problems = await self._problems_of_gangs(recoveries, now)
        with self._isolation.of("alerts", "nodes"):
            problems += node_problems(
                state.nodes,
                state.health,
                state.quarantined_nodes,
                recoveries,
                self._quarantine,
                self._policy,
                now,
                self._advice,
            )
        if self._has_agents and (self._agents_at is None or now - self._agents_at >= AGENTS_EVERY):
            with self._isolation.of("alerts", "agents"):
                self._of_agents = agent_problems(state.nodes, state.health, self._policy, now)
            self._agents_at = now
        with self._isolation.of("alerts", "hangs"):
            problems += self._problems_of_hangs(now)
        with self._isolation.of("alerts", "stragglers"):
            problems += straggler_problems(state.roots.values(), self._stragglers, self._advice)
        return problems + self._of_agents

    def _problems_of_hangs(self, now: datetime) -> list[Problem]:
        if self._hang is None:
            return []
        state = self._cluster_state
        roots = [root for root in hanging(state.roots.values(), self._hang, now) if state.active(root.ref) is None]
        return list(hang_problems(roots, state.view, self._hang, self._advice, now))

    async def _problems_of_gangs(self, recoveries: Sequence[Recovery], now: datetime) -> list[Problem]:
        state = self._cluster_state
        seen = Gangs(nodes=state.nodes, health=state.health, root=state.root, advice=self._advice)
        newest = newest_given_up(recoveries)
        before, self._texts, made = self._texts, dict[str, _Text](), 0
        problems: list[Problem] = []
        for recovery in (each for each in recoveries if may_matter(each, now)):
            with self._isolation.of("alerts", recovery):
                uid, version = recovery.metadata.uid, recovery.metadata.resource_version
                text = before.get(uid)
                if text is None or text.version != version or now - text.at >= TEXT_FOR:
                    is_newest = newest.get(recovery.spec.gang.uid) is recovery
                    text = _Text(version, now, list(problem_of(recovery, seen, now, is_newest=is_newest)))
                    if (made := made + 1) % AT_ONCE == 0:
                        await asyncio.sleep(0)  # the recoveries have their turn
                if recovery.status.phase not in ENDED:
                    self._texts[uid] = text
                problems += text.problems
        return problems

    # Storing ----------------------------------------------------------------------------------------------------------

    def _offer(self, entry: Entry) -> None:
        entry.tried = True
        for sender in self._senders:
            sender.offer(entry)

    async def _clean(self, now: datetime) -> None:
        if self._cleaned_at is not None and now - self._cleaned_at < CLEAN_EVERY:
            return
        self._cleaned_at = now
        sinks = [sender.route for sender in self._senders]
        settled = [e for e in self._store.entries.values() if is_settled(e.tracked.incident, e.delivery, sinks)]
        try:
            await self._store.delete_old(settled, self._policy.keep_for, now)
        except ClusterError as error:
            log.info("incidents.not_deleted", error=str(error))

    def _measure(self, now: datetime) -> None:
        standing = [each.tracked.incident for each in self._store.entries.values()]
        for severity in Severity:
            count = sum(each.severity is severity and each.resolved is None for each in standing)
            self._metrics.incidents_open.labels(severity.value).set(count)
        for sender in self._senders:
            sender.measure(now)


def _pages_first(tracked: Tracked) -> tuple[bool, datetime, str]:
    incident = tracked.incident
    return incident.severity is not Severity.PAGE, incident.opened, incident.key
