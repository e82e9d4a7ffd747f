"""What messages without a code mean: each row of the table with a message that it fits, and near misses."""

from __future__ import annotations

import re

import pytest

from healthd.core.api.model import Blame, RepairAction, Severity
from healthd.core.diagnosis.judgement import Judgement
from healthd.core.diagnosis.klog import CONTRACT, MessageKind, parse_message
from healthd.core.diagnosis.klog.message import FULL_ADDRESS
from healthd.core.diagnosis.tiers import all_tiers, tier
from healthd.core.diagnosis.xid import judge, wordings
from healthd.core.diagnosis.xid.words import WordingEffect, wording_of
from tests.core.diagnosis.klog.reading import read
from tests.core.diagnosis.xid import drivers
from tests.core.diagnosis.xid.messages import ENDED, HARMLESS, NIC, RAISED


def judged(text: str) -> Judgement:
    return judge(read(text))


@pytest.mark.parametrize(("text", "rule"), RAISED)
def test_a_message_raises_the_finding_of_its_rule(text: str, rule: str) -> None:
    judgement = judged(text)

    assert (judgement.rule, judgement.raises, judgement.ends) == (rule, True, False)


@pytest.mark.parametrize(("text", "rule"), ENDED)
def test_good_news_ends_the_finding_of_its_rule(text: str, rule: str) -> None:
    judgement = judged(text)

    assert (judgement.rule, judgement.raises, judgement.ends) == (rule, False, True)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_resembles_a_fault_raises_nothing(text: str) -> None:
    judgement = judged(text)

    assert (judgement.raises, judgement.ends) == (False, False)
    assert judgement.severity is Severity.INFO


@pytest.mark.parametrize("text", [text for text, _ in drivers.RAISED if re.match(rf"[\w.-]+ {FULL_ADDRESS}[: ]", text)])
def test_a_line_about_a_device_raises_the_finding_of_that_device(text: str) -> None:
    assert judged(text).device == text.split()[1].rstrip(":")


def test_every_row_has_a_message_here_that_it_fits() -> None:
    texts = [text for text, _ in (*RAISED, *ENDED)] + HARMLESS
    met = {id(wording_of(read(text))) for text in texts}
    never = [row.summary for row in wordings() if id(row) not in met]

    assert never == []


def test_a_message_that_ends_or_means_nothing_takes_no_node_out_of_service() -> None:
    assert not any(tier(row.tier).quarantines for row in wordings() if row.tier)


def test_every_row_is_whole() -> None:
    for row in wordings():
        assert (row.tier in all_tiers()) is (row.says is WordingEffect.RAISES), row
        assert bool(row.rule) is (row.says is not WordingEffect.NOTHING), row
        assert row.needs is None or row.source, row
        assert all(word == word.lower() for word in (*row.any, *row.also)), row


def test_what_ends_is_also_raised() -> None:
    raised = {row.rule for row in wordings() if row.says is WordingEffect.RAISES}

    assert {row.rule for row in wordings() if row.says is WordingEffect.ENDS} <= raised


def test_kinds_that_scripts_know_are_those_that_always_were() -> None:
    assert {kind.value for kind in CONTRACT} == {"xid", "sxid", "nvrm", "aer", "mlx5", "efa", "ib", "mce", "oom"}


def test_one_corrected_error_is_no_finding_yet() -> None:
    needs = judged("nvidia 0000:c1:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer").needs

    assert needs is not None
    assert needs.times > 1


@pytest.mark.parametrize(
    ("text", "blame"),
    [
        (f"mlx5_core {NIC}: Port module event[error]: module 1, Cable error, Unsupported cable", Blame.LINK),
        (f"mlx5_core {NIC}: mlx5_pcie_event:299:(pid 7): Detected insufficient power on the PCIe slot", Blame.NODE),
        (f"mlx5_core {NIC}: poll_health:819:(pid 0): device's health compromised", Blame.DEVICE),
        ("ib0: multicast join failed for ff12:401b, status -110", Blame.PEER),
        ("nfs: server nas7 not responding, still trying", Blame.PEER),
        ("Out of memory: Killed process 4242 (trainer) total-vm:1kB", Blame.APPLICATION),
        ("a[7]: segfault at 7f79 ip 00007f7c sp 00007f7d error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]",
         Blame.APPLICATION),
    ],
)  # fmt: skip
def test_the_blame_is_located(text: str, blame: Blame) -> None:
    assert judged(text).blame is blame


def test_a_kernel_that_crashed_wants_a_reboot_at_leisure() -> None:
    judgement = judged("BUG: kernel NULL pointer dereference, address: 0000000000000008")

    assert (judgement.action, judgement.quarantines) == (RepairAction.REBOOT_NODE, False)
    assert judgement.message.endswith("Reboot the node when it is idle.")


def test_a_port_without_a_cable_is_no_warning_at_every_start() -> None:
    assert judged(f"mlx5_core {NIC} ens1: Link down").severity is Severity.INFO


def test_a_crashed_process_is_named() -> None:
    message = read("io worker[77]: segfault at 7f79 ip 00007f sp 00007f error 4 in libcuda.so.1[7f7c7ac00000+d3d3000]")

    assert (message.kind, message.process, message.pid) == (MessageKind.CRASH, "io worker", 77)


def test_the_rest_of_an_xid_in_a_record_of_its_own_is_nothing() -> None:
    assert parse_message("Head 00000003 Count 0023070b") is None


def without(text: str, words: tuple[str, ...]) -> str:
    for word in words:
        text = re.sub(re.escape(word), "…", text, flags=re.IGNORECASE)
    return text


@pytest.mark.parametrize(("text", "rule"), RAISED)
def test_without_its_words_a_message_does_not_raise_its_rule(text: str, rule: str) -> None:
    words = tuple(word for row in wordings() if row.rule == rule for word in row.any)
    message = parse_message(without(text, words))

    assert not words or message is None or judge(message).rule != rule
