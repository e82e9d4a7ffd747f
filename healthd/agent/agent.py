"""
The agent of one node: observe → judge → quarantine → publish.

`take_in` judges what a probe read; `cycle` looks at the node and does what follows. What must not be forgotten stands
in the node's `NodeHealth`: findings and cursor are written together, so a record is judged once, also across restarts.
The quarantine is committed before the verdict is published: it is what keeps work off the node. On the way back the
verdict comes first: a node in service with the report of its fault would pass for bad again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec
import structlog

from healthd.agent import budget_slots
from healthd.agent.publish import publish_condition, publish_health, read_health, repaired_at
from healthd.clock import Clock
from healthd.cluster.nodes import patch_node
from healthd.cluster.port import Cluster, ClusterError
from healthd.core import quarantine
from healthd.core.findings import BY_DEFAULT, Ledger
from healthd.core.model import Finding, KernelRecord
from healthd.core.objects import Device, KernelLogCursor, Node, NodeHealthStatus
from healthd.core.policy import JudgePolicy, QuarantinePolicy
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)

CHECK_AGAIN = timedelta(seconds=30)
"""How often an agent looks at its node when nothing happens: findings fade, people repair."""
TRY_AGAIN = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelNews:
    """What was read of the kernel log since the last time; *lost* records are missing before it."""

    records: Sequence[KernelRecord] = ()
    last_sequence: int = -1
    source: str = "kmsg"
    lost: int = 0


def owns_everything(device: str) -> bool:  # noqa: ARG001 - the signature of `owns`
    """An agent that has the machine for itself."""
    return True


class Agent:
    """
    Judges and guards the node *node_name*.

    *owns* says which PCI addresses belong to this node, and with `node` whether it is the whole machine: where the
    GPUs of one machine are separate nodes, every agent reads the same kernel log. *job* names what runs on the node,
    so that repeats from different jobs can be told apart.
    """

    def __init__(
        self,
        node_name: str,
        cluster: Cluster,
        clock: Clock,
        *,
        boot_id: str,
        policy: QuarantinePolicy,
        judge: JudgePolicy = BY_DEFAULT,
        metrics: Metrics,
        owns: Callable[[str], bool] = owns_everything,
        job: Callable[[], str] = str,
        inventory: Sequence[Device] = (),
        trust_user_space: bool = False,
    ) -> None:
        self.node_name = node_name
        self._cluster = cluster
        self._clock = clock
        self._boot_id = boot_id
        self._policy = policy
        self._metrics = metrics
        self._owns = owns
        self._job = job
        self._trust_user_space = trust_user_space
        self._ledger = Ledger(policy=judge)
        self._status = NodeHealthStatus(boot_id=boot_id, inventory=list(inventory))
        self._stored: NodeHealthStatus | None = None
        self._repair_stamp: datetime | None = None
        """As it stands on the node."""
        self._repaired_at: datetime | None = None
        """The same, but never later than when it was first seen: a stamp ahead of time must not hide later faults."""
        self._log_readable = True
        self._refusal: str | None = None
        self._may_hold_slots = True
        """Unknown after a start; an idle agent that knows better does not ask the cluster again and again."""

    @property
    def cursor(self) -> KernelLogCursor:
        """The last kernel record that was judged."""
        return self._status.cursor

    @property
    def findings(self) -> Sequence[Finding]:
        """All that stand, and those cleared not long ago."""
        return self._ledger.findings

    async def load(self, now: datetime) -> None:
        """Take up what an earlier life of this agent knew. Raises ClusterError."""
        node = await self._cluster.get(Node, self.node_name)
        health = await read_health(self._cluster, self.node_name)
        if health is not None:
            known = health.status
            self._stored = known
            self._ledger = Ledger.of(known.findings, self._ledger.policy).clear_by_reboot(self._boot_id, now)
            self._status = msgspec.structs.replace(self._status, cursor=known.cursor, lost_records=known.lost_records)
        record = quarantine.read_record(node)
        if record is not None and record.finding not in self._ledger.entries:
            told = quarantine.finding_of(record)
            self._ledger = replace(self._ledger, entries={**self._ledger.entries, told.id: told})
        self._note_repair(node)

    def set_log_readable(self, readable: bool) -> None:
        """Whether the kernel log can be read: an agent that sees nothing must not say healthy."""
        self._log_readable = readable

    def take_in(self, news: KernelNews, now: datetime) -> bool:
        """Judge what was read. True when a finding changed, so that `cycle` should run at once."""
        before = self._ledger
        known = (self.cursor.boot_id, self.cursor.source) == (self._boot_id, news.source)
        seen = self.cursor.sequence if known else -1
        for record in news.records:
            if record.sequence > seen:
                self._judge(record, now)
        if news.lost:
            self._ledger = self._ledger.lost(news.lost, first=now, last=now, boot_id=self._boot_id)
        self._status = msgspec.structs.replace(
            self._status,
            cursor=KernelLogCursor(boot_id=self._boot_id, sequence=max(seen, news.last_sequence), source=news.source),
            lost_records=self._status.lost_records + news.lost,
        )
        return self._ledger.entries != before.entries

    async def cycle(self, now: datetime) -> timedelta:
        """Look at the node and do what its findings ask for. Returns when to look again if nothing happens."""
        try:
            node = await self._cluster.get(Node, self.node_name)
            self._fade(node, now)
            node = await self._guard(node, now)
            await self._publish(node, now)
        except ClusterError as error:
            log.warning("agent.retry", node=self.node_name, error=str(error), kind=type(error).__name__)
            return TRY_AGAIN
        self._metrics.loop_succeeded("agent", now)
        return CHECK_AGAIN

    def _judge(self, record: KernelRecord, now: datetime) -> None:
        before = self._ledger
        after = before.observe(
            record,
            now=now,
            job=self._job(),
            repaired_at=self._repaired_at,
            trust_user_space=self._trust_user_space,
        )
        mine = {key: finding for key, finding in after.entries.items() if self._is_mine(finding)}
        self._ledger = replace(after, entries=mine)
        stood = {finding.id for finding in before.standing}
        for finding in self._ledger.standing:
            if finding.id not in stood:
                self._metrics.findings_raised.labels(finding.rule).inc()
                log.warning("finding.raised", node=self.node_name, finding=finding.id, why=finding.message)

    def _is_mine(self, finding: Finding) -> bool:
        return finding.id in self._ledger.entries or self._owns(finding.device)

    def _fade(self, node: Node, now: datetime) -> None:
        """What people and time clear."""
        self._note_repair(node)
        self._ledger = self._ledger.decay(now)

    def _note_repair(self, node: Node) -> None:
        """Also one that was said while this agent was down, or by a clock that is ahead of ours."""
        stamp = repaired_at(node)
        if stamp is not None and stamp != self._repair_stamp:
            self._repair_stamp = stamp
            self._repaired_at = min(stamp, self._clock.now())
            self._ledger = self._ledger.clear_by_repair(self._repaired_at)

    async def _guard(self, node: Node, now: datetime) -> Node:
        """Quarantine the node or give it back, as its findings say. Answers the node as it is then."""
        if self._may_hold_slots:
            self._may_hold_slots = bool(await budget_slots.held_slots(self._cluster, node, self._policy))
        decision = quarantine.decide(node, self._ledger.findings, holds_slots=self._may_hold_slots, now=now)
        match decision:
            case quarantine.Quarantine(record):
                return await self._quarantine(node, record, now)
            case quarantine.Release(reason):
                return await self._release(node, reason)
            case quarantine.Keep():
                self._refusal = None
                return node

    async def _quarantine(self, node: Node, record: quarantine.Record, now: datetime) -> Node:
        refusal = "quarantine.cordon is off: this is what would be done"
        if self._policy.cordon:
            self._may_hold_slots = True
            refusal = await budget_slots.take_slots(self._cluster, node, self._policy, now) or ""
        if refusal:
            if refusal != self._refusal:
                self._metrics.quarantine_refused.inc()
                log.error("quarantine.refused", node=self.node_name, finding=record.finding, why=refusal)
            self._refusal = refusal
            return node
        node = await patch_node(self._cluster, node, quarantine.cordon_patch(node, record))
        self._refusal = None
        self._measure(record)
        log.warning("node.quarantined", node=self.node_name, finding=record.finding, why=record.message)
        return node

    def _measure(self, record: quarantine.Record) -> None:
        finding = self._ledger.entries[record.finding]
        delay = self._clock.now() - max([finding.raised_at, *(e.at for e in finding.evidence)])
        self._metrics.quarantine_seconds.observe(max(0.0, delay.total_seconds()))

    async def _release(self, node: Node, reason: str) -> Node:
        """The report goes first, then the cordon, the slot last: there are never more cordons than slots."""
        ours = quarantine.read_record(node)
        if ours is not None:
            await self._publish_health(node)
            node = await patch_node(self._cluster, node, quarantine.uncordon_patch(node, ours))
            log.warning("node.returned", node=self.node_name, why=reason)
        await budget_slots.give_back_slots(self._cluster, node, self._policy)
        return node

    async def _publish(self, node: Node, now: datetime) -> None:
        await self._publish_health(node)
        verdict, message = self._status.verdict, self._status.message
        self._metrics.show_node(self.node_name, verdict, self._ledger.findings)
        await publish_condition(self._cluster, node, verdict, message, now)

    async def _publish_health(self, node: Node) -> None:
        verdict, message = self._ledger.verdict(reading_works=self._log_readable)
        self._status = msgspec.structs.replace(
            self._status, verdict=verdict, message=message, findings=self._ledger.findings
        )
        before, self._stored = self._stored, None  # a write whose answer is lost may have taken effect: look again
        self._stored = await publish_health(self._cluster, node, before, self._status)
