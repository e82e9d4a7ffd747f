"""What the judge of one node makes of samples and repairs, with no cluster around it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from healthd.agent.judge import Judge, NodeFacts
from healthd.core.api.model import Blame, Finding, KernelRecord, RepairAction, Severity
from healthd.core.config import JudgePolicy
from healthd.core.diagnosis.findings import BY_DEFAULT
from healthd.core.diagnosis.readings import Reading, Sample
from healthd.core.diagnosis.signals.rule import Rule
from healthd.core.diagnosis.signals.tables import known_rules
from healthd.telemetry.metrics import Metrics

NIC = "0000:5d:00.0"
GPU = "0000:3b:00.0"
PORT_DOWN, GPU_LOST = known_rules()["ib-port-down"], known_rules()["nvml-gpu-lost"]
XID_54 = known_rules()["nvml-xid-54"]
MILD = replace(PORT_DOWN, name="ib-mild", tier="pending")
START = datetime.fromisoformat("2026-03-01T12:00:00Z")
FACTS = NodeFacts(name="node-a", boot_id="boot-1")
SLOT = NodeFacts(name="gpu-0", boot_id="boot-1", owns=lambda device: device == GPU)


class Node:
    """One node with a port, and its judge."""

    def __init__(self, *port: Rule, facts: NodeFacts = FACTS) -> None:
        self.now = START
        self.metrics = Metrics()
        rules = [*(port or [PORT_DOWN]), GPU_LOST]
        self.judge = Judge(facts, BY_DEFAULT, rules, self.metrics)

    def sees(self, link: str, *, minutes: float = 1) -> bool:
        """One more look at the port."""
        return self.shows("infiniband", Reading(NIC, PORT_DOWN.reads, link, "port 1"), minutes=minutes)

    def counts(self, xids: int, *, minutes: float = 1) -> bool:
        """One more look at the GPU, which met so many Xids 54."""
        return self.shows("nvml", Reading(GPU, XID_54.reads, xids), minutes=minutes)

    def shows(self, source: str, reading: Reading, *, minutes: float = 1) -> bool:
        """One more sample, of one reading."""
        self.now += timedelta(minutes=minutes)
        return self.judge.ingest_sample(Sample(source=source, at=self.now, readings=[reading]), self.now)

    def sees_nothing(self, *, minutes: float = 1) -> bool:
        """The source does not answer."""
        self.now += timedelta(minutes=minutes)
        return self.judge.ingest_sample(
            Sample(source="infiniband", at=self.now, trouble="it does not answer"), self.now
        )

    @property
    def standing(self) -> list[str]:
        """Ids of what stands."""
        return [finding.id for finding in self.judge.findings if finding.cleared_at is None]


def announced_by_quarantine(device: str, rule: str) -> Finding:
    """All that a quarantine says of the finding that it was for."""
    return Finding(
        id=f"{device}/{rule}",
        device=device,
        rule=rule,
        severity=Severity.ERROR,
        action=RepairAction.INSPECT,
        blame=Blame.UNKNOWN,
        message="out of service",
        raised_at=START,
        last_at=START,
        quarantines=True,
    )


def test_source_in_trouble_ends_nothing_however_long_it_was_good_before() -> None:
    node = Node()
    node.sees("down")
    node.sees("down")
    node.sees("up")

    assert not node.sees_nothing(minutes=60)
    assert node.standing == [f"{NIC}/ib-port-down"]


def test_sample_after_a_repair_counts_though_the_clock_was_set_back() -> None:
    node = Node()
    node.judge.repaired(node.now)
    node.now -= timedelta(hours=2)
    node.sees("down")
    node.sees("down")

    assert node.standing == [f"{NIC}/ib-port-down"]


def test_sample_that_began_before_the_repair_does_not_count() -> None:
    node = Node()
    node.sees("down")
    began = node.now
    node.now += timedelta(minutes=1)
    node.judge.repaired(node.now)
    reading = Reading(NIC, PORT_DOWN.reads, "down", "port 1")
    node.judge.ingest_sample(Sample(source="infiniband", at=began, readings=[reading]), node.now)
    node.sees("down", minutes=0.1)

    assert node.standing == []


def test_fault_that_the_kernel_reported_after_a_repair_stands_though_the_node_booted_before_that_was_noticed() -> None:
    earlier, node = Node(XID_54), Node(XID_54, facts=NodeFacts(name="node-a", boot_id="boot-2"))
    record = KernelRecord(sequence=7, at=START, text=f"NVRM: Xid (PCI:{GPU[:-2]}): 54, detail", boot_id="boot-1")
    earlier.judge.ingest_records([record], START)
    node.judge.load(earlier.judge.findings, START)
    node.counts(0)
    node.counts(1)
    also = node.judge.findings[0].also
    node.judge.repaired(START - timedelta(minutes=1), node.now)

    assert (also, node.standing) == ([XID_54.name], [f"{GPU}/xid-54"])


def test_growth_that_may_have_come_before_a_repair_ends_with_it_though_the_clock_was_set_back_since() -> None:
    node = Node(XID_54)
    node.counts(0)
    node.counts(1, minutes=5)
    node.judge.repaired(node.now - timedelta(minutes=1), node.now - timedelta(seconds=5))
    node.counts(1)

    assert node.standing == []


def test_growth_since_a_repair_counts_though_the_clock_was_set_back_before_the_repair_was_noticed() -> None:
    node = Node(XID_54)
    node.counts(0)
    node.counts(1)
    node.judge.repaired(node.now - timedelta(minutes=1), node.now - timedelta(seconds=5))
    before = node.standing
    node.counts(1)

    assert (before, node.standing) == ([], [f"{GPU}/nvml-xid-54"])


def test_quarantine_for_a_reading_ends_by_itself_though_its_finding_was_never_published() -> None:
    node = Node()
    node.judge.believe(announced_by_quarantine(NIC, "ib-port-down"))
    node.sees("up")
    node.sees("up", minutes=10)

    assert node.standing == []


def test_quarantine_under_the_name_of_a_milder_rule_stands_until_the_repair() -> None:
    node = Node(MILD)
    node.judge.believe(announced_by_quarantine(NIC, MILD.name))
    node.sees("up")
    node.sees("up", minutes=10)

    assert node.standing == [f"{NIC}/{MILD.name}"]


def test_quarantine_that_names_its_witnesses_ends_with_the_last_of_them() -> None:
    node = Node(MILD, PORT_DOWN)
    node.judge.believe(replace(announced_by_quarantine(NIC, MILD.name), also=[PORT_DOWN.name], watched=True))
    node.sees("up")
    before = node.standing
    node.sees("up", minutes=10)

    assert (before, node.standing) == ([f"{NIC}/{MILD.name}"], [])


def test_quarantine_stands_while_a_witness_that_it_names_is_not_known_any_more() -> None:
    node = Node(MILD)
    node.judge.believe(replace(announced_by_quarantine(NIC, MILD.name), also=["left-out-since"], watched=True))
    node.sees("up")
    node.sees("up", minutes=10)

    assert node.standing == [f"{NIC}/{MILD.name}"]


def test_quarantine_for_a_kernel_line_stands_though_its_finding_was_never_published() -> None:
    node = Node()
    node.judge.believe(announced_by_quarantine(GPU, "xid-79"))
    node.sees("up")
    node.sees("up", minutes=10)

    assert node.standing == [f"{GPU}/xid-79"]


def test_quarantine_for_a_kernel_line_has_the_probes_as_further_witnesses() -> None:
    node = Node()
    node.judge.believe(announced_by_quarantine(GPU, "xid-79"))
    for _ in range(2):
        node.now += timedelta(minutes=1)
        lost = Reading(GPU, GPU_LOST.reads, "lost")
        node.judge.ingest_sample(Sample(source="nvml", at=node.now, readings=[lost]), node.now)

    assert node.standing == [f"{GPU}/xid-79"]


def test_quarantine_in_the_name_of_another_witness_joins_the_fault_that_stands() -> None:
    node = Node()
    node.judge.load([replace(announced_by_quarantine(GPU, "xid-79"), cause=GPU_LOST.same_as)], node.now)
    node.judge.believe(announced_by_quarantine(GPU, GPU_LOST.name))

    assert node.standing == [f"{GPU}/xid-79"]
    assert node.judge.findings[0].also == [GPU_LOST.name]


def test_finding_of_a_rule_that_is_left_out_now_ends_with_the_next_life_of_the_agent() -> None:
    node = Node()
    node.sees("down")
    node.sees("down")
    policy = JudgePolicy(off=("ib-port-down",))
    after = Judge(NodeFacts(name="node-a", boot_id="boot-1"), policy, [GPU_LOST], Metrics())
    after.load([*node.judge.findings, announced_by_quarantine(GPU, "xid-79")], node.now)

    assert [finding.id for finding in after.findings if finding.cleared_at is None] == [f"{GPU}/xid-79"]
    left_out = next(finding for finding in after.findings if finding.id == f"{NIC}/ib-port-down")
    assert left_out.cleared_by == "configuration"


@pytest.mark.parametrize("facts", [FACTS, SLOT], ids=["a machine", "one GPU of a machine"])
def test_lost_records_are_a_finding_that_is_counted_once_while_it_stands(facts: NodeFacts) -> None:
    node = Node(facts=facts)
    node.judge.ingest_records([], START, lost=7)
    node.judge.ingest_records([], START + timedelta(minutes=1), lost=5)

    assert node.standing == ["node/kmsg-lost"]
    assert node.metrics.registry.get_sample_value("healthd_findings_raised_total", {"rule": "kmsg-lost"}) == 1
