"""What a node's findings make its two conditions say, and when that is written."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest

from healthd.core.api import Condition
from healthd.core.api.model import Blame, Evidence, Finding, RepairAction, Severity
from healthd.core.diagnosis.blindness import NOT_BLIND
from healthd.core.node.conditions import ACCELERATOR_HEALTHY, CONDITIONS, FABRIC_HEALTHY, condition_of, state, to_write
from tests.fakes import START

HOUR = timedelta(hours=1)
READY = Condition(type="Ready", status="True", reason="KubeletReady", last_transition_time=START)


def a_finding(rule: str = "xid-79", *, quarantines: bool = True, cleared: bool = False, **given: object) -> Finding:
    """A finding of one GPU; one that does not quarantine is a warning."""
    return Finding(
        id=f"0000:3b:00.0/{rule}",
        device="0000:3b:00.0",
        rule=rule,
        severity=Severity.FATAL if quarantines else Severity.WARNING,
        action=RepairAction.REBOOT_NODE,
        blame=given.get("blame", Blame.DEVICE),  # type: ignore[arg-type]  # it is one where a test names it
        message=f"{rule} happened.",
        raised_at=START,
        last_at=START,
        quarantines=quarantines,
        evidence=[Evidence(source="kmsg", at=START, text="NVRM: Xid", sequence=7)],
        cleared_at=START if cleared else None,
    )


def said(*findings: Finding, blind: Mapping[str, str] = NOT_BLIND) -> dict[str, tuple[str, str]]:
    """Condition -> its status and reason."""
    return {one.type: (one.status, one.reason) for one in state(findings, blind)}


@pytest.mark.parametrize("rule", ["sxid-12028", "sxid-unknown-9", "xid-74", "xid-144", "xid-150", "mlx5-link-down"])
def test_links_switches_and_networks_are_the_fabric(rule: str) -> None:
    assert condition_of(rule) == FABRIC_HEALTHY


@pytest.mark.parametrize("rule", ["xid-79", "xid-14", "xid-740", "xid-121", "gpu-lost", "kmsg-lost", "mce-fatal"])
def test_what_stands_in_the_node_is_the_accelerator(rule: str) -> None:
    assert condition_of(rule) == ACCELERATOR_HEALTHY


def test_a_node_without_findings_is_healthy_in_both() -> None:
    assert said() == dict.fromkeys(CONDITIONS, ("True", "NoFindings"))


def test_broken_hardware_is_named_by_its_rule_and_leaves_the_other_condition_alone() -> None:
    assert said(a_finding("xid-79")) == {
        ACCELERATOR_HEALTHY: ("False", "xid-79"),
        FABRIC_HEALTHY: ("True", "NoFindings"),
    }


def test_a_warning_is_named_without_a_verdict() -> None:
    assert said(a_finding("mlx5-error", quarantines=False))[FABRIC_HEALTHY] == ("True", "mlx5-error")


def test_what_takes_the_node_out_of_service_is_the_reason_beside_what_only_sounds_worse() -> None:
    warning = a_finding("mce-fatal", quarantines=False)

    assert said(warning, a_finding("xid-48"))[ACCELERATOR_HEALTHY] == ("False", "xid-48")


def test_a_fault_of_an_application_says_nothing_about_the_node() -> None:
    assert said(a_finding("xid-13", quarantines=False, blame=Blame.APPLICATION)) == said()


def test_a_cleared_finding_says_nothing() -> None:
    assert said(a_finding(cleared=True)) == said()


def test_a_node_that_no_one_reads_is_unknown_but_what_was_seen_stands() -> None:
    assert said(a_finding("xid-79"), blind={"kernel log": "no permission"}) == {
        ACCELERATOR_HEALTHY: ("False", "xid-79"),
        FABRIC_HEALTHY: ("Unknown", "KernelLogUnreadable"),
    }


@pytest.mark.parametrize(
    ("source", "reasons"),
    [
        ("nvml", {ACCELERATOR_HEALTHY: ("Unknown", "NvmlUnreadable"), FABRIC_HEALTHY: ("True", "NoFindings")}),
        ("pcie-aer", {ACCELERATOR_HEALTHY: ("Unknown", "PcieAerUnreadable"), FABRIC_HEALTHY: ("True", "NoFindings")}),
        (
            "infiniband-counters",
            {
                ACCELERATOR_HEALTHY: ("True", "NoFindings"),
                FABRIC_HEALTHY: ("Unknown", "InfinibandCountersUnreadable"),
            },
        ),
        ("ethtool", {ACCELERATOR_HEALTHY: ("True", "NoFindings"), FABRIC_HEALTHY: ("Unknown", "EthtoolUnreadable")}),
    ],
)
def test_a_blind_source_is_the_reason_of_the_condition_that_it_speaks_to(
    source: str, reasons: dict[str, tuple[str, str]]
) -> None:
    assert said(blind={source: "it does not answer"}) == reasons


def test_of_blind_sources_that_of_the_gpus_is_the_reason() -> None:
    unread = dict.fromkeys(["clock", "edac", "nvml"], "it was not read yet")

    assert said(blind=unread)[ACCELERATOR_HEALTHY] == ("Unknown", "NvmlUnreadable")


def test_a_warning_does_not_make_a_blind_node_healthy() -> None:
    [accelerator, _] = state([a_finding("xid-63", quarantines=False)], {"nvml": "it does not answer"})

    assert (accelerator.status, accelerator.reason) == ("Unknown", "NvmlUnreadable")
    assert accelerator.message.startswith("nvml cannot be read: it does not answer. Besides, xid-63 happened.")


def test_the_message_says_what_happened_how_much_more_there_is_and_the_evidence() -> None:
    [accelerator, _] = state([a_finding("xid-79"), a_finding("xid-48")])

    assert accelerator.message == "xid-79 happened. (and 1 more) kmsg: NVRM: Xid"


def written(current: list[Condition], *findings: Finding, after: timedelta) -> list[Condition] | None:
    """What is written *after* START to a node that has *current*."""
    return to_write(current, state(findings), START + after, refresh_after=HOUR)


def first_write(*findings: Finding) -> list[Condition]:
    """The conditions of a node that had none of ours."""
    conditions = written([READY], *findings, after=timedelta(0))
    assert conditions is not None
    return conditions


def test_conditions_of_others_are_written_back_as_they_were() -> None:
    assert first_write()[0] == READY
    assert [condition.type for condition in first_write()] == ["Ready", *CONDITIONS]


def test_what_stands_as_it_should_is_written_again_only_to_show_life() -> None:
    assert written(first_write(), after=HOUR - timedelta(seconds=1)) is None
    assert written(first_write(), after=HOUR) is not None


def test_a_changed_status_is_written_at_once_and_moves_the_transition() -> None:
    conditions = written(first_write(), a_finding(), after=timedelta(seconds=1))

    assert conditions is not None
    times = {condition.type: condition.last_transition_time for condition in conditions}
    assert times == {"Ready": START, ACCELERATOR_HEALTHY: START + timedelta(seconds=1), FABRIC_HEALTHY: START}


def test_another_reason_for_the_same_status_keeps_the_transition() -> None:
    before = first_write(a_finding("xid-79"))
    conditions = written(before, a_finding("xid-48"), after=timedelta(seconds=1))

    assert conditions is not None
    assert {condition.last_transition_time for condition in conditions} == {START}


def test_new_evidence_of_the_same_waits_a_few_minutes() -> None:
    storm = a_finding("xid-79"), a_finding("xid-48")

    assert written(first_write(storm[0]), *storm, after=timedelta(minutes=4)) is None
    assert written(first_write(storm[0]), *storm, after=timedelta(minutes=5)) is not None
