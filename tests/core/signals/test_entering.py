"""From states to findings: raised, joined with other witnesses, cleared when good for long enough."""

from __future__ import annotations

from datetime import timedelta

from healthd.core.findings import Ledger
from healthd.core.model import Finding, KernelRecord, Severity, Verdict
from healthd.core.policy import JudgePolicy
from healthd.core.signals.entering import reconcile
from healthd.core.signals.rule import Grows, Is, Rule
from tests.core.signals.stage import MINUTE, NIC, Bench, read, rule

DOWN = rule(Is(frozenset({"DOWN"})), name="ib-link-down", tier="serious", clears_after=5 * MINUTE)
LOST = rule(Is(frozenset({"lost"})), name="nvml-gpu-lost", tier="reboot", same_as="gpu-lost", clears_after=5 * MINUTE)


class Node:
    """A ledger that follows what an engine sees."""

    def __init__(self, *rules: Rule, policy: JudgePolicy | None = None) -> None:
        self.bench = Bench(*rules)
        self.ledger = Ledger(policy=policy or JudgePolicy())

    def sees(self, value: float | str, *, after: timedelta = MINUTE, part: str = "port 1") -> None:
        self.bench.look(read(value, part=part), after=after)
        self.reconcile()

    def reconcile(self) -> None:
        self.ledger = reconcile(self.ledger, self.bench.engine, now=self.bench.now, boot_id="boot")

    def hears(self, text: str, sequence: int = 1) -> None:
        record = KernelRecord(sequence=sequence, at=self.bench.now, text=text, boot_id="boot")
        self.ledger = self.ledger.observe(record, now=self.bench.now)

    @property
    def standing(self) -> list[Finding]:
        return self.ledger.standing

    @property
    def only(self) -> Finding:
        (finding,) = self.standing
        return finding


def test_bad_state_has_a_finding_with_what_was_seen() -> None:
    node = Node(DOWN)
    node.sees("DOWN")

    assert node.only.id == f"{NIC}/ib-link-down"
    assert node.only.parts == ["port 1"]
    assert node.only.message.startswith(f"{NIC}, port 1: symbol errors. ")
    assert [(one.source, one.text) for one in node.only.evidence] == [("ib", "ib.symbol_error of port 1 is DOWN")]


def test_state_that_stays_bad_changes_nothing_more() -> None:
    node = Node(DOWN)
    node.sees("DOWN")
    before = node.ledger
    node.sees("DOWN")

    assert node.ledger == before


def test_finding_ends_only_when_the_state_was_good_for_long_enough() -> None:
    node = Node(DOWN)
    node.sees("DOWN")
    node.sees("ACTIVE")
    node.sees("ACTIVE", after=4 * MINUTE)
    stood = len(node.standing)
    node.sees("ACTIVE", after=MINUTE)

    assert stood == 1
    assert node.standing == []
    assert node.ledger.findings[0].cleared_by == "recovered"


def test_state_that_comes_back_must_be_good_for_twice_as_long() -> None:
    node = Node(DOWN)
    for _ in range(2):
        node.sees("DOWN")
        node.sees("ACTIVE")
        node.sees("ACTIVE", after=5 * MINUTE)
    stood = len(node.standing)
    node.sees("ACTIVE", after=5 * MINUTE)

    assert stood == 1
    assert node.standing == []
    assert "come back once" in node.ledger.findings[0].message


def test_finding_of_before_a_restart_ends_when_its_state_is_seen_to_be_good() -> None:
    node = Node(DOWN)
    node.sees("DOWN")
    node.bench.engine = Bench(DOWN).engine  # a new life of the agent
    node.sees("ACTIVE")
    node.sees("ACTIVE", after=5 * MINUTE)

    assert node.standing == []


def test_what_nobody_can_see_ends_nothing() -> None:
    node = Node(DOWN)
    node.sees("DOWN")
    node.bench.look(after=timedelta(days=1))
    node.reconcile()

    assert len(node.standing) == 1


def test_second_part_joins_the_finding_of_the_first() -> None:
    node = Node(DOWN)
    node.bench.look(read("DOWN"), read("ACTIVE", part="port 2"))
    node.reconcile()
    node.bench.look(read("DOWN"), read("DOWN", part="port 2"))
    node.reconcile()

    assert node.only.parts == ["port 1", "port 2"]
    assert node.only.count == 1


def test_finding_of_two_parts_ends_when_both_are_good() -> None:
    node = Node(DOWN)
    node.bench.look(read("DOWN"), read("DOWN", part="port 2"))
    node.reconcile()
    node.bench.look(read("ACTIVE"), read("DOWN", part="port 2"), after=10 * MINUTE)
    node.reconcile()
    node.bench.look(read("ACTIVE"), read("DOWN", part="port 2"), after=10 * MINUTE)
    node.reconcile()

    assert len(node.standing) == 1


def test_kernel_log_and_nvml_tell_of_one_fault() -> None:
    node = Node(LOST)
    node.hears(f"NVRM: Xid (PCI:{NIC[:10]}): 79, GPU has fallen off the bus.")
    node.sees("lost", part="")

    assert node.only.rule == "xid-79"
    assert node.only.also == ["nvml-gpu-lost"]
    assert [one.source for one in node.only.evidence] == ["kmsg", "ib"]


def test_nvml_may_be_first() -> None:
    node = Node(LOST)
    node.sees("lost", part="")
    node.hears(f"NVRM: Xid (PCI:{NIC[:10]}): 79, GPU has fallen off the bus.")

    assert node.only.rule == "nvml-gpu-lost"
    assert node.only.also == ["xid-79"]


def test_fault_that_the_kernel_told_of_does_not_end_because_a_state_looks_good() -> None:
    node = Node(LOST)
    node.sees("lost", part="")
    node.hears(f"NVRM: Xid (PCI:{NIC[:10]}): 79, GPU has fallen off the bus.")
    node.sees("ok", part="")
    node.sees("ok", after=timedelta(days=2), part="")

    assert node.ledger.verdict()[0] is Verdict.UNHEALTHY


def test_worse_witness_decides() -> None:
    mild = rule(Is(frozenset({"lost"})), name="nvml-odd", tier="suspect", same_as="gpu-lost")
    node = Node(mild)
    node.sees("lost", part="")
    node.hears(f"NVRM: Xid (PCI:{NIC[:10]}): 79, GPU has fallen off the bus.")

    assert node.only.quarantines
    assert node.only.severity is Severity.FATAL


def test_same_fault_of_another_device_is_another_finding() -> None:
    node = Node(LOST)
    node.hears("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.")
    node.sees("lost", part="")

    assert len(node.standing) == 2


def test_rule_in_shadow_says_what_it_would_do() -> None:
    node = Node(LOST, policy=JudgePolicy(shadow=("nvml-*",)))
    node.sees("lost", part="")

    assert node.only.shadow
    assert not node.only.quarantines
    assert node.only.message.startswith("In shadow, would take the node out of service:")
    assert node.ledger.verdict()[0] is Verdict.HEALTHY


def test_rule_in_shadow_is_no_witness() -> None:
    node = Node(LOST, policy=JudgePolicy(shadow=("xid-79",)))
    node.hears(f"NVRM: Xid (PCI:{NIC[:10]}): 79, GPU has fallen off the bus.")
    node.sees("lost", part="")

    assert {finding.rule: finding.quarantines for finding in node.standing} == {"xid-79": False, "nvml-gpu-lost": True}


def test_state_that_is_still_bad_after_a_repair_has_a_finding_again() -> None:
    node = Node(DOWN)
    node.sees("DOWN")
    node.bench.engine.settle(node.bench.now)
    node.ledger = node.ledger.clear_by_repair(node.bench.now)
    node.reconcile()
    cleared = node.standing
    node.sees("DOWN")

    assert cleared == []
    assert len(node.standing) == 1


def test_what_was_counted_before_a_repair_raises_nothing_after_it() -> None:
    node = Node(rule(Grows(10, timedelta(hours=1))))
    node.sees(0)
    node.sees(50)
    node.bench.engine.settle(node.bench.now)
    node.ledger = node.ledger.clear_by_repair(node.bench.now)
    node.sees(50)

    assert node.standing == []


def test_state_that_only_a_repair_ends_does_not_end_by_looking_good() -> None:
    node = Node(rule(Is(frozenset({"yes"})), tier="hardware", clears_after=None))
    node.sees("yes")
    node.sees("no")
    node.sees("no", after=timedelta(days=3))

    assert len(node.standing) == 1


def test_finding_that_is_watched_does_not_fade() -> None:
    node = Node(DOWN)
    node.sees("DOWN")
    node.ledger = node.ledger.decay(node.bench.now + timedelta(days=30))

    assert len(node.standing) == 1
