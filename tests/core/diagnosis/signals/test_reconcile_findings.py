"""From states to findings: raised, joined with other witnesses, cleared when good for long enough."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.api.model import Finding, KernelRecord, Severity, Verdict
from healthd.core.config import JudgePolicy
from healthd.core.diagnosis.findings import Ledger
from healthd.core.diagnosis.signals.gpus import nvml
from healthd.core.diagnosis.signals.reconcile_findings import reconcile
from healthd.core.diagnosis.signals.rule import Grows, Is, Rule
from tests.core.diagnosis.signals.engine_driver import MINUTE, NIC, EngineDriver, read, rule
from tests.kernel_log import tags_of

DOWN = rule(Is(frozenset({"DOWN"})), name="ib-link-down", tier="serious", clears_after=5 * MINUTE)
LOST = rule(Is(frozenset({"lost"})), name="nvml-gpu-lost", tier="reboot", same_as="gpu-lost", clears_after=5 * MINUTE)

PORT_DOWN = rule(Is(frozenset({"down"})), name="ib-port-down", tier="mechanics", same_as="nic-port-down")
CORRECTED = rule(Is(frozenset({"yes"})), name="pcie-aer-correctable", tier="ticket", same_as="pcie-errors")
LINK_DOWN = f"mlx5_core {NIC} eth2: Link down"
LINK_UP = f"mlx5_core {NIC} eth2: Link up"


class Node:
    """A ledger that follows what an engine sees."""

    def __init__(self, *rules: Rule, policy: JudgePolicy | None = None) -> None:
        self.bench = EngineDriver(*rules)
        self.ledger = Ledger(policy=policy or JudgePolicy())

    def sees(self, value: float | str, *, after: timedelta = MINUTE, part: str = "port 1") -> None:
        self.bench.sample(read(value, part=part), after=after)
        self.reconcile()

    def reconcile(self) -> None:
        self.ledger = reconcile(self.ledger, self.bench.engine, now=self.bench.now, boot_id="boot")

    def ingests(self, text: str, sequence: int = 1) -> None:
        record = KernelRecord(sequence=sequence, at=self.bench.now, text=text, boot_id="boot", tags=tags_of(text))
        self.ledger = self.ledger.ingest_record(record, now=self.bench.now)

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
    node.bench.engine = EngineDriver(DOWN).engine  # a new life of the agent
    node.sees("ACTIVE")
    node.sees("ACTIVE", after=5 * MINUTE)

    assert node.standing == []


def test_what_no_one_can_see_ends_nothing() -> None:
    node = Node(DOWN)
    node.sees("DOWN")
    node.bench.sample(after=timedelta(days=1))
    node.reconcile()

    assert len(node.standing) == 1


def test_second_part_joins_the_finding_of_the_first() -> None:
    node = Node(DOWN)
    node.bench.sample(read("DOWN"), read("ACTIVE", part="port 2"))
    node.reconcile()
    node.bench.sample(read("DOWN"), read("DOWN", part="port 2"))
    node.reconcile()

    assert node.only.parts == ["port 1", "port 2"]
    assert node.only.count == 1


def test_finding_of_two_parts_ends_when_both_are_good() -> None:
    node = Node(DOWN)
    node.bench.sample(read("DOWN"), read("DOWN", part="port 2"))
    node.reconcile()
    node.bench.sample(read("ACTIVE"), read("DOWN", part="port 2"), after=10 * MINUTE)
    node.reconcile()
    node.bench.sample(read("ACTIVE"), read("DOWN", part="port 2"), after=10 * MINUTE)
    node.reconcile()

    assert len(node.standing) == 1


def test_kernel_log_and_nvml_report_one_fault() -> None:
    node = Node(LOST)
    node.ingests(f"NVRM: Xid (PCI:{NIC[:10]}): 79, GPU has fallen off the bus.")
    node.sees("lost", part="")

    assert node.only.rule == "xid-79"
    assert node.only.also == ["nvml-gpu-lost"]
    assert [one.source for one in node.only.evidence] == ["kmsg", "ib"]


def test_nvml_may_be_first() -> None:
    node = Node(LOST)
    node.sees("lost", part="")
    node.ingests(f"NVRM: Xid (PCI:{NIC[:10]}): 79, GPU has fallen off the bus.")

    assert node.only.rule == "nvml-gpu-lost"
    assert node.only.also == ["xid-79"]


def test_fault_that_the_kernel_reported_does_not_end_because_a_state_looks_good() -> None:
    node = Node(LOST)
    node.sees("lost", part="")
    node.ingests(f"NVRM: Xid (PCI:{NIC[:10]}): 79, GPU has fallen off the bus.")
    node.sees("ok", part="")
    node.sees("ok", after=timedelta(days=2), part="")

    assert node.ledger.verdict()[0] is Verdict.UNHEALTHY


def test_link_that_the_kernel_and_a_probe_saw_go_down_ends_when_the_probe_sees_it_up() -> None:
    node = Node(PORT_DOWN)
    node.sees("down")
    node.ingests(LINK_DOWN)
    joined = node.only.also
    node.sees("up")
    node.sees("up", after=10 * MINUTE)

    assert joined == ["mlx5-link-down"]
    assert node.standing == []


def test_link_of_which_the_kernel_spoke_first_ends_when_the_probe_sees_it_up() -> None:
    node = Node(PORT_DOWN)
    node.ingests(LINK_DOWN)
    node.sees("down")
    joined = (node.only.rule, node.only.also, node.only.quarantines)
    node.sees("up")
    node.sees("up", after=9 * MINUTE)
    stood = len(node.standing)
    node.sees("up", after=MINUTE)

    assert joined == ("mlx5-link-down", ["ib-port-down"], True)
    assert stood == 1
    assert node.standing == []


def test_link_that_the_kernel_calls_up_is_down_as_long_as_the_probe_sees_it_down() -> None:
    node = Node(PORT_DOWN)
    node.sees("down")
    node.ingests(LINK_DOWN, 1)
    node.ingests(LINK_UP, 2)
    node.sees("down", after=60 * MINUTE)

    assert len(node.standing) == 1


def test_link_that_the_kernel_calls_down_again_must_be_good_for_longer() -> None:
    node = Node(PORT_DOWN)
    node.sees("down")
    node.sees("up")
    node.sees("up", after=9 * MINUTE)
    node.ingests(LINK_DOWN)  # between two looks
    node.sees("up", after=9 * MINUTE)
    stood = len(node.standing)
    node.sees("up", after=MINUTE)

    assert stood == 1
    assert node.standing == []


def test_what_the_kernel_says_once_and_never_takes_back_stands_for_as_long_as_its_word_does() -> None:
    node = Node(CORRECTED)
    node.sees("yes", part="")
    for sequence in range(30):
        node.ingests(f"pcieport {NIC}: AER: PCIe Bus Error: severity=Corrected, type=Physical Layer", sequence)
    joined = node.only.also
    node.sees("no", part="")
    node.sees("no", part="", after=timedelta(days=6))
    stood = len(node.standing)
    node.sees("no", part="", after=timedelta(days=2))

    assert joined == ["aer-storm"]
    assert stood == 1
    assert node.standing == []


def test_what_the_kernel_says_once_does_not_end_while_a_probe_still_sees_it() -> None:
    node = Node(CORRECTED)
    node.sees("yes", part="")
    for sequence in range(30):
        node.ingests(f"pcieport {NIC}: AER: PCIe Bus Error: severity=Corrected, type=Physical Layer", sequence)
    node.sees("yes", part="", after=timedelta(days=30))
    node.ledger = node.ledger.decay(node.bench.now)

    assert len(node.standing) == 1


def test_gpu_that_the_driver_wants_reset_does_not_end_because_its_links_look_good() -> None:
    links = rule(Is(frozenset({"down"})), name="nvml-nvlink-down", tier="serious", same_as="nvlink-down")
    node = Node(links)
    node.ingests(f"NVRM: Xid (PCI:{NIC[:10]}): 74, pid=1, NVLink: fatal error detected on link 3", 1)
    node.sees("down")
    node.ingests(f"NVRM: Xid (PCI:{NIC[:10]}): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset)", 2)
    node.sees("up")
    node.sees("up", after=timedelta(days=3))

    assert {finding.rule for finding in node.standing} == {"xid-74", "xid-154"}


@pytest.mark.parametrize("code", [46, 79])
def test_xid_that_the_kernel_and_nvml_report_is_one_finding(code: int) -> None:
    reported = next(rule for rule in nvml.RULES if rule.name == f"nvml-xid-{code}")
    node = Node(reported)
    node.bench.sample(read(0, name=reported.reads, part=""))
    node.ingests(f"NVRM: Xid (PCI:{NIC[:10]}): {code}, pid=1, name=python, something broke")
    node.bench.sample(read(1, name=reported.reads, part=""))
    node.reconcile()

    assert node.only.rule == f"xid-{code}"
    assert node.only.also == [f"nvml-xid-{code}"]


def test_two_lines_of_the_kernel_are_two_findings_however_alike() -> None:
    node = Node(LOST)
    node.ingests(f"NVRM: Xid (PCI:{NIC[:10]}): 48, pid=1, DBE", 1)
    node.ingests(f"NVRM: Xid (PCI:{NIC[:10]}): 95, pid=1, Uncontained: SM error", 2)

    assert [finding.rule for finding in node.standing] == ["xid-48", "xid-95"]


def test_worse_witness_decides() -> None:
    mild = rule(Is(frozenset({"lost"})), name="nvml-odd", tier="suspect", same_as="gpu-lost")
    node = Node(mild)
    node.sees("lost", part="")
    node.ingests(f"NVRM: Xid (PCI:{NIC[:10]}): 79, GPU has fallen off the bus.")

    assert node.only.quarantines
    assert node.only.severity is Severity.FATAL


def test_same_fault_of_another_device_is_another_finding() -> None:
    node = Node(LOST)
    node.ingests("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.")
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
    node.ingests(f"NVRM: Xid (PCI:{NIC[:10]}): 79, GPU has fallen off the bus.")
    node.sees("lost", part="")

    assert {finding.rule: finding.quarantines for finding in node.standing} == {"xid-79": False, "nvml-gpu-lost": True}


def test_rule_that_is_taken_out_of_shadow_acts_on_what_stands() -> None:
    node = Node(LOST, policy=JudgePolicy(shadow=("nvml-*",)))
    node.sees("lost")
    node.ledger = Ledger.of(node.ledger.findings)
    node.sees("lost")

    assert node.ledger.verdict()[0] is Verdict.UNHEALTHY


def test_rule_that_is_put_into_shadow_acts_no_more() -> None:
    node = Node(LOST)
    node.sees("lost")
    node.ledger = Ledger.of(node.ledger.findings, JudgePolicy(shadow=("nvml-*",)))
    node.sees("lost")

    assert node.ledger.verdict()[0] is Verdict.HEALTHY
    assert node.only.shadow


def test_rule_that_is_put_into_shadow_does_not_hide_another_witness() -> None:
    node = Node(LOST)
    node.sees("lost")
    node.ingests("NVRM: Xid (PCI:0000:5c:00): 79, pid=1, GPU has fallen off the bus.")
    node.ledger = Ledger.of(node.ledger.findings, JudgePolicy(shadow=("nvml-*",)))
    node.sees("lost")

    assert node.ledger.verdict()[0] is Verdict.UNHEALTHY


def test_part_that_is_not_reported_any_more_is_not_good() -> None:
    node = Node(DOWN)
    node.sees("DOWN", part="port 1")
    for _ in range(20):
        node.sees("ACTIVE", part="port 2")

    assert node.only.parts == ["port 1"]


def test_two_parts_that_only_a_repair_ends_are_reported_once() -> None:
    node = Node(rule(Is(frozenset({"1"})), name="nvml-row-remap-failure", tier="hardware", clears_after=None))
    node.sees(1, part="bank 1")
    both = read(1, part="bank 1"), read(1, part="bank 2")
    for _ in range(3):
        node.bench.sample(*both)
        node.reconcile()

    assert (node.only.parts, node.only.count) == (["bank 1", "bank 2"], 2)


def test_a_reading_of_the_whole_device_counts_for_its_parts() -> None:
    node = Node(DOWN)
    node.sees("DOWN", part="lane 3")
    for _ in range(6):
        node.sees("ACTIVE", part="")

    assert node.standing == []


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
