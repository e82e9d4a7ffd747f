"""No name that a process chooses makes a fault of a device, and none changes what a true message means."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthd.core.api.model import Finding, KernelRecord
from healthd.core.diagnosis.findings import Ledger
from healthd.core.diagnosis.klog import parse_message
from healthd.core.diagnosis.xid import judge
from tests.core.diagnosis.klog.forged import COMMS, FILES, FORMATS, INTERFACES, QUOTES, WIRES, forged_lines

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ABOUT_PROCESSES = {"oom", "crash-in-gpu-library"}

comms = st.sampled_from(COMMS) | st.text(st.characters(max_codepoint=255, exclude_characters="\x00"), max_size=15)
files = st.sampled_from(FILES) | st.text(st.characters(exclude_characters="\x00/"), min_size=1, max_size=200)
wires = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":/"), min_size=1, max_size=15)


def findings_of(text: str, source: str = "kmsg") -> list[Finding]:
    """What an agent makes of a record that the kernel wrote."""
    record = KernelRecord(sequence=1, at=NOON, text=text, source=source)
    return Ledger().ingest_record(record, now=NOON).standing


@pytest.mark.parametrize("form", FORMATS)
def test_a_forged_line_is_about_a_process_or_nothing(form: str) -> None:
    lines = [form.format(comm=comm, file=file) for comm in COMMS for file in FILES]
    made = [finding for line in lines for finding in findings_of(line, "file")]

    assert {finding.rule for finding in made} <= ABOUT_PROCESSES
    assert not any(finding.quarantines for finding in made)


@pytest.mark.slow
@settings(max_examples=400)
@given(st.sampled_from(FORMATS), comms, files)
def test_whatever_a_process_is_called_it_is_no_fault_of_a_device(form: str, comm: str, file: str) -> None:
    made = findings_of(form.format(comm=comm, file=file), "file")

    assert {finding.rule for finding in made} <= ABOUT_PROCESSES


@given(st.sampled_from(WIRES), wires | st.sampled_from(INTERFACES), wires)
def test_whatever_an_interface_is_called_it_is_no_fault(form: str, wire: str, other: str) -> None:
    assert findings_of(form.format(wire=wire, other=other)) == []


@pytest.mark.parametrize("form", WIRES)
def test_an_interface_called_like_a_driver_is_none(form: str) -> None:
    lines = [form.format(wire=wire, other=other) for wire in INTERFACES for other in ("veth0", "fatal", "failed")]

    assert [line for line in lines if findings_of(line, "file")] == []


@pytest.mark.parametrize("other", ["fatal", "uncorrect", "panic"])
@pytest.mark.parametrize("wire", ["mce", "AER"])
def test_an_interface_that_was_renamed_is_no_machine_check(wire: str, other: str) -> None:
    assert findings_of(f"{wire}: renamed from {other}") == []


@pytest.mark.parametrize(("form", "rule"), QUOTES)
def test_a_true_message_means_the_same_whatever_process_it_quotes(form: str, rule: str) -> None:
    lines = [form.format(comm=comm, file=file) for comm in COMMS for file in FILES]

    assert {(finding.rule, finding.device) for line in lines for finding in findings_of(line)} == {(rule, "node")}


@pytest.mark.parametrize(
    ("code", "names", "text"),
    [
        (74, ["a, link 3(0x8)", "a, link 3(0x8", "link 3 (0x800000"],
         "NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)"),
        (145, ["a, X Fatal x", "a, X Fatal Link", "a, X Fatal"],
         "RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000008 0x00000000 0x00000000)"),
        (31, ["a, Xid 79", "): 79, GPU", "pid=1, name=b"], "Ch 00000011, engmask 00000101, intr 10000000"),
        (154, ["a, to 0x2 (x)"], "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
    ],
)  # fmt: skip
def test_the_name_in_an_xid_changes_nothing_of_it(code: int, names: list[str], text: str) -> None:
    plain = parse_message(f"NVRM: Xid (PCI:0000:c1:00): {code}, pid=9, name=a, {text}")
    assert plain is not None

    for name in names:
        named = parse_message(f"NVRM: Xid (PCI:0000:c1:00): {code}, pid=9, name={name}, {text}")

        assert named is not None
        assert (named.xid, named.pci, named.link, named.recovery) == (plain.xid, plain.pci, plain.link, plain.recovery)
        assert judge(named) == judge(plain)


AER = "pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: 0000:41:00.0"


@pytest.mark.parametrize("tags", [{}, {"DEVICE": "+pci:0000:40:01.2"}, {"DEVICE": "n3"}, {"SUBSYSTEM": "pci"}])
@pytest.mark.parametrize("source", ["kmsg", "journal"])
def test_a_line_about_a_device_without_its_tag_is_not_believed(source: str, tags: dict[str, str]) -> None:
    record = KernelRecord(sequence=1, at=NOON, text=AER, source=source, tags=tags)

    assert Ledger().ingest_record(record, now=NOON).standing == []


@pytest.mark.parametrize(
    ("source", "tags"),
    [("kmsg", {"DEVICE": "+pci:0000:40:01.1"}), ("journal", {"DEVICE": "+pci:0000:40:01.1"}), ("file", {})],
)
def test_a_line_with_its_tag_or_of_a_log_that_has_none_is(source: str, tags: dict[str, str]) -> None:
    record = KernelRecord(sequence=1, at=NOON, text=AER, source=source, tags=tags)

    assert [finding.rule for finding in Ledger().ingest_record(record, now=NOON).standing] == ["aer-fatal"]


def test_the_corpus_has_thousands_of_lines() -> None:
    assert len(forged_lines()) > 5000


@pytest.mark.parametrize("tag", ["+pci_express:0000:40:01.1:pcie004", "+pci:0000:40:01.1"])
def test_a_service_of_a_port_has_a_tag_of_its_own(tag: str) -> None:
    text = "pciehp 0000:40:01.1:pcie004: Slot(7): Link Down"
    record = KernelRecord(sequence=1, at=NOON, text=text, tags={"DEVICE": tag})

    assert bool(Ledger().ingest_record(record, now=NOON).standing) is tag.endswith(":pcie004")
