"""
The agent of one node: observe → judge → quarantine → publish.

The path of a kernel record and of a sample (of NVML, say), from the reader to the cordon:

1. `probes/klog` reads records and yields a `RecordBatch`. `probes/nvml` reads the driver's answers into a `Sample`.
2. `Listener.ingest_log` calls `Agent.ingest_records` with each batch, `Prober` calls `Agent.ingest_sample`.
3. `Judge.ingest_records` calls `Ledger.ingest_record`. `Judge.ingest_sample` calls `Engine.ingest`, then `reconcile`.
4. Both paths end in `Ledger.ingest_judgement`, which raises or repeats a finding. A changed finding wakes `cycle`.
5. `Agent.cycle` calls `Guard.guard`, which takes a slot of the budget and cordons the node. `Reporter.report` follows.

Findings and the cursor in the kernel log are stored in the node's `NodeHealth`. They are written together, so a record
is judged once, also across restarts. The quarantine is committed before the verdict is published, because the
quarantine keeps work off the node. When the node returns to service, the verdict is published first: a node in service
with an old report of its fault would look unhealthy again.

While the cluster cannot be reached, the agent keeps everything in memory and goes on judging. Once the cluster can be
reached again, the agent acts on the findings that are still active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

import msgspec
import structlog

from healthd.agent.guard import Guard
from healthd.agent.judge import Bench, Judge, owns_everything
from healthd.agent.node_view import AskedNode, NodeView
from healthd.agent.publish import Reporter, repaired_at
from healthd.clock import Clock
from healthd.cluster.port import Cluster, ClusterError, Conflict, Unusable
from healthd.core.api import Device, KernelLogCursor, Nic, Node, NodeHealthStatus, RepairSeen
from healthd.core.api.model import Finding
from healthd.core.backoff import Backoff, Jitter, no_jitter
from healthd.core.config import JudgePolicy, QuarantinePolicy
from healthd.core.diagnosis.blindness import KERNEL_LOG, Sources
from healthd.core.diagnosis.findings import BY_DEFAULT
from healthd.core.diagnosis.node_shape import NO_SHAPE, expecting, grown
from healthd.core.diagnosis.readings import RecordBatch, Sample
from healthd.core.diagnosis.signals.rule import Rule
from healthd.core.node import quarantine
from healthd.core.node.pod_liveness import PodLives, PodTasks
from healthd.telemetry.events import Announce, about, silently
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)

CHECK_AGAIN = timedelta(seconds=30)
"""How often an agent checks its node when nothing happens: findings fade, people repair."""
TRY_AGAIN = timedelta(seconds=1)
"""Wait after a failed request. Doubles up to TRY_AT_LEAST while requests fail."""
TRY_AT_LEAST = timedelta(seconds=30)
TRIES = 3
"""Within one cycle, when the kubelet or a controller writes to the node at the same moment."""


class Agent:
    """
    Judges and guards the node *node_name*.

    *owns*, *job* and *trust_user_space* go to the judge's `Bench`. *rules* are the rules about readings. *sources*
    holds the sources that should have readings by the configuration. *view* is how the agent reads its node; the
    default asks the cluster each time. After a quarantine, done or refused, the report follows in the second half of
    *report_within*, and then the event on the node: where many nodes fail at once, the reports of the first nodes must
    not delay the cordons of the last. *repair* is the command that marks the node as repaired.
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
        rules: Sequence[Rule] = (),
        metrics: Metrics,
        owns: Callable[[str], bool] = owns_everything,
        job: Callable[[], str] = str,
        inventory: Sequence[Device] = (),
        trust_user_space: bool = False,
        sources: Sources | None = None,
        view: NodeView | None = None,
        jitter: Jitter = no_jitter,
        report_within: timedelta = timedelta(0),
        announce: Announce = silently,
        repair: str = "",
    ) -> None:
        self.node_name = node_name
        self._cluster = cluster
        self._clock = clock
        self._boot_id = boot_id
        self._metrics = metrics
        self._view = view or AskedNode(cluster, node_name)
        self._reporter = Reporter(cluster, node_name, jitter=jitter)
        bench = Bench(node=node_name, boot_id=boot_id, owns=owns, job=job, trust_user_space=trust_user_space)
        self._judge = Judge(bench, judge, rules, metrics)
        self._judge.answered((gpu.pci for gpu in inventory), clock.now())
        self._status = NodeHealthStatus(boot_id=boot_id, inventory=list(inventory))
        self._seen_this_boot: tuple[Sequence[Device], Sequence[Nic]] = ((), ())
        self._lives = PodLives()
        self._pods: Sequence[PodTasks] = ()
        self._sources = sources or Sources()
        self._log_trouble = ""
        self._blind: dict[str, str] = {}
        self._guard = Guard(
            cluster,
            clock,
            self._view,
            policy,
            metrics,
            jitter,
            report=self._report_before_return,
            repair=repair or f"healthd repair {node_name}",
            say=lambda kind, reason, message: self._unsaid.append((kind, reason, message)),
        )
        self._jitter = jitter
        self._report_within = report_within
        self._report_at: datetime | None = None
        self._announce = announce
        self._unsaid: list[tuple[str, str, str]] = []
        """The actions since the last report: type, reason and message of the events on the node."""
        self._try_again = Backoff(TRY_AGAIN, TRY_AT_LEAST, jitter)
        self._trouble = ""

    @property
    def cursor(self) -> KernelLogCursor:
        """The last kernel record that was judged."""
        return self._status.cursor

    @property
    def trouble(self) -> str:
        """Why the last cycle could not act on the findings. Empty where it could."""
        return self._trouble

    @property
    def findings(self) -> Sequence[Finding]:
        """All active findings, and those cleared not long ago."""
        return self._judge.findings

    @property
    def seen_this_boot(self) -> tuple[Sequence[Device], Sequence[Nic]]:
        """GPUs and ports that an earlier run of this agent saw since the node booted. They should still be there."""
        return self._seen_this_boot

    def expecting(self, sample: Sample) -> Sample:
        """*sample*, with what this node had at its best added."""
        return expecting(sample, self._status.best)

    async def load(self, now: datetime) -> None:
        """Load the state of an earlier run of this agent. Raises ClusterError."""
        known = await self._reporter.read(now)
        node = await self._view.node()  # last: a repair found on it counts from now, unless it was known before
        self._sources.ingest_node(node)
        if known is not None:
            if known.boot_id == self._boot_id:
                self._seen_this_boot = known.inventory, known.nics
            self._sources.load(known.sources, is_same_boot=known.boot_id == self._boot_id)
            self._judge.load(known.findings, now)
            self._lives = PodLives(frozenset(known.live_pods), tuple(known.gone_pods))
            self._status = msgspec.structs.replace(
                self._status,
                cursor=known.cursor,
                lost_records=known.lost_records,
                inventory=self._status.inventory or known.inventory,
                live_pods=known.live_pods,
                gone_pods=known.gone_pods,
                repair_seen=known.repair_seen,
                sources=known.sources,
                best=known.best,
            )
            if known.repair_seen is not None:
                self._judge.repaired(known.repair_seen.at)
        record = quarantine.read_record(node)
        if record is not None and not self._judge.knows(record.finding):
            self._judge.believe(quarantine.finding_of(record))
        self._note_repair(node)

    def set_log_readable(self, readable: bool, why: str = "it cannot be read") -> None:
        """Set whether the kernel log can be read: an agent that cannot read it must not report healthy."""
        self._log_trouble = "" if readable else why

    def begin(self, sources: Iterable[str], now: datetime) -> None:
        """These sources of readings will be sampled. Until their first sample their state is unknown."""
        self._sources.begin(sources, now)

    def set_gpus(self, gpus: Sequence[Device]) -> None:
        """The GPUs of the node, once they are known: the driver lists them now."""
        self._judge.answered((gpu.pci for gpu in gpus), self._clock.now())
        self._status = msgspec.structs.replace(self._status, inventory=list(gpus))

    def set_nics(self, nics: Sequence[Nic]) -> None:
        """The RDMA ports of the node, once they are known."""
        self._status = msgspec.structs.replace(self._status, nics=list(nics))

    def ingest_pods(self, pods: Sequence[PodTasks], now: datetime) -> bool:
        """
        Record which pods have processes. True when one began or ended, so that `cycle` should run.

        The same list as before means that nothing changed. Then only a quiet pod can end.
        """
        if pods is self._pods and not self._lives.quiet_since:
            return False
        self._pods = pods
        before, self._lives = self._lives, self._lives.update(pods, now)
        self._status = msgspec.structs.replace(
            self._status, live_pods=sorted(self._lives.live), gone_pods=list(self._lives.gone)
        )
        return (before.live, before.gone) != (self._lives.live, self._lives.gone)

    def ingest_records(self, batch: RecordBatch, now: datetime) -> bool:
        """Judge new kernel records. True when a finding changed, so that `cycle` should run at once."""
        known = (self.cursor.boot_id, self.cursor.source) == (self._boot_id, batch.source)
        seen = self.cursor.sequence if known else -1
        unknown = [record for record in batch.records if record.sequence > seen]
        changed = self._judge.ingest_records(unknown, now, lost=batch.lost)
        self._status = msgspec.structs.replace(
            self._status,
            cursor=KernelLogCursor(boot_id=self._boot_id, sequence=max(seen, batch.last_sequence), source=batch.source),
            lost_records=self._status.lost_records + batch.lost,
        )
        return changed

    def ingest_sample(self, sample: Sample, now: datetime) -> bool:
        """Judge a sample of another probe. True when the verdict may change, so that `cycle` should run at once."""
        self._sources.ingest_sample(sample)
        if (best := grown(self._status.best, sample)) is not self._status.best:
            self._status = msgspec.structs.replace(self._status, best=best)
        changed = self._judge.ingest_sample(sample, now)
        # Not at the first answer of each source: a start would cost one write for every source.
        return changed or bool(self._see(now)) != bool(self._blind)

    async def cycle(self, now: datetime) -> timedelta:
        """Read the node and do what its findings ask for. Returns the time until the next cycle if nothing happens."""
        try:
            await self._look(now)
        except Unusable:
            raise
        except ClusterError as error:
            return self._tell(error)
        self._try_again.reset()
        self._trouble = ""
        self._metrics.loop_succeeded("agent", now)
        return self._look_again(now)

    async def report_all(self, now: datetime) -> None:
        """Write everything, also what could wait: the agent is about to stop. Raises ClusterError."""
        node = await self._view.node()
        self._say(node)
        await self._reporter.report(node, self._known(), now, even_details=True)

    async def _look(self, now: datetime) -> None:
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
        self._sources.ingest_node(node)
        self._blind = self._see(now)
        self._fade(node, now)
        said = self._status.repair_seen
        done = await self._guard.guard(node, self._judge.findings, now, repaired=said.at if said is not None else None)
        node = done.node
        if done.is_news:
            self._report_soon(now)
        if self._report_at is None or now >= self._report_at:
            await self._publish(node, now)
            self._report_at = None
            self._say(node)

    def _tell(self, error: ClusterError) -> timedelta:
        self._metrics.api_errors.labels(type(error).__name__).inc()
        if str(error) != self._trouble:  # a lasting error is logged once
            log.warning("agent.retry", node=self.node_name, error=str(error), kind=type(error).__name__)
        self._trouble = str(error)
        return self._try_again.next()

    def _look_again(self, now: datetime) -> timedelta:
        dates = [date for date in (self._guard.ask_at, self._report_at or self._reporter.due) if date is not None]
        return min([CHECK_AGAIN, *(max(date - now, timedelta(0)) for date in dates)])

    def _fade(self, node: Node, now: datetime) -> None:
        """Clear the findings that people or time clear."""
        self._note_repair(node)
        self._judge.fade(now)

    def _note_repair(self, node: Node) -> None:
        """Also a repair from the time when this agent was down, or one stamped by a clock that is ahead of this one."""
        stamp, known = repaired_at(node), self._status.repair_seen
        if stamp is not None and (known is None or stamp != known.stamp):
            # Never later than the first time it was seen: a timestamp in the future must not hide later faults, in any
            # run.
            now = self._clock.now()
            seen = RepairSeen(stamp=stamp, at=min(stamp, now))
            self._status = msgspec.structs.replace(self._status, repair_seen=seen)
            self._judge.repaired(seen.at, noticed=now)
            self._sources.settle()
            self._status = msgspec.structs.replace(self._status, best=NO_SHAPE)

    def _report_soon(self, now: datetime) -> None:
        if self._report_within:
            self._report_at = now + self._report_within * (1 + self._jitter()) / 2

    async def _report_before_return(self, node: Node, now: datetime) -> None:
        await self._reporter.report(node, self._known(), now)

    async def _publish(self, node: Node, now: datetime) -> None:
        if (nics := self._judge.measure(self._status.nics, now)) is not None:
            self._status = msgspec.structs.replace(self._status, nics=nics)
        known = self._known()
        self._metrics.show_node(self.node_name, known.verdict, known.findings, self._blind)
        await self._reporter.report(node, known, now)
        written = await self._reporter.show(node, known.findings, self._blind, now)
        if written is not None:
            self._view.wrote(written)

    def _say(self, node: Node) -> None:
        """Publish the events of what was done. Nothing waits for it."""
        unsaid, self._unsaid = self._unsaid, []
        for kind, reason, message in unsaid:
            self._announce(about(node), kind, reason, message)

    def _known(self) -> NodeHealthStatus:
        verdict, message = self._judge.verdict(self._blind)
        message = f"{message} {self._guard.remark}".rstrip()
        self._status = msgspec.structs.replace(
            self._status,
            verdict=verdict,
            message=message,
            findings=self._judge.findings,
            sources=self._sources.answered,
        )
        return self._status

    def _see(self, now: datetime) -> dict[str, str]:
        """Why each blind source has no readings."""
        blind = self._sources.blind(now)
        return {KERNEL_LOG: self._log_trouble, **blind} if self._log_trouble else blind
