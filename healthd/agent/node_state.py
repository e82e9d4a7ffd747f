"""
What the agent knows of its node: findings, sources, devices, pods, and the position in the kernel log.

Kernel records, samples and the node itself go in. The status to publish comes out. It sends no requests. While the
cluster cannot be reached, everything is kept here in memory.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from healthd.agent.judge import Judge
from healthd.clock import Clock
from healthd.core.api import (
    ANNOTATION_BELOW_PEERS,
    Device,
    KernelLogCursor,
    Nic,
    Node,
    NodeHealthStatus,
    PodRhythm,
    RepairSeen,
)
from healthd.core.api.model import Finding
from healthd.core.diagnosis.blindness import KERNEL_LOG, Sources
from healthd.core.diagnosis.node_shape import NO_SHAPE, expecting, grown
from healthd.core.diagnosis.readings import NODE, RecordBatch, Sample
from healthd.core.diagnosis.signals.peers import BELOW_PEERS, peers_sample
from healthd.core.diagnosis.signals.spare_check import SPARE_CHECK_FAILED, spare_check_sample
from healthd.core.node import quarantine, work_request
from healthd.core.node.failed_check import read_failed_check
from healthd.core.node.pod_liveness import PodLives, PodTasks
from healthd.core.node.reporting import quiet_pods, works_differently

LISTS = {"nvml": "nvml.state", "infiniband": "ib.state"}
"""By source: the reading that each device has which its driver lists."""
RHYTHMS_LAST = timedelta(minutes=1)
"""What pods do is unknown when they were not sampled for longer, as when a read does not return."""


class NodeState:
    """
    The state of one node in this boot, *boot_id*. *inventory* holds its GPUs, where they are known from the start.
    """

    def __init__(
        self, boot_id: str, judge: Judge, sources: Sources, clock: Clock, inventory: Sequence[Device] = ()
    ) -> None:
        self._boot_id = boot_id
        self._judge = judge
        self._sources = sources
        self._clock = clock
        self._judge.answered((gpu.pci for gpu in inventory), clock.now())
        self._status = NodeHealthStatus(boot_id=boot_id, inventory=list(inventory))
        self._seen_this_boot: tuple[Sequence[Device], Sequence[Nic]] = ((), ())
        self._lives = PodLives()
        self._pods: Sequence[PodTasks] = ()
        self._rhythms_at = clock.now()
        self._work_until: datetime | None = None
        self._log_trouble = ""
        self._lists: dict[str, Sample] = {}
        """The last sample of each source that lists devices."""
        self._blind: dict[str, str] = {}

    @property
    def cursor(self) -> KernelLogCursor:
        """The last kernel record that was judged."""
        return self._status.cursor

    @property
    def findings(self) -> Sequence[Finding]:
        """All active findings, and those cleared not long ago."""
        return self._judge.findings

    @property
    def blind(self) -> Mapping[str, str]:
        """Why each blind source has no readings, as of the last `ingest_node`."""
        return self._blind

    @property
    def repaired(self) -> datetime | None:
        """When the node was last repaired, as far as known."""
        seen = self._status.repair_seen
        return seen.at if seen is not None else None

    @property
    def seen_this_boot(self) -> tuple[Sequence[Device], Sequence[Nic]]:
        """GPUs and ports that an earlier run of this agent saw since the node booted. They should still be there."""
        return self._seen_this_boot

    def expecting(self, sample: Sample) -> Sample:
        """*sample*, with what this node had at its best added."""
        return expecting(sample, self._status.best)

    def load(self, known: NodeHealthStatus | None, node: Node, now: datetime) -> None:
        """Load what an earlier run of this agent published. A repair that is new on *node* counts from now on."""
        self._sources.ingest_node(node)
        if known is not None:
            self._load(known, now)
        record = quarantine.read_record(node)
        if record is not None and not self._is_explained(record):
            self._judge.believe(quarantine.finding_of(record))
        self._note_repair(node)

    def set_log_readable(self, readable: bool, why: str = "it cannot be read") -> None:
        """Set whether the kernel log can be read: an agent that cannot read it must not report healthy."""
        self._log_trouble = "" if readable else why

    def begin(self, sources: Iterable[str], now: datetime) -> None:
        """These sources of readings will be sampled. Until their first sample their state is unknown."""
        self._sources.begin(sources, now)

    @property
    def lacks_gpus(self) -> bool:
        """Whether the driver lists a GPU that the report does not have: it was loaded later."""
        return self._lacks("nvml", {gpu.pci for gpu in self._status.inventory})

    @property
    def lacks_nics(self) -> bool:
        """The same for RDMA ports."""
        return self._lacks("infiniband", {nic.pci for nic in self._status.nics})

    def _lacks(self, source: str, known: Container[str]) -> bool:
        sample = self._lists.get(source)
        readings = sample.readings if sample is not None else ()
        return any(one.name == LISTS[source] and one.device not in known for one in readings)

    def set_gpus(self, gpus: Sequence[Device]) -> None:
        """The GPUs of the node, once they are known: the driver lists them now."""
        self._judge.answered((gpu.pci for gpu in gpus), self._clock.now())
        self._status = msgspec.structs.replace(self._status, inventory=list(gpus))

    def add_gpus(self, gpus: Sequence[Device]) -> None:
        """GPUs that the driver lists since. One that it does not list any more is not forgotten in this life."""
        listed = {gpu.pci for gpu in gpus}
        self.set_gpus([*(gpu for gpu in self._status.inventory if gpu.pci not in listed), *gpus])

    def set_nics(self, nics: Sequence[Nic]) -> None:
        """The RDMA ports of the node, once they are known."""
        self._status = msgspec.structs.replace(self._status, nics=list(nics))

    def add_nics(self, nics: Sequence[Nic]) -> None:
        """Ports that are listed since."""
        listed = {(nic.pci, nic.port) for nic in nics}
        self.set_nics([*(nic for nic in self._status.nics if (nic.pci, nic.port) not in listed), *nics])

    def ingest_records(self, batch: RecordBatch, now: datetime) -> bool:
        """Judge new kernel records. True when a finding changed, so that the agent should act at once."""
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
        """Judge a sample of a probe. True when the verdict may change, so that the agent should act at once."""
        self._sources.ingest_sample(sample)
        if sample.source in LISTS:
            self._lists[sample.source] = sample
        if (best := grown(self._status.best, sample)) is not self._status.best:
            self._status = msgspec.structs.replace(self._status, best=best)
        changed = self._judge.ingest_sample(sample, now)
        # Not at the first answer of each source: a start would cost one write for every source.
        return changed or bool(self._why_blind(now)) != bool(self._blind)

    def ingest_pods(self, pods: Sequence[PodTasks], now: datetime) -> bool:
        """
        Record which pods have processes. True when one began or ended, so that the agent should act at once.

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

    def ingest_rhythms(self, rhythms: Sequence[PodRhythm], now: datetime) -> bool:
        """
        Record what the pods do. True when one fell silent, works again, or works more or less than before, so that the
        agent should report it.
        """
        self._rhythms_at = now
        before, known = self._status.rhythms, list(rhythms)
        if known != before:
            self._status = msgspec.structs.replace(self._status, rhythms=known)
        if known == before:
            return False
        is_asked = any(rhythm.recent is not None for rhythm in known)
        return is_asked or quiet_pods(before) != quiet_pods(known) or works_differently(known)

    def is_asked_for_work(self, now: datetime) -> bool:
        """Whether the controller asks for the newest minutes of the work of pods."""
        return self._work_until is not None and now < self._work_until

    def ingest_node(self, node: Node, now: datetime) -> None:
        """Read from *node* which devices it should have and when it was repaired. Clear what people or time clear."""
        self._sources.ingest_node(node)
        self._work_until = work_request.read(node, now)
        if self._status.rhythms and now - self._rhythms_at > RHYTHMS_LAST:
            self._status = msgspec.structs.replace(self._status, rhythms=[])
        self._blind = self._why_blind(now)
        self._note_repair(node)
        self._judge.fade(now)
        self._ingest_peers(node, now)
        self._ingest_failed_check(node, now)

    def measure_ports(self, now: datetime) -> None:
        """Update how fast the counters of the ports grow, when the next measurement is due."""
        if (nics := self._judge.measure(self._status.nics, now)) is not None:
            self.set_nics(nics)

    def status(self, remark: str) -> NodeHealthStatus:
        """The status to publish. *remark* is added to the reason of the verdict."""
        verdict, message = self._judge.verdict(self._blind)
        self._status = msgspec.structs.replace(
            self._status,
            verdict=verdict,
            message=f"{message} {remark}".rstrip(),
            findings=self._judge.findings,
            sources=self._sources.answered,
        )
        return self._status

    def _is_explained(self, record: quarantine.Record) -> bool:
        """Whether *record* says nothing new: its fault was published, or repaired since, or another stands."""
        if self._judge.knows(record.finding) or any(f.quarantines and f.cleared_at is None for f in self.findings):
            return True
        seen = self._status.repair_seen
        return seen is not None and seen.stamp != record.repaired

    def _load(self, known: NodeHealthStatus, now: datetime) -> None:
        is_same_boot = known.boot_id == self._boot_id
        if is_same_boot:
            self._seen_this_boot = known.inventory, known.nics
        self._sources.load(known.sources, is_same_boot=is_same_boot)
        self._judge.load(known.findings, now, repaired_at=known.repair_seen.at if known.repair_seen else None)
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

    def _ingest_peers(self, node: Node, now: datetime) -> None:
        """Judge what the controller says of this node beside its peers."""
        if ANNOTATION_BELOW_PEERS in node.metadata.annotations or self._judge.knows(f"{NODE}/{BELOW_PEERS.name}"):
            self._judge.ingest_sample(peers_sample(node, now), now)

    def _ingest_failed_check(self, node: Node, now: datetime) -> None:
        """Judge what the controller says of the check of this node as an idle spare."""
        failed = read_failed_check(node)
        if failed is not None or self._judge.knows(f"{NODE}/{SPARE_CHECK_FAILED.name}"):
            why = (failed.why or "it does not say why") if failed is not None else ""
            self._judge.ingest_sample(spare_check_sample(why, now), now)

    def _note_repair(self, node: Node) -> None:
        """Also a repair from the time when this agent was down, or one stamped by a clock that is ahead of this one."""
        stamp, known = quarantine.repaired_at(node), self._status.repair_seen
        if stamp is not None and (known is None or stamp != known.stamp):
            # Never later than the first time it was seen: a timestamp in the future must not hide later faults, in any
            # run.
            now = self._clock.now()
            seen = RepairSeen(stamp=stamp, at=min(stamp, now))
            self._judge.repaired(seen.at, noticed=now)
            self._sources.settle()
            self._status = msgspec.structs.replace(self._status, repair_seen=seen, best=NO_SHAPE)

    def _why_blind(self, now: datetime) -> dict[str, str]:
        """Why each blind source has no readings."""
        blind = self._sources.blind(now)
        return {KERNEL_LOG: self._log_trouble, **blind} if self._log_trouble else blind
