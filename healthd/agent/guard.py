"""
Take a node out of service and give it back, as its findings ask for and the budget allows.

`core.node.quarantine` decides; this module does it. A slot is taken before the cordon and given back after the
uncordon, so there are never more cordons than slots. When the node returns to service, the report of its health is
written first: a node in service with an old report of its fault would look unhealthy again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import structlog

from healthd.agent import budget_slots
from healthd.agent.dependencies import AgentDependencies
from healthd.agent.node_view import NodeView
from healthd.cluster.nodes import patch_node
from healthd.cluster.port import ClusterError, Conflict, Refused, Unusable
from healthd.core.api import Node
from healthd.core.api.model import Finding
from healthd.core.backoff import Backoff
from healthd.core.node import quarantine
from healthd.telemetry.events import NORMAL, WARNING

log = structlog.get_logger(__name__)

ASK_AGAIN = timedelta(seconds=30)
"""After the budget had no slot. Doubles up to ASK_AT_LEAST. Hundreds of nodes may wait for a slot at once."""
ASK_AT_LEAST = timedelta(minutes=5)
REFUSED_AFTER = timedelta(seconds=10)
"""Requests that have failed for so long are no race and no short outage: the report of the node says so."""
COUNT_AGAIN = timedelta(minutes=5)
"""While slots are held: a person may delete them, and the budget does not count a node without one."""

Report = Callable[[Node, datetime], Awaitable[None]]
Announce = Callable[[str, str, str], None]
"""Takes type, reason and message of an event on the node."""


class Guarded(NamedTuple):
    """The node after the call, and whether it was quarantined, or refused a quarantine, in this call."""

    node: Node
    has_changed: bool = False


class Guard:
    """
    Guards one node. *report* writes its health before it is given back. *announce* publishes events.

    Errors of the cluster go to the caller, which tries again; an unfinished change is then finished or reverted. While
    they last, `has_failed` and `remark` say so: a fault must be known also where no one may write to the node.
    """

    def __init__(
        self,
        dependencies: AgentDependencies,
        view: NodeView,
        *,
        report: Report,
        announce: Announce,
    ) -> None:
        self._cluster = dependencies.cluster
        self._clock = dependencies.clock
        self._view = view
        self._policy = dependencies.quarantine
        self._metrics = dependencies.metrics
        self._report = report
        self._announce = announce
        self._repair = dependencies.repair_command
        self._began = self._clock.now()
        self._node_uid = ""
        self._slots: frozenset[str] | None = None
        """Budget slots that the node holds. None: unknown, after a start or a failed request."""
        self._counted: datetime | None = None
        """When the slots were last seen, by the clock of this machine, which may be set back."""
        self._refusal = ""
        """Why the node is not in quarantine, although a finding asks for it."""
        self._awaited = ""
        """Why the node is still in quarantine, although no finding asks for it."""
        self._failing_since: datetime | None = None
        self._failure_kind: type[ClusterError] | None = None
        self._failure = ""
        """Why the node cannot be taken out of service or given back, once requests have failed for long."""
        self._ask_again = Backoff(ASK_AGAIN, ASK_AT_LEAST, dependencies.jitter)
        self.ask_at: datetime | None = None
        """While the budget is used up: when to ask for a slot again."""

    @property
    def remark(self) -> str:
        """What to report beside the verdict of the node. Empty when its service state follows from the verdict."""
        if self._failure:
            return f"It cannot be taken out of service or given back: {self._failure}."
        if self._refusal:
            return f"Not quarantined: {self._refusal}."
        return f"Still in quarantine: {self._awaited}." if self._awaited else ""

    async def guard(
        self, node: Node, findings: Sequence[Finding], now: datetime, *, repaired: datetime | None
    ) -> Guarded:
        """Quarantine *node* or give it back, as its *findings* ask for. Raises ClusterError."""
        try:
            done = await self._guard(node, findings, now, repaired)
        except (Conflict, Unusable):
            raise
        except ClusterError as error:
            self._note_failure(node, findings, error, now)
            raise
        self._failing_since, self._failure_kind, self._failure = None, None, ""
        return done

    @property
    def has_failed(self) -> bool:
        """Whether its requests have failed for so long that the report of the node must not wait for them."""
        return bool(self._failure)

    def _note_failure(self, node: Node, findings: Sequence[Finding], error: ClusterError, now: datetime) -> None:
        if self._failing_since is None or self._failing_since > now:
            self._failing_since = now
        if now - self._failing_since < REFUSED_AFTER or type(error) is self._failure_kind:
            return  # not its words: they may differ each time
        is_new, self._failure_kind, self._failure = self._failure_kind is None, type(error), str(error).rstrip(".")
        log.error(
            "quarantine.failed", node=node.metadata.name, why=self._failure, so="its verdict is published all the same"
        )
        worst = quarantine.worst_of(findings)
        if is_new and worst is not None and quarantine.read_record(node) is None:
            self._metrics.quarantine_refused.inc()
            self._announce(WARNING, "QuarantineRefused", f"{worst.id} stands: {self._failure}")

    async def _guard(
        self, node: Node, findings: Sequence[Finding], now: datetime, repaired: datetime | None
    ) -> Guarded:
        if node.metadata.uid != self._node_uid:  # created anew: the slots of the old node were deleted with it
            self._node_uid, self._slots = node.metadata.uid, None
        if self._slots is None or (self._slots and not self._was_counted(now)):
            self._slots, self._counted = await budget_slots.held_slots(self._cluster, node, self._policy), now
        decision = quarantine.decide(
            node,
            findings,
            holds_slots=bool(self._slots),
            lacks_slots=budget_slots.lacks_slots(node, self._policy, self._slots),
            now=now,
            give_back=self._policy.give_back,
            repaired=repaired,
        )
        if isinstance(decision, quarantine.Quarantine):
            return await self._quarantine(node, decision.record, findings, now)
        if isinstance(decision, quarantine.RestoreSlots):
            if not await self._refused(node, now, is_out=True):
                log.warning("quarantine.slot_again", node=node.metadata.name, why="the slot that it held was deleted")
            return Guarded(node)
        self._forget_refusal()
        match decision:
            case quarantine.Release(reason):
                return Guarded(await self._release(node, reason, now))
            case quarantine.Await(reason):
                self._await_repair(node, reason)
            case quarantine.Keep():
                self._keep(node, findings)
        return Guarded(node)

    def _was_counted(self, now: datetime) -> bool:
        return self._counted is not None and self._counted <= now < self._counted + COUNT_AGAIN

    async def _quarantine(
        self, node: Node, record: quarantine.Record, findings: Sequence[Finding], now: datetime
    ) -> Guarded:
        if refusal := await self._refused(node, now):
            has_changed = refusal != self._refusal
            self._refusal = refusal
            if has_changed:
                self._metrics.quarantine_refused.inc()
                self._announce(WARNING, "QuarantineRefused", f"{record.finding} stands: {refusal}")
                log.error("quarantine.refused", node=node.metadata.name, finding=record.finding, why=refusal)
            return Guarded(node, has_changed)
        try:
            node = await self._write(node, quarantine.cordon_patch(node, record))
        except Refused:  # it had no effect: the slot is for a node that can be cordoned
            await self._give_slots_back(node)
            raise
        self._forget_refusal()
        self._measure(record, findings)
        finding = next(finding for finding in findings if finding.id == record.finding)
        note = self._about_old(finding)
        self._announce(WARNING, "Quarantined", f"{record.finding}: {record.message} {note}".rstrip())
        fields = {"node": node.metadata.name, "finding": record.finding, "why": record.message, **_evidence(finding)}
        log.warning("node.quarantined", **fields, **({"note": note} if note else {}))
        return Guarded(node, has_changed=True)

    async def _refused(self, node: Node, now: datetime, *, is_out: bool = False) -> str:
        """Take the slots that a quarantine needs. Returns why not; empty when they are held."""
        if not self._policy.cordon:
            return "quarantine.cordon is off: this is what would be done"
        if self.ask_at is not None and now < self.ask_at:
            return self._refusal
        held, self._slots = self._slots or frozenset(), None  # unknown, should a request fail
        taken = await budget_slots.take_slots(self._cluster, node, self._policy, now, held=held, is_out=is_out)
        self._slots, self._counted = taken.slots, now
        self.ask_at = now + self._ask_again.next() if taken.refusal else None
        return taken.refusal

    def _forget_refusal(self) -> None:
        self._refusal, self.ask_at = "", None
        self._ask_again.reset()

    def _about_old(self, finding: Finding) -> str:
        """What to report about a fault that was last seen before this agent started."""
        if finding.last_at >= self._began or finding.watched:
            return ""
        return (
            f"It was seen at {finding.last_at.isoformat(timespec='seconds')}, before healthd was started here, and no "
            f"reset of the GPU or load of the driver since is on record. If it was put right, say `{self._repair}`."
        )

    def _measure(self, record: quarantine.Record, findings: Sequence[Finding]) -> None:
        finding = next(finding for finding in findings if finding.id == record.finding)
        delay = self._clock.now() - max([finding.raised_at, *(e.at for e in finding.evidence)])
        self._metrics.quarantine_seconds.observe(max(0.0, delay.total_seconds()))

    def _keep(self, node: Node, findings: Sequence[Finding]) -> None:
        """Report a repair that a person wrote and that ends nothing: else the node stays out without a word."""
        why = quarantine.why_not_repaired(node, findings, self._repair)
        if why:
            self._await_repair(node, why)
        self._awaited = why

    def _await_repair(self, node: Node, reason: str) -> None:
        if reason != self._awaited:
            self._announce(NORMAL, "AwaitsRepair", reason)
            log.info("node.waiting_for_repair", node=node.metadata.name, why=reason)
        self._awaited = reason

    async def _release(self, node: Node, reason: str, now: datetime) -> Node:
        self._awaited = ""
        ours = quarantine.read_record(node)
        if ours is not None:
            await self._report(node, now)
            node = await self._write(node, quarantine.uncordon_patch(node, ours))
            if ours.prior_unschedulable:
                reason += "; its cordon stays, as it was there before the quarantine: `kubectl uncordon` takes it away"
            self._announce(NORMAL, "Returned", reason)
            log.warning("node.returned", node=node.metadata.name, why=reason)
        await self._give_slots_back(node)
        return node

    async def _give_slots_back(self, node: Node) -> None:
        self._slots = None  # unknown, should a request fail
        await budget_slots.give_back_slots(self._cluster, node, self._policy)
        self._slots = frozenset()

    async def _write(self, node: Node, patch: dict[str, Any]) -> Node:
        node = await patch_node(self._cluster, node, patch)
        self._view.wrote(node)
        return node


def _evidence(finding: Finding) -> dict[str, str]:
    """The last evidence of the finding, word for word, and its time."""
    if not finding.evidence:
        return {}
    seen = finding.evidence[-1]
    return {"seen": seen.at.isoformat(timespec="seconds"), "record": seen.text}
