"""The agent of one node on an embedded cluster: what it publishes, when it quarantines, what it remembers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from healthd.agent.agent import Agent
from healthd.agent.budget_slots import held_slots, take_slots
from healthd.agent.dependencies import AgentDependencies
from healthd.agent.judge import NodeFacts
from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import ClusterError, Forbidden, Invalid, Unavailable, WebhookFailed
from healthd.core.api import (
    ANNOTATION_BELOW_PEERS,
    ANNOTATION_QUARANTINE,
    ANNOTATION_REPAIRED,
    Lease,
    Nic,
    Node,
    NodeHealth,
    ObjectMeta,
    ObjectReference,
)
from healthd.core.api.model import KernelRecord, Verdict
from healthd.core.api.names import ANNOTATION_FAILED_CHECK, LABEL_NODE_HAND, LABEL_SPARE
from healthd.core.config import GiveBack, QuarantinePolicy
from healthd.core.diagnosis.readings import Reading, RecordBatch, Sample
from healthd.core.diagnosis.signals import peers, spare_check
from healthd.core.diagnosis.signals.nics import roce
from healthd.core.diagnosis.signals.rule import Rule
from healthd.core.remediation.spare_fleet import FINDING
from healthd.telemetry.metrics import Metrics
from tests.builders import a_node
from tests.fakes import START, ManualClock, counting_uids

OFF_THE_BUS = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
DOUBLE_BIT = "NVRM: Xid (PCI:0000:3b:00): 48, pid=1234, name=python, DBE (double bit error)"
APPLICATION = "NVRM: Xid (PCI:0000:3b:00): 13, pid=1234, name=python, Graphics Exception: ESR 0x404600=0x80000002"


class OneNode:
    """A cluster with the node `node-a`, and lives of its agent."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cluster = EmbeddedCluster.open(None, clock=self.clock, new_uid=counting_uids())
        self.policy = QuarantinePolicy()
        self.boot_id = "boot-1"
        self.through: Any = self.cluster
        self.records: list[KernelRecord] = []
        self.metrics = Metrics()
        self.said: list[tuple[str, str, str]] = []
        self.report_within = timedelta(0)
        self.rules: tuple[Rule, ...] = ()
        self.paused: list[bool] = []

    async def agent(self) -> Agent:
        """A new life of the agent, that has taken up what the one before left."""
        agent = Agent(
            AgentDependencies(
                node=NodeFacts(name="node-a", boot_id=self.boot_id),
                cluster=self.through,
                clock=self.clock,
                metrics=self.metrics,
                rules=self.rules,
                jitter=lambda: 1.0,
                report_within=self.report_within,
                announce=self._hear,
                quarantine=self.policy,
                pause_gpus=self.paused.append,
            )
        )
        await agent.load(self.clock.now())
        return agent

    def _hear(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        assert (about.kind, about.name) == ("Node", "node-a")
        self.said.append((kind, reason, message))

    def a_record(self, text: str = OFF_THE_BUS, *, facility: int = 0, at: datetime | None = None) -> KernelRecord:
        """The next record of the kernel's log."""
        when = at or self.clock.now()
        record = KernelRecord(
            sequence=len(self.records), at=when, text=text, priority=facility * 8 + 3, boot_id=self.boot_id
        )
        self.records.append(record)
        return record

    async def sample(self, agent: Agent, *records: KernelRecord, lost: int = 0) -> None:
        """One round of the agent."""
        agent.state.ingest_records(
            RecordBatch(records=records, last_sequence=len(self.records) - 1, lost=lost), self.clock.now()
        )
        await agent.cycle(self.clock.now())

    async def node(self) -> Node:
        """The node as it stands."""
        return await self.cluster.get(Node, "node-a")

    async def is_quarantined(self) -> bool:
        """Whether the node is out of service by healthd."""
        return ANNOTATION_QUARANTINE in (await self.node()).metadata.annotations

    async def verdict(self) -> Verdict:
        """What the agent published."""
        return (await self.cluster.get(NodeHealth, "node-a")).status.verdict

    async def slots(self) -> int:
        """Budget slots that are taken."""
        return len((await self.cluster.list(Lease)).items)

    def raised(self) -> dict[str, float]:
        """How many findings of each rule were counted."""
        samples = [sample for metric in self.metrics.findings_raised.collect() for sample in metric.samples]
        return {sample.labels["rule"]: sample.value for sample in samples}

    async def say_below_peers(self, what: str | None) -> None:
        """The controller writes what the node has less of, or that this is over."""
        await self.cluster.patch(Node, "node-a", {"metadata": {"annotations": {ANNOTATION_BELOW_PEERS: what}}})

    async def repair(self, at: datetime) -> None:
        """A technician says that the node was repaired."""
        note = {"metadata": {"annotations": {ANNOTATION_REPAIRED: at.isoformat()}}}
        await self.cluster.patch(Node, "node-a", note)


@pytest.fixture
async def one() -> OneNode:
    """A healthy node."""
    world = OneNode()
    await world.cluster.create(a_node())
    return world


async def test_a_node_without_findings_is_healthy_and_left_alone(one: OneNode) -> None:
    await one.sample(await one.agent())

    assert await one.verdict() is Verdict.HEALTHY
    assert not (await one.node()).spec.unschedulable


async def test_broken_hardware_takes_the_node_out_of_service_and_says_why(one: OneNode) -> None:
    await one.sample(await one.agent(), one.a_record())

    node = await one.node()
    assert node.spec.unschedulable
    assert [(taint.key, taint.value) for taint in node.spec.taints] == [("healthd.dev/quarantined", "xid-79")]
    assert "Xid 79" in node.metadata.annotations[ANNOTATION_QUARANTINE]
    assert (await one.verdict(), await one.slots()) == (Verdict.UNHEALTHY, 1)


@pytest.mark.parametrize("text", [APPLICATION, "usb 1-1: new device", "NVRM: something unheard of"])
async def test_a_message_that_does_not_convict_the_hardware_leaves_the_node_alone(one: OneNode, text: str) -> None:
    await one.sample(await one.agent(), one.a_record(text))

    assert not await one.is_quarantined()


async def test_a_line_that_a_process_wrote_to_the_log_is_no_evidence(one: OneNode) -> None:
    await one.sample(await one.agent(), one.a_record(facility=1))

    assert not await one.is_quarantined()


async def test_a_log_that_cannot_be_read_makes_the_node_unknown_and_nothing_more(one: OneNode) -> None:
    agent = await one.agent()
    agent.state.set_log_readable(False)
    await one.sample(agent)

    assert await one.verdict() is Verdict.UNKNOWN
    assert not await one.is_quarantined()


ON_THE_BUS = Sample(source="pcie", at=START, readings=[Reading("0000:3b:00.0", "pcie.gpu_driver", "nvidia")])


async def test_gpus_on_the_bus_that_nvml_does_not_list_make_the_node_unknown_and_nothing_more(one: OneNode) -> None:
    agent = await one.agent()
    agent.state.ingest_sample(ON_THE_BUS, START)
    changed = agent.state.ingest_sample(Sample(source="nvml", at=START, empty="NVML: Driver Not Loaded"), START)
    await one.sample(agent)

    node = await one.node()
    assert changed
    assert await one.verdict() is Verdict.UNKNOWN
    assert not node.spec.unschedulable
    assert {c.type: (c.status, c.reason) for c in node.status.conditions}["AcceleratorHealthy"] == (
        "Unknown",
        "NvmlUnreadable",
    )
    assert next(iter(one.metrics.source_blind.collect())).samples[0].labels == {"node": "node-a", "source": "nvml"}


async def test_sources_that_answer_for_the_first_time_make_one_write_together(one: OneNode) -> None:
    agent = await one.agent()
    agent.state.begin(["pcie", "edac", "host"], START)
    await one.sample(agent)
    wakes = [
        agent.state.ingest_sample(Sample(source=source, at=START, readings=[Reading("node", f"{source}.x", 0)]), START)
        for source in ("pcie", "edac", "host")
    ]

    assert await one.verdict() is Verdict.UNKNOWN
    assert wakes == [False, False, True]


async def test_a_source_that_had_readings_is_missed_after_a_restart_of_the_agent(one: OneNode) -> None:
    agent = await one.agent()
    agent.state.ingest_sample(Sample(source="edac", at=START, readings=[Reading("node", "edac.corrected", 0)]), START)
    await one.sample(agent)
    one.boot_id = "boot-2"
    agent = await one.agent()
    agent.state.ingest_sample(Sample(source="edac", at=START), START)
    await one.sample(agent)

    assert await one.verdict() is Verdict.UNKNOWN


async def test_what_the_node_had_is_remembered_over_a_reboot_and_until_a_repair(one: OneNode) -> None:
    def gpus(count: int) -> Sample:
        return Sample(source="pcie", at=one.clock.now(), readings=[Reading("node", "pcie.gpus", count)])

    agent = await one.agent()
    agent.state.ingest_sample(agent.state.expecting(gpus(8)), START)
    await one.sample(agent)
    one.boot_id = "boot-2"
    agent = await one.agent()
    remembered = agent.state.expecting(gpus(7)).readings
    await one.repair(one.clock.now())
    await one.sample(agent)

    assert Reading("node", "pcie.gpus.before", 8) in remembered
    assert agent.state.expecting(gpus(7)).readings == gpus(7).readings


async def test_the_quarantine_ends_with_the_repair_and_the_slot_is_free_again(one: OneNode) -> None:
    agent = await one.agent()
    await one.sample(agent, one.a_record())
    await one.repair(START + timedelta(minutes=1))
    one.clock.advance(timedelta(minutes=2))
    await one.sample(agent)

    node = await one.node()
    assert (node.spec.unschedulable, node.spec.taints) == (False, [])
    assert (await one.verdict(), await one.slots()) == (Verdict.HEALTHY, 0)


async def test_a_node_that_a_reboot_mended_stays_out_until_the_repair_annotation_where_configured(one: OneNode) -> None:
    one.policy = QuarantinePolicy(give_back=GiveBack.REPAIRED)
    await one.sample(await one.agent(), one.a_record())
    one.clock.advance(timedelta(minutes=2))
    one.boot_id = "boot-2"
    agent = await one.agent()
    await one.sample(agent)
    health = (await one.cluster.get(NodeHealth, "node-a")).status
    assert (await one.is_quarantined(), await one.slots(), health.verdict) == (True, 1, Verdict.HEALTHY)
    assert "healthd repair node-a" in health.message
    assert [reason for _, reason, _ in one.said] == ["Quarantined", "AwaitsRepair"]

    await one.repair(one.clock.now())
    await one.sample(agent)

    health = (await one.cluster.get(NodeHealth, "node-a")).status
    assert (await one.is_quarantined(), await one.slots()) == (False, 0)
    assert "healthd repair" not in health.message


async def test_a_repair_that_was_said_while_the_agent_was_down_counts(one: OneNode) -> None:
    await one.sample(await one.agent(), one.a_record())
    await one.repair(START + timedelta(minutes=1))
    one.clock.advance(timedelta(minutes=2))

    await one.sample(await one.agent())

    assert not await one.is_quarantined()


async def test_a_record_from_before_the_repair_never_acts(one: OneNode) -> None:
    old = one.a_record()
    await one.repair(START + timedelta(minutes=1))
    one.clock.advance(timedelta(minutes=2))

    await one.sample(await one.agent(), old)

    assert not await one.is_quarantined()


async def test_a_repair_stamped_by_a_clock_that_is_ahead_clears_now_and_hides_nothing_later(one: OneNode) -> None:
    agent = await one.agent()
    await one.sample(agent, one.a_record())
    await one.repair(START + timedelta(hours=1))
    await one.sample(agent)
    assert not await one.is_quarantined()

    one.clock.advance(timedelta(minutes=1))
    await one.sample(agent, one.a_record())

    assert await one.is_quarantined()


async def test_a_repair_stamped_ahead_of_time_hides_nothing_from_the_next_life_either(one: OneNode) -> None:
    agent = await one.agent()
    await one.sample(agent)
    await one.repair(START + timedelta(hours=1))
    await one.sample(agent)
    one.clock.advance(timedelta(minutes=1))
    await one.sample(agent, one.a_record())
    one.clock.advance(timedelta(minutes=1))
    await one.sample(await one.agent())

    assert await one.is_quarantined()


async def test_a_repair_that_was_said_while_the_agent_was_away_counts(one: OneNode) -> None:
    await one.sample(await one.agent(), one.a_record())
    one.clock.advance(timedelta(minutes=1))
    await one.repair(one.clock.now())
    await one.sample(await one.agent())

    assert not await one.is_quarantined()


async def test_a_repair_by_a_clock_that_is_behind_that_of_the_node_does_not_leave_it_out_without_a_word(
    one: OneNode,
) -> None:
    agent = await one.agent()
    await one.sample(agent, one.a_record())
    await one.repair(START - timedelta(hours=1))
    await one.sample(agent)
    await one.sample(agent)

    health = (await one.cluster.get(NodeHealth, "node-a")).status
    (said,) = [message for _, reason, message in one.said if reason == "AwaitsRepair"]
    assert await one.is_quarantined()
    assert "xid-79 was seen after that; where it was repaired since, say `healthd repair node-a`" in said
    assert f"Still in quarantine: {said}." in health.message


async def test_a_repair_from_before_the_fault_is_not_called_one_that_does_not_count(one: OneNode) -> None:
    await one.repair(START - timedelta(hours=1))
    agent = await one.agent()
    await one.sample(agent, one.a_record())
    await one.sample(agent)

    assert await one.is_quarantined()
    assert "AwaitsRepair" not in [reason for _, reason, _ in one.said]


async def test_a_node_that_a_person_had_cordoned_stays_cordoned_after_the_repair(one: OneNode) -> None:
    await one.cluster.patch(Node, "node-a", {"spec": {"unschedulable": True}})
    agent = await one.agent()
    await one.sample(agent, one.a_record())
    await one.repair(START)
    await one.sample(agent)

    assert not await one.is_quarantined()
    assert (await one.node()).spec.unschedulable
    (said,) = [message for _, reason, message in one.said if reason == "Returned"]
    assert "its cordon stays, as it was there before" in said


async def test_a_cordon_of_somebody_else_is_never_undone(one: OneNode) -> None:
    await one.cluster.patch(Node, "node-a", {"spec": {"unschedulable": True}})
    await one.repair(START)
    await one.sample(await one.agent())

    assert (await one.node()).spec.unschedulable


async def test_with_the_budget_used_up_the_node_is_reported_and_not_cordoned(one: OneNode) -> None:
    one.policy = QuarantinePolicy(budget=0)
    await one.sample(await one.agent(), one.a_record())

    assert not (await one.node()).spec.unschedulable
    assert (await one.verdict(), await one.slots()) == (Verdict.UNHEALTHY, 0)


async def test_with_cordon_off_it_only_reports(one: OneNode) -> None:
    one.policy = QuarantinePolicy(cordon=False)
    await one.sample(await one.agent(), one.a_record())

    assert not (await one.node()).spec.unschedulable
    assert (await one.verdict(), await one.slots()) == (Verdict.UNHEALTHY, 0)


async def test_a_record_that_was_judged_in_an_earlier_life_is_not_judged_again(one: OneNode) -> None:
    record = one.a_record()
    await one.sample(await one.agent(), record)
    await one.sample(await one.agent(), record)

    health = await one.cluster.get(NodeHealth, "node-a")
    assert [finding.count for finding in health.status.findings] == [1]


async def test_a_reboot_clears_what_a_reboot_puts_right(one: OneNode) -> None:
    await one.sample(await one.agent(), one.a_record())
    one.boot_id = "boot-2"
    one.records.clear()
    await one.sample(await one.agent())

    assert not await one.is_quarantined()


async def test_a_fault_acts_though_the_clock_was_set_back_by_hours_since_the_repair(one: OneNode) -> None:
    await one.sample(await one.agent(), one.a_record())
    await one.repair(one.clock.now())
    await one.sample(await one.agent())
    assert not await one.is_quarantined()

    one.clock.advance(timedelta(hours=-3))
    await one.sample(await one.agent(), one.a_record(at=one.clock.now()))

    assert await one.is_quarantined()


async def test_a_fault_by_a_clock_that_is_hours_behind_the_last_repair_is_not_over_when_the_agent_starts_again(
    one: OneNode,
) -> None:
    one.policy = QuarantinePolicy(give_back=GiveBack.REPAIRED)
    await one.repair(one.clock.now())
    await one.sample(await one.agent())
    one.clock.advance(timedelta(hours=-3))
    await one.sample(await one.agent(), one.a_record())

    one.clock.advance(timedelta(hours=8))
    await one.sample(await one.agent())
    assert await one.is_quarantined()
    assert await one.verdict() is Verdict.UNHEALTHY

    one.boot_id = "boot-2"
    one.records.clear()
    await one.sample(await one.agent())
    assert await one.is_quarantined()


@pytest.mark.parametrize("again", [False, True], ids=["the same life", "the next life"])
async def test_what_an_agent_says_is_written_though_the_clock_was_set_back_by_hours(one: OneNode, again: bool) -> None:
    agent = await one.agent()
    await one.sample(agent)
    one.clock.advance(timedelta(hours=-3))
    agent = await one.agent() if again else agent
    await one.sample(agent)
    written = (await one.cluster.get(NodeHealth, "node-a")).status.seen_at
    await one.sample(agent, one.a_record())

    assert written == one.clock.now().replace(microsecond=0)
    assert await one.verdict() is Verdict.UNHEALTHY


async def test_a_slot_that_a_crash_left_behind_is_given_back(one: OneNode) -> None:
    await take_slots(one.cluster, await one.node(), one.policy, START)
    await one.sample(await one.agent())

    assert await one.slots() == 0


async def test_a_node_that_is_out_keeps_the_slot_that_it_has_where_another_limit_has_none(one: OneNode) -> None:
    policy = QuarantinePolicy(budget=2, per_domain=1, domain_label="zone")
    await one.cluster.create(a_node("node-b", labels={"zone": "a"}))
    other = await one.cluster.get(Node, "node-b")
    await take_slots(one.cluster, other, policy, START)
    await one.cluster.patch(Node, "node-a", {"metadata": {"labels": {"zone": "a"}}})
    node = await one.node()
    mine = (await take_slots(one.cluster, node, QuarantinePolicy(budget=2), START)).slots

    taken = await take_slots(one.cluster, node, policy, START, held=mine, is_out=True)

    assert (taken.slots, taken.refusal) == (mine, "the budget of a, 1 nodes, is used up")
    assert await held_slots(one.cluster, node, policy) == mine


async def test_a_quarantined_node_that_leaves_the_cluster_takes_nothing_of_the_budget_with_it(one: OneNode) -> None:
    await one.sample(await one.agent(), one.a_record())
    assert await one.slots() == 1

    await one.cluster.delete(Node, "node-a")

    assert await one.slots() == 0


async def test_a_finding_that_was_cleared_is_not_counted_again_with_the_next_one(one: OneNode) -> None:
    agent = await one.agent()
    await one.sample(agent, one.a_record())
    await one.repair(START + timedelta(minutes=1))
    one.clock.advance(timedelta(minutes=2))
    await one.sample(agent)

    await one.sample(agent, one.a_record(APPLICATION))

    assert one.raised() == {"xid-79": 1, "xid-13": 1}


class LosesOneAnswer:
    """A cluster that does the next write of a node's health, and does not say so."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.armed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def patch(self, kind: type[Any], name: str, patch: Any, **where: Any) -> Any:
        answer = await self._cluster.patch(kind, name, patch, **where)
        if self.armed and kind is NodeHealth:
            self.armed = False
            raise Unavailable("timed out")
        return answer


async def test_a_verdict_whose_answer_was_lost_is_taken_back_when_it_is_over(one: OneNode) -> None:
    lossy = LosesOneAnswer(one.cluster)
    one.through = lossy
    agent = await one.agent()
    await one.sample(agent)
    lossy.armed = True
    await one.sample(agent, one.a_record())
    assert await one.verdict() is Verdict.UNHEALTHY

    await one.repair(START)
    await one.sample(agent)

    assert await one.verdict() is Verdict.HEALTHY


class TakesNoCordons:
    """A cluster that refuses all writes of one *kind* while there is an *error*, and takes those of a status."""

    def __init__(self, cluster: EmbeddedCluster, kind: type[Node | Lease]) -> None:
        self._cluster = cluster
        self._kind = kind
        self.error: ClusterError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def create(self, obj: Any, **how: Any) -> Any:
        self._check(type(obj))
        return await self._cluster.create(obj, **how)

    async def patch(self, kind: type[Any], name: str, patch: Any, **where: Any) -> Any:
        if not where.get("subresource"):
            self._check(kind)
        return await self._cluster.patch(kind, name, patch, **where)

    def _check(self, kind: type[Any]) -> None:
        if self.error is not None and kind is self._kind:
            raise self.error


@pytest.mark.parametrize("kind", [Node, Lease])
@pytest.mark.parametrize("error", [Forbidden("denied by a policy"), WebhookFailed("failed calling webhook"), None])
async def test_a_fault_is_published_though_no_one_may_write_to_the_node(
    one: OneNode, kind: type[Node | Lease], error: ClusterError | None
) -> None:
    one.through = refusing = TakesNoCordons(one.cluster, kind)
    agent = await one.agent()
    await one.sample(agent)
    refusing.error = error or Unavailable("500: something is wrong with this write alone")
    await one.sample(agent, one.a_record())
    for _ in range(3):
        one.clock.advance(timedelta(seconds=9))
        await one.sample(agent)

    said = (await one.cluster.get(NodeHealth, "node-a")).status.message
    assert await one.verdict() is Verdict.UNHEALTHY
    assert str(refusing.error) in said
    assert [reason for _, reason, _ in one.said] == ["QuarantineRefused"]
    assert not await one.is_quarantined()

    refusing.error = None
    await one.sample(agent)
    assert await one.is_quarantined()
    assert "cannot" not in (await one.cluster.get(NodeHealth, "node-a")).status.message


@pytest.mark.parametrize("error", [Forbidden("denied by a policy"), WebhookFailed("failed calling webhook")])
async def test_a_node_that_cannot_be_cordoned_uses_up_no_budget(one: OneNode, error: ClusterError) -> None:
    one.through = refusing = TakesNoCordons(one.cluster, Node)
    agent = await one.agent()
    refusing.error = error
    await one.sample(agent, one.a_record())
    assert await one.slots() == 0

    refusing.error = None
    await one.sample(agent)
    assert (await one.is_quarantined(), await one.slots()) == (True, 1)


async def test_a_write_that_fails_for_a_moment_is_in_no_report(one: OneNode) -> None:
    one.through = refusing = TakesNoCordons(one.cluster, Node)
    agent = await one.agent()
    await one.sample(agent)
    refusing.error = WebhookFailed("failed calling webhook")
    await one.sample(agent, one.a_record())
    one.clock.advance(timedelta(seconds=9))
    await one.sample(agent)

    assert await one.verdict() is Verdict.HEALTHY, "the cordon comes first"
    assert one.said == []


class TakesNoReports:
    """A cluster that refuses to write a node's health while it is *armed*."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.armed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def patch(self, kind: type[Any], name: str, patch: Any, **where: Any) -> Any:
        if self.armed and kind is NodeHealth:
            raise Unavailable("try again")
        return await self._cluster.patch(kind, name, patch, **where)


async def test_a_repaired_node_is_in_service_only_once_its_report_says_that_it_is_well(one: OneNode) -> None:
    one.through = store = TakesNoReports(one.cluster)
    agent = await one.agent()
    await one.sample(agent, one.a_record())
    await one.repair(START + timedelta(minutes=1))
    one.clock.advance(timedelta(minutes=2))

    store.armed = True
    await one.sample(agent)
    assert await one.is_quarantined()
    store.armed = False
    await one.sample(agent)

    assert not await one.is_quarantined()
    assert await one.verdict() is Verdict.HEALTHY


@pytest.mark.parametrize("said", ["yes", "2026-01-01T12:00:00", "12:00Z"])
async def test_a_repair_that_cannot_be_read_is_said_to_count_for_nothing(one: OneNode, said: str) -> None:
    agent = await one.agent()
    await one.sample(agent, one.a_record())
    await one.cluster.patch(Node, "node-a", {"metadata": {"annotations": {ANNOTATION_REPAIRED: said}}})
    for _ in range(2):
        one.clock.advance(timedelta(minutes=1))
        await one.sample(agent)

    why = f"healthd.dev/repaired on it: {said!r} is no time with its zone, such as 2026-01-01T12:00:00Z"
    assert await one.is_quarantined()
    assert f"Still in quarantine: {why}" in (await one.cluster.get(NodeHealth, "node-a")).status.message
    assert [message for _, reason, message in one.said if reason == "AwaitsRepair"] == [why]

    await one.repair(one.clock.now())
    one.clock.advance(timedelta(minutes=1))
    await one.sample(agent)
    assert not await one.is_quarantined()


async def test_a_health_report_that_somebody_deleted_is_made_again(one: OneNode) -> None:
    agent = await one.agent()
    await one.sample(agent)
    await one.cluster.delete(NodeHealth, "node-a")
    for _ in range(2):
        await one.sample(agent, one.a_record())

    assert await one.verdict() is Verdict.UNHEALTHY


class ReportsOfNewerVersion:
    """A cluster on which a newer healthd reports with words that this one does not know, until the status goes."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.is_readable = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def get(self, kind: Any, *args: Any, **options: Any) -> Any:
        """As any read of one object."""
        if kind is NodeHealth and not self.is_readable:
            raise Invalid("NodeHealth node-a: cannot be read: Invalid enum value 'doomed' - at `$.status.verdict`")
        return await self._cluster.get(kind, *args, **options)

    async def patch(self, kind: Any, name: str, patch: Any, **options: Any) -> Any:
        """The answer has what was there before, too."""
        done = await self._cluster.patch(kind, name, patch, **options)
        if kind is not NodeHealth:
            return done
        self.is_readable = self.is_readable or patch == {"status": None}
        return await self.get(kind, name)


async def test_a_node_is_guarded_though_its_stored_report_cannot_be_read(one: OneNode) -> None:
    await one.sample(await one.agent())
    one.through = ReportsOfNewerVersion(one.cluster)

    await one.sample(await one.agent(), one.a_record())

    assert await one.is_quarantined()
    assert one.through.is_readable
    assert await one.verdict() is Verdict.UNHEALTHY


async def test_a_report_that_becomes_unreadable_is_written_anew(one: OneNode) -> None:
    one.through = ReportsOfNewerVersion(one.cluster)
    one.through.is_readable = True
    agent = await one.agent()
    await one.sample(agent)
    one.through.is_readable = False

    await one.sample(agent, one.a_record())
    await one.sample(agent)

    assert await one.is_quarantined()
    assert one.through.is_readable
    assert await one.verdict() is Verdict.UNHEALTHY


async def test_a_quarantine_whose_finding_was_never_published_stands_until_the_repair(one: OneNode) -> None:
    """A crash came between the cordon and the report, and the kernel's ring has lost the record since."""
    await one.sample(await one.agent(), one.a_record())
    await one.cluster.delete(NodeHealth, "node-a")

    await one.sample(await one.agent())
    stood = await one.is_quarantined()
    repaired = one.clock.now().isoformat()
    await one.cluster.patch(Node, "node-a", {"metadata": {"annotations": {ANNOTATION_REPAIRED: repaired}}})
    await one.sample(await one.agent())

    assert stood
    assert not await one.is_quarantined()


async def only_findings_of(one: OneNode, rule: str) -> None:
    """The report has forgotten those of other rules, which have been over for long."""
    findings = (await one.cluster.get(NodeHealth, "node-a")).status.findings
    left = [msgspec.to_builtins(finding) for finding in findings if finding.rule == rule]
    await one.cluster.patch(NodeHealth, "node-a", {"status": {"findings": left}}, subresource="status")


async def test_a_quarantine_brings_back_no_fault_that_is_over_while_another_one_stands(one: OneNode) -> None:
    agent = await one.agent()
    for text in (OFF_THE_BUS, DOUBLE_BIT):
        await one.sample(agent, one.a_record(text))
    await only_findings_of(one, "xid-48")

    agent = await one.agent()

    assert [finding.rule for finding in agent.state.findings] == ["xid-48"]


async def test_a_quarantine_brings_back_no_fault_from_before_a_repair(one: OneNode) -> None:
    await one.sample(await one.agent(), one.a_record())
    one.clock.advance(timedelta(minutes=1))
    await one.repair(one.clock.now())
    agent = await one.agent()
    agent.state.ingest_node(await one.node(), one.clock.now())
    report = agent.state.status("")
    await one.cluster.patch(
        NodeHealth, "node-a", {"status": {**msgspec.to_builtins(report), "findings": []}}, subresource="status"
    )

    again = await one.agent()

    assert await one.is_quarantined()
    assert list(again.state.findings) == []


async def test_a_repair_counts_from_the_fault_also_where_the_quarantine_alone_is_known(one: OneNode) -> None:
    fault = one.a_record()
    one.clock.advance(timedelta(minutes=2))
    repaired = one.clock.now()
    one.clock.advance(timedelta(seconds=20))
    await one.sample(await one.agent(), fault)
    await one.cluster.delete(NodeHealth, "node-a")
    await one.repair(repaired)

    await one.sample(await one.agent())

    assert not await one.is_quarantined()


# What the controller says of a node beside its peers


async def test_a_node_below_its_peers_is_degraded_and_stays_in_service(one: OneNode) -> None:
    one.rules = peers.RULES
    agent = await one.agent()
    await one.say_below_peers("7 GPUs on the PCI bus (its peers: 8)")
    await one.sample(agent)
    status = (await one.cluster.get(NodeHealth, "node-a")).status

    assert status.verdict is Verdict.DEGRADED
    assert "7 GPUs on the PCI bus (its peers: 8)" in status.findings[0].evidence[-1].text
    assert not await one.is_quarantined()


async def test_a_node_that_is_no_longer_below_its_peers_is_healthy_again(one: OneNode) -> None:
    one.rules = peers.RULES
    agent = await one.agent()
    await one.say_below_peers("7 GPUs on the PCI bus (its peers: 8)")
    await one.sample(agent)
    await one.say_below_peers(None)
    for _ in range(4):
        one.clock.advance(timedelta(seconds=30))
        await one.sample(agent)

    assert await one.verdict() is Verdict.HEALTHY


# What the controller says of an idle spare that failed its check


async def failed_its_check(one: OneNode, at: datetime, *, spare: bool = True) -> None:
    """The controller writes that the spare failed."""
    labels = {LABEL_SPARE: "true" if spare else None}
    note = {ANNOTATION_FAILED_CHECK: f"{at.isoformat()} gpu-memory: a word was wrong"}
    await one.cluster.patch(Node, "node-a", {"metadata": {"labels": labels, "annotations": note}})


async def test_a_spare_that_failed_its_check_is_taken_out_of_service_and_says_why(one: OneNode) -> None:
    one.rules = spare_check.RULES
    await failed_its_check(one, one.clock.now())
    await one.sample(await one.agent())
    (finding,) = (await one.cluster.get(NodeHealth, "node-a")).status.findings

    assert await one.is_quarantined()
    assert finding.id == FINDING
    assert "a word was wrong" in finding.evidence[-1].text


async def test_it_stays_out_when_the_note_is_taken_off_until_it_is_repaired(one: OneNode) -> None:
    one.rules = spare_check.RULES
    agent = await one.agent()
    await failed_its_check(one, one.clock.now())
    await one.sample(agent)
    await one.cluster.patch(Node, "node-a", {"metadata": {"annotations": {ANNOTATION_FAILED_CHECK: None}}})
    for _ in range(20):
        one.clock.advance(timedelta(minutes=1))
        await one.sample(agent)

    assert await one.is_quarantined()
    await one.repair(one.clock.now())
    await one.sample(agent)
    assert not await one.is_quarantined()


async def test_a_note_from_before_a_repair_says_nothing(one: OneNode) -> None:
    one.rules = spare_check.RULES
    await failed_its_check(one, one.clock.now())
    await one.repair(one.clock.now() + timedelta(seconds=1))
    one.clock.advance(timedelta(minutes=1))
    agent = await one.agent()
    for _ in range(3):
        await one.sample(agent)

    assert not await one.is_quarantined()


async def test_a_node_that_is_no_spare_is_not_taken_out_by_such_a_note(one: OneNode) -> None:
    one.rules = spare_check.RULES
    await failed_its_check(one, one.clock.now(), spare=False)
    await one.sample(await one.agent())

    assert not await one.is_quarantined()


async def test_it_is_within_the_budget_like_every_other_fault(one: OneNode) -> None:
    one.rules = spare_check.RULES
    for slot in range(one.policy.budget):
        other = Lease(metadata=ObjectMeta(name=f"healthd-quarantine-cluster-{slot}", namespace=one.policy.namespace))
        await one.cluster.create(other)
    await failed_its_check(one, one.clock.now())
    await one.sample(await one.agent())

    assert not await one.is_quarantined()
    assert await one.verdict() is Verdict.UNHEALTHY


# What people read


async def test_what_becomes_of_the_node_is_reported_on_it_once(one: OneNode) -> None:
    agent = await one.agent()
    for _ in range(2):
        await one.sample(agent, one.a_record())
    await one.repair(one.clock.now())
    for _ in range(2):
        await one.sample(agent)

    assert [(kind, reason) for kind, reason, _ in one.said] == [("Warning", "Quarantined"), ("Normal", "Returned")]
    assert "xid-79" in one.said[0][2]


async def test_a_quarantine_that_the_budget_refused_is_reported_on_the_node(one: OneNode) -> None:
    one.policy = QuarantinePolicy(cordon=False)
    agent = await one.agent()
    for _ in range(2):
        await one.sample(agent, one.a_record())

    [(kind, reason, message)] = one.said
    assert (kind, reason) == ("Warning", "QuarantineRefused")
    assert "quarantine.cordon is off" in message


async def test_nothing_is_reported_before_the_report_that_makes_way_for_the_cordons_of_others(one: OneNode) -> None:
    one.report_within = timedelta(seconds=2)
    agent = await one.agent()
    await one.sample(agent, one.a_record())
    at_once = list(one.said)
    one.clock.advance(one.report_within)
    await one.sample(agent)

    assert await one.is_quarantined()
    assert at_once == []
    assert [reason for _, reason, _ in one.said] == ["Quarantined"]


async def test_a_port_of_a_rail_is_published_with_what_its_counters_grew_by(one: OneNode) -> None:
    one.rules = roce.RULES
    agent = await one.agent()
    rail, storage = [Nic(pci=pci, port=1, family="roce", rail=number) for pci, number in (("5c", 3), ("5d", None))]
    agent.state.set_nics([rail, storage])
    for step in range(14):
        shown = [Reading(pci, "roce.packet_seq_err", step * 1000, "port 1") for pci in ("5c", "5d")]
        agent.state.ingest_sample(
            Sample(source="infiniband-counters", at=one.clock.now(), readings=shown), one.clock.now()
        )
        await agent.cycle(one.clock.now())
        one.clock.advance(timedelta(minutes=5))
    await agent.report_all(one.clock.now())
    status = (await one.cluster.get(NodeHealth, "node-a")).status

    assert [nic.growth for nic in status.nics] == [{"roce.packet_seq_err": 13}, {}]


@pytest.mark.parametrize(
    ("label", "is_out", "is_paused"),
    [
        ("gpu-reset.boot-1", True, True),
        ("gpu-reset.boot-0", True, False),
        ("reboot.boot-1", True, False),
        ("gpu-reset.boot-1", False, False),
    ],
)
async def test_the_gpus_are_let_go_while_they_are_reset_in_this_boot_of_a_node_in_quarantine(
    one: OneNode, label: str, is_out: bool, is_paused: bool
) -> None:
    agent = await one.agent()
    if is_out:
        await one.sample(agent, one.a_record())
    await one.cluster.patch(Node, "node-a", {"metadata": {"labels": {LABEL_NODE_HAND: label}}})
    await agent.cycle(one.clock.now())
    await one.cluster.patch(Node, "node-a", {"metadata": {"labels": {LABEL_NODE_HAND: None}}})
    await agent.cycle(one.clock.now())

    assert one.paused[-2:] == [is_paused, False]
