"""
Keeps the history of every machine, ranks lemons, and says how many spares the fleet wants.

The leader writes the histories, and no agent does: a history outlives its Node and moves with the machine, while an
agent may write only what has the name of its own Node; and the agent of a broken machine is no judge of it. They are
objects of their own, and not a part of NodeHealth, which is deleted with its Node. There is one for each machine, so a
write is about one machine. A machine costs one write when it is first seen and a few for each outage.

The cache of the controller keeps no inventories. So a Node and its NodeHealth are read again, when the Node goes in or
out of quarantine, and otherwise every few hours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import structlog

from healthd.clock import Clock
from healthd.cluster.port import AlreadyExists, Cluster, ClusterError, Conflict, NotFound, Unusable
from healthd.controller.cache.cluster_state import ClusterState
from healthd.core.api import HardwareHistory, MachineHistory, Node, NodeHealth, ObjectMeta
from healthd.core.node.quarantine import read_record
from healthd.core.patches import diff
from healthd.core.reliability.history import (
    LATE,
    NO_STATUS,
    absent_since,
    is_away,
    is_out,
    left,
    machine_of,
    object_name,
    observed,
)
from healthd.core.reliability.ranking import Standing, lemon_nodes, rank
from healthd.core.reliability.spare_pool import wanted_spares
from healthd.telemetry.metrics import Metrics
from healthd.threads import in_thread

log = structlog.get_logger()

EVERY = timedelta(minutes=1)
READ_EVERY = timedelta(hours=6)
"""A machine is read again after this: a GPU that was moved without an outage is noticed then."""
MOST_READS = 100
"""In one pass. What changed goes first."""
RANK_EVERY = timedelta(minutes=10)
LOAD_AGAIN = timedelta(minutes=10)
KEEP_AWAY = timedelta(days=400)
"""A history is deleted when its machine is away for so long."""


T = TypeVar("T")


class Compute(Protocol):
    """Does long work, so that other tasks have their turn meanwhile."""

    def __call__(self, work: Callable[[], T], name: str) -> Awaitable[T]:
        """What *work* answers."""
        ...


class _Kept(NamedTuple):
    """A history, and the version of its object; an empty version: it is not stored."""

    history: MachineHistory
    version: str


class _Seen(NamedTuple):
    """A Node, as it was read last."""

    uuid: str
    """What it reports as the UUID of its machine."""
    machine: str
    """Its identity, which is another one where several Nodes report the same UUID."""
    at: datetime


class HardwareHistories:
    """The histories in *namespace*. For one leader. It pauses while *trouble* gives a reason not to trust the cache."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        cluster_state: ClusterState,
        metrics: Metrics,
        *,
        namespace: str,
        trouble: Callable[[], str | None] = lambda: None,
        compute: Compute = in_thread,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._cluster_state = cluster_state
        self._metrics = metrics
        self._namespace = namespace
        self._trouble = trouble
        self._compute = compute
        self._kept: dict[str, _Kept] = {}
        """By machine."""
        self._seen: dict[str, _Seen] = {}
        """By Node."""
        self._again: set[str] = set()
        """Nodes to be read soon, for a reason that the cache does not show."""
        self._ranked_at: datetime | None = None
        self._failed = ""
        self._logged: set[tuple[str, str]] = set()

    @property
    def histories(self) -> list[MachineHistory]:
        """All that are known."""
        return [each.history for each in self._kept.values()]

    async def run(self) -> None:
        """Run until cancelled. Raises Unusable."""
        while not await self._load():
            await self._clock.sleep(LOAD_AGAIN)
        while True:
            await self._clock.sleep(EVERY)
            if self._trouble():
                continue
            try:
                await self.look()
                await self._rank()
            except Unusable:
                raise
            except Exception as error:  # a failed history must not stop the recoveries
                log.exception("histories.failed", error=str(error))

    async def _load(self) -> bool:
        try:
            listed = await self._cluster.list(HardwareHistory, namespace=self._namespace)
        except Unusable:
            raise
        except ClusterError as error:
            log.error("histories.not_read", error=str(error), note="apply the definitions and rights of deploy/")
            return False
        self._kept = {one.spec.machine: _Kept(one.spec, one.metadata.resource_version) for one in listed.items}
        return True

    async def look(self) -> None:
        """Read what is due, and store what changed."""
        now = self._clock.now()
        for name in self._due(now)[:MOST_READS]:
            await self._guarded(self._read(name, now))
        nodes = self._cluster_state.nodes
        for machine, kept in list(self._kept.items()):
            if kept.history.node in nodes and self._is_of(kept.history.node, machine):
                continue
            if not is_away(kept.history):
                await self._guarded(self._store(machine, left(kept.history, now)))
            elif now - absent_since(kept.history) > KEEP_AWAY:
                await self._guarded(self._delete(machine))
        for name in [name for name in self._seen if name not in nodes]:
            del self._seen[name]

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Unusable:
            raise
        except ClusterError as error:
            if str(error) != self._failed:  # a lasting error is logged once
                log.warning("histories.not_stored", error=str(error))
            self._failed = str(error)

    def _due(self, now: datetime) -> list[str]:
        """Nodes with an agent that are to be read: first those whose quarantine began or ended."""
        by_node = {each.history.node: each.history for each in self._kept.values() if not is_away(each.history)}
        due: list[tuple[bool, datetime, str]] = []
        for name in self._cluster_state.health:
            node, seen = self._cluster_state.nodes.get(name), self._seen.get(name)
            if node is None:
                continue
            changed = name in self._again or _changed(by_node.get(name), node, now)
            if changed or seen is None or now - seen.at >= READ_EVERY:
                due.append((not changed, seen.at if seen else datetime.min.replace(tzinfo=now.tzinfo), name))
        return [name for _, _, name in sorted(due)]

    async def _read(self, name: str, now: datetime) -> None:
        self._again.discard(name)
        try:
            node = await self._cluster.get(Node, name)
        except NotFound:
            return
        try:
            status = (await self._cluster.get(NodeHealth, name)).status
        except NotFound:
            status = NO_STATUS
        uuid = node.status.node_info.system_uuid.lower()
        same = [other for other, seen in self._seen.items() if seen.uuid == uuid and other != name]
        others = [other for other in same if other in self._cluster_state.nodes]
        machine = machine_of(node, shared={uuid} if others else ())
        self._again.update(other for other in others if self._seen[other].machine == uuid)
        self._seen[name] = _Seen(uuid, machine, now)
        known = self._kept.get(machine)
        await self._store(machine, observed(known.history if known else None, machine, node, status, now))

    def _is_of(self, node: str, machine: str) -> bool:
        """Whether *node* is still that machine, as far as it was read."""
        seen = self._seen.get(node)
        return seen is None or seen.machine == machine

    async def _store(self, machine: str, history: MachineHistory) -> None:
        """Store what changed. Where a person deleted the object, the history begins anew. Raises ClusterError."""
        kept = self._kept.get(machine)
        if kept is not None and kept.history == history:
            return
        name = object_name(machine)
        try:
            if kept is None:
                whole = HardwareHistory(metadata=ObjectMeta(name=name, namespace=self._namespace), spec=history)
                stored = await self._cluster.create(whole)
            else:
                patch = {"spec": diff(kept.history, history)}
                stored = await self._cluster.patch(
                    HardwareHistory, name, patch, namespace=self._namespace, resource_version=kept.version
                )
        except NotFound:
            self._kept.pop(machine, None)
            self._again.add(history.node)
        except (AlreadyExists, Conflict):  # another leader wrote: its history counts, ours follows with the next read
            stored = await self._cluster.get(HardwareHistory, name, self._namespace)
            self._kept[machine] = _Kept(stored.spec, stored.metadata.resource_version)
            self._again.add(history.node)
        else:
            self._kept[machine] = _Kept(history, stored.metadata.resource_version)

    async def _delete(self, machine: str) -> None:
        kept = self._kept.pop(machine)
        try:
            await self._cluster.delete(
                HardwareHistory, object_name(machine), namespace=self._namespace, resource_version=kept.version
            )
        except (NotFound, Conflict):
            log.info("history.not_deleted", machine=machine)

    async def _rank(self) -> None:
        """In a thread: with 10,000 machines and their GPUs it takes seconds."""
        now = self._clock.now()
        if self._ranked_at is not None and now - self._ranked_at < RANK_EVERY:
            return
        self._ranked_at = now
        state, histories = self._cluster_state, self.histories
        pool = {*state.spare_nodes, *state.claimed_nodes}
        standings = await self._compute(partial(rank, histories, now), "lemons")
        wanted = await self._compute(partial(wanted_spares, histories, pool, now), "spares plan")
        lemons = lemon_nodes(standings)
        self._metrics.show_lemons({name: each.probability for name, each in lemons.items()})
        self._metrics.spares_wanted.set(wanted)
        self._metrics.loop_succeeded("histories", now)
        for standing in self._new(standings):
            log.warning("node.lemon", node=standing.node, gpu=standing.gpu, why=standing.reason)

    def _new(self, standings: list[Standing]) -> Iterator[Standing]:
        """Those that were not logged by this leader yet."""
        lemons = {(each.machine, each.gpu): each for each in standings if each.is_lemon}
        before, self._logged = self._logged, set(lemons)
        yield from (each for key, each in lemons.items() if key not in before)


def _changed(history: MachineHistory | None, node: Node, now: datetime) -> bool:
    """Whether the Node shows another quarantine than its history, or what ended the last one is to be reported yet."""
    if history is None:
        return False
    record, last = read_record(node), history.outages[-1] if history.outages else None
    if is_out(history) or record is not None:
        return record is None or last is None or last.ended is not None or last.began != record.since
    return last is not None and last.ended is not None and not last.helped and now - last.ended <= LATE
