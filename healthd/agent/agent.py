"""
The agent of one node: observe → judge → quarantine → publish.

The path of a kernel record and of a sample (of NVML, say), from the reader to the cordon:

1. `probes/klog` reads records and yields a `RecordBatch`. `probes/nvml` reads the driver's answers into a `Sample`.
2. `Listener` calls `NodeState.ingest_records` with each batch, `Prober` calls `NodeState.ingest_sample`.
3. `Judge.ingest_records` calls `Ledger.ingest_record`. `Judge.ingest_sample` calls `Engine.ingest`, then `reconcile`.
4. Both paths end in `Ledger.ingest_judgement`, which raises or repeats a finding. A changed finding wakes `cycle`.
5. `Agent.cycle` calls `Guard.guard`, which takes a slot of the budget and cordons the node. `Reporter.report` follows.

Findings and the cursor in the kernel log are stored in the node's `NodeHealth`. They are written together, so a record
is judged once, also across restarts. The quarantine is committed before the verdict is published, because the
quarantine keeps work off the node. When the node returns to service, the verdict is published first: a node in service
with an old report of its fault would look unhealthy again.

While the cluster cannot be reached, the agent goes on judging in memory. Once the cluster can be reached again, the
agent acts on the findings that are still active.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog

from healthd.agent.dependencies import AgentDependencies
from healthd.agent.guard import Guard
from healthd.agent.judge import Judge
from healthd.agent.node_state import NodeState
from healthd.agent.publish import Reporter
from healthd.cluster.port import ClusterError, Conflict, Unusable
from healthd.core.api import Node
from healthd.core.backoff import Backoff
from healthd.core.diagnosis.blindness import Sources
from healthd.core.node.gpu_reset import gpus_are_reset
from healthd.telemetry.events import about

log = structlog.get_logger(__name__)

CHECK_AGAIN = timedelta(seconds=30)
"""How often an agent checks its node when nothing happens: findings fade, people repair."""
TRY_AGAIN = timedelta(seconds=1)
"""Wait after a failed request. Doubles up to TRY_AT_LEAST while requests fail."""
TRY_AT_LEAST = timedelta(seconds=30)
TRIES = 3
"""Within one cycle, when the kubelet or a controller writes to the node at the same moment."""


class Agent:
    """Guards one node by what is known of it, its *state*, and publishes that."""

    def __init__(self, dependencies: AgentDependencies) -> None:
        node, clock = dependencies.node, dependencies.clock
        judge = Judge(node, dependencies.judge, dependencies.rules, dependencies.metrics)
        self.state = NodeState(node.boot_id, judge, Sources(dependencies.expected), clock, dependencies.inventory)
        self._node_name = node.name
        self._boot_id = node.boot_id
        self._pause_gpus = dependencies.pause_gpus
        self._metrics = dependencies.metrics
        self._view = dependencies.node_view
        self._reporter = Reporter(dependencies.cluster, node.name, jitter=dependencies.jitter)
        self._guard = Guard(
            dependencies,
            self._view,
            report=self._report_before_return,
            announce=lambda kind, reason, message: self._pending_events.append((kind, reason, message)),
        )
        self._jitter = dependencies.jitter
        self._report_within = dependencies.report_within
        self._report_at: datetime | None = None
        self._announce = dependencies.announce
        self._pending_events: list[tuple[str, str, str]] = []
        """The actions since the last report: type, reason and message of the events on the node."""
        self._try_again = Backoff(TRY_AGAIN, TRY_AT_LEAST, dependencies.jitter)
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """Why the last cycle could not act on the findings. Empty where it could."""
        return self._trouble

    async def load(self, now: datetime) -> None:
        """Load the state of an earlier run of this agent. Raises ClusterError."""
        known = await self._reporter.read(now)
        node = await self._view.node()  # last: a repair found on it counts from now, unless it was known before
        self.state.load(known, node, now)

    async def cycle(self, now: datetime) -> timedelta:
        """Read the node and do what its findings ask for. Returns the time until the next cycle if nothing happens."""
        try:
            await self._act_on_node(now)
        except Unusable:
            raise
        except ClusterError as error:
            return self._retry(error)
        self._try_again.reset()
        self._trouble = ""
        self._metrics.loop_succeeded("agent", now)
        return self._until_next_cycle(now)

    async def report_all(self, now: datetime) -> None:
        """Write everything, also what could wait: the agent is about to stop. Raises ClusterError."""
        node = await self._view.node()
        self._announce_events(node)
        await self._reporter.report(node, self.state.status(self._guard.remark), now, even_details=True)

    async def _act_on_node(self, now: datetime) -> None:
        node = await self._view.node()
        for tries_left in reversed(range(TRIES)):
            try:
                await self._act(node, now)
                break
            except Conflict:
                if not tries_left:
                    raise
                node = await self._view.reread()

    async def _act(self, node: Node, now: datetime) -> None:
        self._pause_gpus(gpus_are_reset(node, self._boot_id))
        self.state.ingest_node(node, now)
        try:
            done = await self._guard.guard(node, self.state.findings, now, repaired=self.state.repaired)
        except ClusterError:
            if self._guard.has_failed:  # else no one learns of the fault as long as no one may write to the node
                await self._publish(node, now)
                self._announce_events(node)
            raise
        node = done.node
        if done.has_changed:
            self._report_soon(now)
        if self._report_at is None or now >= self._report_at:
            await self._publish(node, now)
            self._report_at = None
            self._announce_events(node)

    def _retry(self, error: ClusterError) -> timedelta:
        self._metrics.api_errors.labels(type(error).__name__).inc()
        if str(error) != self._trouble:  # a lasting error is logged once
            log.warning("agent.retry", node=self._node_name, error=str(error), kind=type(error).__name__)
        self._trouble = str(error)
        return self._try_again.next()

    def _until_next_cycle(self, now: datetime) -> timedelta:
        dates = [date for date in (self._guard.ask_at, self._report_at or self._reporter.due) if date is not None]
        return min([CHECK_AGAIN, *(max(date - now, timedelta(0)) for date in dates)])

    def _report_soon(self, now: datetime) -> None:
        if self._report_within:
            self._report_at = now + self._report_within * (1 + self._jitter()) / 2

    async def _report_before_return(self, node: Node, now: datetime) -> None:
        await self._reporter.report(node, self.state.status(self._guard.remark), now)

    async def _publish(self, node: Node, now: datetime) -> None:
        self.state.measure_ports(now)
        status, blind = self.state.status(self._guard.remark), self.state.blind
        self._metrics.show_node(self._node_name, status.verdict, status.findings, blind)
        await self._reporter.report(node, status, now)
        written = await self._reporter.show(node, status.findings, blind, now)
        if written is not None:
            self._view.wrote(written)

    def _announce_events(self, node: Node) -> None:
        """Publish the events of what was done. Nothing waits for it."""
        pending, self._pending_events = self._pending_events, []
        for kind, reason, message in pending:
            self._announce(about(node), kind, reason, message)
