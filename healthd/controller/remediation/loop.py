"""
The loop of all nodes that are out of service: observe, decide, act, record.

It runs beside the loop of the gangs, in a task of its own, and no recovery waits for it. A node is looked at while it
is in quarantine or its record says that something goes on. Each look reads everything again, and moves on until only
waiting is left. Many nodes are looked at side by side. What is in memory are a few times: another controller goes on
from the records.

While no node is out of service, and no record says that something goes on, the loop asks the cluster for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

import structlog

from healthd.clock import Clock
from healthd.cluster.port import AlreadyExists, Cluster, ClusterError, Conflict, NotFound, Refused, Unusable
from healthd.cluster.waiting import first
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.fresh_reads import Gather, one_by_one
from healthd.controller.remediation.act import Actor
from healthd.controller.remediation.metrics import measure_nodes, measure_step
from healthd.controller.remediation.node_checks import NodeChecks
from healthd.controller.remediation.observer import Observer
from healthd.controller.remediation.records import write_record
from healthd.controller.remediation.requests import CannotAsk, Requests, Subject
from healthd.core.api import NodeRemediation, NodeRemediationStatus
from healthd.core.api.remediations import NodePhase
from healthd.core.config import Config
from healthd.core.remediation.actions import Action, GiveBack, Request, StartCheck
from healthd.core.remediation.decide import Decision, decide
from healthd.core.remediation.situation import NodeSituation
from healthd.telemetry.events import NORMAL, WARNING, Announce, about, silently
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger()

EVERY = timedelta(seconds=5)
"""Between two looks at a node on which something goes on, and between two passes where nothing changes."""
GAP = timedelta(milliseconds=250)
"""From a change to the pass for it. In a large cluster something changes all the time, and gangs come first."""
SLOWLY = timedelta(minutes=1)
"""Between two looks at a node for which only a person, or the end of its probation, is awaited."""
SELDOM = timedelta(minutes=10)
"""Between two looks at the record of a Node that is gone. When it comes back it is looked at."""
LOAD_AGAIN = timedelta(minutes=1)
SETTLED = timedelta(days=1)
"""A node that is in service for so long has nothing left to be taken back."""
MOVES = 16
"""Most moves at one look. A rung takes about six; more in one go means that something undoes them."""
_SLOW = frozenset({NodePhase.IN_SERVICE, NodePhase.PROBATION, NodePhase.AWAITING_PERSON, NodePhase.RETIRED})


class _Looked(NamedTuple):
    """When a node is looked at next, and the versions of Node and NodeHealth that the cache had at the last look."""

    next: datetime
    versions: tuple[str, str]


class Remediations:
    """
    The life of every node after a fault. For one leader. It pauses while *trouble* says not to trust the cache. *wake*
    is set after each change of the cluster state; *together*: how several nodes are looked at.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        cluster_state: ClusterState,
        config: Config,
        requests: Requests,
        *,
        namespace: str,
        metrics: Metrics,
        announce: Announce = silently,
        trouble: Callable[[], str | None] = lambda: None,
        wake: asyncio.Event | None = None,
        together: Gather = one_by_one,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._cluster_state = cluster_state
        self._namespace = namespace
        self._metrics = metrics
        self._announce = announce
        self._trouble = trouble
        self._wake = wake or asyncio.Event()
        self._together = together
        self._observer = Observer(cluster, clock, config, requests, namespace=namespace)
        self._checks = NodeChecks(cluster, config.remediation, requests.own_image)
        self._requests = requests
        self._actor = Actor(cluster, clock, requests, self._observer, self._checks)
        self._active: set[str] = set()
        """Nodes whose record says that something goes on, or that could not be looked at to the end."""
        self._looked: dict[str, _Looked] = {}
        self._statuses: dict[str, NodeRemediationStatus] = {}
        """By node: what is on record, as of the last look. For the metrics alone."""
        self._errors: dict[str, str] = {}
        """By node, so that a lasting error is logged once."""

    async def run(self) -> None:
        """Run until cancelled. Raises Unusable."""
        self._metrics.know_hands(self._requests.chosen)
        while not await self.load():
            await self._clock.sleep(LOAD_AGAIN)
        while True:
            self._wake.clear()
            if not self._trouble():
                await self.look()
            await first(self._wake.wait(), self._clock.sleep(self._rest()))
            await self._clock.sleep(GAP)

    async def load(self) -> bool:
        """
        Read which nodes have a record. Each is looked at once, because its last controller may have died, unless it is
        in service for long. False where that failed.
        """
        try:
            listed = await self._cluster.list(NodeRemediation, namespace=self._namespace)
            checked = await self._checks.nodes()
        except Unusable:
            raise
        except ClusterError as error:
            log.error("remediations.not_read", error=str(error), note="apply deploy/components/remediation")
            return False
        self._statuses = {one.metadata.name: one.status for one in listed.items}
        since = self._clock.now() - SETTLED
        self._active = checked | {one.metadata.name for one in listed.items if not _is_settled(one.status, since)}
        return True

    async def look(self) -> None:
        """Look at every node that is due."""
        now = self._clock.now()
        nodes = self._active | self._cluster_state.quarantined_nodes
        await self._together([partial(self._guarded, name) for name in sorted(nodes) if self._is_due(name, now)])
        self._looked = {name: looked for name, looked in self._looked.items() if name in nodes}
        measure_nodes(self._metrics, self._statuses, self._cluster_state.nodes)

    def _rest(self) -> timedelta:
        """Time until a node is due, if nothing changes."""
        first_due = min((looked.next - self._clock.now() for looked in self._looked.values()), default=EVERY)
        return max(timedelta(0), min(first_due, EVERY))

    def _is_due(self, name: str, now: datetime) -> bool:
        """While a gang is restarted, its requests come first: changes, also a new quarantine, wait for `EVERY`."""
        looked = self._looked.get(name)
        if self._cluster_state.active_recoveries():
            looked = self._looked.setdefault(name, _Looked(now + EVERY, self._versions(name)))
            return now >= looked.next
        return looked is None or now >= looked.next or looked.versions != self._versions(name)

    def _versions(self, name: str) -> tuple[str, str]:
        known = self._cluster_state.nodes.get(name), self._cluster_state.health.get(name)
        node, health = (one.metadata.resource_version if one is not None else "" for one in known)
        return node, health

    async def _guarded(self, name: str) -> None:
        """One node that cannot be looked at holds up no other."""
        self._active.add(name)
        versions, error = self._versions(name), ""
        try:
            wait = await self._pursue(name)
        except Unusable:
            raise
        except (Conflict, AlreadyExists, NotFound) as conflict:
            log.info("remediation.retry", node=name, why=str(conflict))
            wait = EVERY
        except (CannotAsk, Refused) as refusal:  # to try at once again would change nothing
            error, wait = str(refusal), SLOWLY
        except Exception as failure:  # a failed remediation must not stop the recoveries
            error, wait = f"{type(failure).__name__}: {failure}", EVERY
        self._looked[name] = _Looked(self._clock.now() + wait, versions)
        if error and error != self._errors.get(name):
            log.error("remediation.failed", node=name, error=error)
        self._errors[name] = error

    async def _pursue(self, name: str) -> timedelta:
        """Move on until the node has to wait. Returns for how long. Raises ClusterError."""
        done: Action | None = None
        for _ in range(MOVES):
            subject = await self._observer.subject(name)
            self._statuses[name] = subject.record.status
            situation = await self._observer.situation(subject)
            decision = decide(situation)
            if decision.waits:
                return self._wait(situation, decision)
            if decision.action is not None and decision.action == done:
                return EVERY  # it was done, and is not seen yet
            if not await self._move(subject, situation, decision):
                return decision.recheck or EVERY
            done = decision.action
        return EVERY

    async def _move(self, subject: Subject, situation: NodeSituation, decision: Decision) -> bool:
        """Record or do what was decided. False where it cannot be done yet. Raises ClusterError."""
        if decision.record is not None:
            await self._record(subject, situation, decision)
            return True
        return not await self._perform(subject, decision)

    def _wait(self, situation: NodeSituation, decision: Decision) -> timedelta:
        phase = situation.status.phase
        if phase is NodePhase.IN_SERVICE and situation.quarantine is None:
            self._active.discard(situation.name)
        usual = SLOWLY if phase in _SLOW else EVERY
        if situation.node is None and phase is not NodePhase.REMEDIATING:
            usual = SELDOM
        return usual if decision.recheck is None else max(min(decision.recheck, usual), timedelta(seconds=1))

    async def _perform(self, subject: Subject, decision: Decision) -> str:
        """Do what was decided. Returns why it could not be done yet. Raises ClusterError."""
        assert decision.action is not None
        try:
            why = await self._actor.perform(decision.action, subject)
        except (CannotAsk, Refused) as error:
            if isinstance(decision.action, Request | StartCheck | GiveBack):
                await self._say(subject, str(error))
            raise
        if why:
            log.info("remediation.waits", node=subject.name, why=why)
            await self._say(subject, why)
        else:
            log.info("remediation.acted", node=subject.name, did=type(decision.action).__name__, why=decision.reason)
        return why

    async def _say(self, subject: Subject, message: str) -> None:
        """Put into the record what keeps an action from being done."""
        waiting = NodeSituation(
            name=subject.name, status=subject.record.status, node=subject.node, now=self._clock.now()
        ).wait(message)
        if waiting.record is not None:
            await write_record(self._cluster, subject.record, waiting.record)

    async def _record(self, subject: Subject, situation: NodeSituation, decision: Decision) -> None:
        """Record what was decided, and report it. Raises ClusterError."""
        assert decision.record is not None
        await write_record(self._cluster, subject.record, decision.record)
        measure_step(self._metrics, situation.status, decision.record, self._clock.now())
        self._report(situation, decision.record)

    def _report(self, situation: NodeSituation, after: NodeRemediationStatus) -> None:
        before = situation.status
        if after.phase is before.phase and after.message == before.message:
            return
        log.info("remediation.phase", node=situation.name, phase=after.phase, why=after.message)
        if situation.node is not None:
            kind = WARNING if after.phase in (NodePhase.AWAITING_PERSON, NodePhase.REMEDIATING) else NORMAL
            self._announce(about(situation.node), kind, f"Remediation{after.phase}", after.message)


def _is_settled(status: NodeRemediationStatus, since: datetime) -> bool:
    return status.phase is NodePhase.IN_SERVICE and status.phase_since is not None and status.phase_since < since
