"""What holds for any text whatever: Hypothesis looks for the one for which it does not."""

from __future__ import annotations

import string
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthd.cli.commands.klog import printable
from healthd.clock import SystemClock
from healthd.core.api.model import Severity
from healthd.core.diagnosis.findings.tally import Tally, counted
from healthd.core.diagnosis.judgement import Needs
from healthd.core.diagnosis.klog import (
    LinkFault,
    MessageKind,
    Partial,
    normal_address,
    parse_line,
    parse_message,
    stitch,
    unescape,
)
from healthd.core.diagnosis.tiers import all_tiers
from healthd.core.diagnosis.xid import judge
from healthd.core.diagnosis.xid.nvlink import TIERS_OF_74, TIERS_OF_LINKS, tier_of_74, tier_of_link
from healthd.probes.klog.record import KernelTime, may_matter, parse_record
from tests.core.diagnosis.xid.messages import ENDED, HARMLESS, RAISED
from tests.fuzz.klog import read_line

small = settings(max_examples=100)
"""The same examples each time, and few: `tests.fuzz` looks further."""

START = datetime(2026, 1, 1, tzinfo=UTC)
MESSAGES = [*(text for text, _ in (*RAISED, *ENDED)), *HARMLESS]
HEX = "0123456789abcdefABCDEF"

hexes = st.integers(0, 0xFF).map(lambda number: f"{number:02x}")
names = st.text(string.ascii_letters + string.digits + "_:./[]()-", min_size=1, max_size=14).filter(
    lambda name: name.strip(".") == name and name != "<unknown>"
)
words = st.integers(0, 2**32 - 1)
faults = st.builds(
    LinkFault,
    link=st.none() | st.integers(0, 17),
    words=st.lists(words, max_size=8).map(tuple),
    fatal=st.booleans(),
)


@pytest.mark.slow
@small
@given(st.text())
def test_any_text_is_read_or_left(text: str) -> None:
    line = parse_line(text)
    message = parse_message(text)

    assert line is None or len(line.text) <= len(text) + text.count("\\x")
    assert message is None or judge(message).severity in set(Severity)


@pytest.mark.slow
@small
@given(st.sampled_from(MESSAGES), st.text(max_size=40))
def test_what_follows_a_message_never_changes_its_kind_to_an_error_code(text: str, tail: str) -> None:
    message = parse_message(text + tail)

    assert message is None or message.kind not in {MessageKind.XID, MessageKind.SXID}


@pytest.mark.slow
@small
@given(
    code=st.integers(1, 999_999),
    bus=hexes,
    slot=st.integers(0, 31).map(lambda number: f"{number:02x}"),
    pid=st.integers(0, 2**31),
    name=names,
)
def test_an_xid_is_read_as_it_was_written(code: int, bus: str, slot: str, pid: int, name: str) -> None:
    message = parse_message(f"NVRM: Xid (PCI:0000:{bus}:{slot}): {code}, pid={pid}, name={name}, Ch 00000011")

    assert message is not None
    assert (message.xid, message.pci, message.pid) == (code, f"0000:{bus}:{slot}.0", pid)
    assert (message.process, message.detail) == (name, "Ch 00000011")


@small
@given(
    st.text(alphabet=st.characters(exclude_characters="\n")), st.sampled_from(["app", "sudo", "nvidia-smi", "kernelx"])
)
def test_no_program_can_write_an_xid(text: str, program: str) -> None:
    line = f"Apr  7 03:14:15 node17 {program}[77]: {text} NVRM: Xid (PCI:0000:c1:00): 79, lost"

    assert read_line(1, line) is None


@small
@given(st.text(HEX, min_size=4, max_size=8), hexes, hexes, st.sampled_from(["", ".0", ".7"]))
def test_an_address_that_is_normal_stays_so(domain: str, bus: str, slot: str, function: str) -> None:
    once = normal_address(f"{domain}:{bus}:{slot}{function}")

    assert normal_address(once) == once


@small
@given(st.binary())
def test_any_bytes_are_a_record_or_none(raw: bytes) -> None:
    time = KernelTime(SystemClock(), START)

    assert parse_record(b"3,1,2,-;" + raw, boot_id="boot", time=time) is not None
    assert parse_record(raw, boot_id="boot", time=time) is None or b";" in raw


@pytest.mark.slow
@small
@given(st.text().filter(lambda text: "\\x" not in text))
def test_text_without_escapes_stays_as_it_is(text: str) -> None:
    assert unescape(text) == text


@small
@given(st.lists(st.sampled_from(["usb 1-1: new device", "NVRM: x", ""]), max_size=20), st.sampled_from(MESSAGES))
def test_one_message_among_boring_ones_is_read(boring: list[str], text: str) -> None:
    records = [f"6,{number},9,-;{line}\n" for number, line in enumerate([*boring, text])]

    assert may_matter("".join(records).encode())


@pytest.mark.slow
@small
@given(st.lists(st.text(max_size=40) | st.sampled_from(MESSAGES), max_size=30))
def test_putting_records_together_loses_none_that_stands_for_itself(texts: list[str]) -> None:
    partial = Partial()
    for text in texts:
        partial, whole = stitch(partial, text)

        assert text.strip().removeprefix("NVRM: ") in whole


@small
@given(faults, st.integers(144, 150))
def test_any_registers_of_a_link_have_a_tier(fault: LinkFault, xid: int) -> None:
    assert tier_of_74(fault) in TIERS_OF_74 <= set(all_tiers())
    assert tier_of_link(xid, fault) in TIERS_OF_LINKS <= set(all_tiers())


@small
@given(st.text())
def test_what_is_printed_cannot_drive_a_terminal(text: str) -> None:
    assert printable(text).isprintable()


@small
@given(st.lists(st.integers(0, 400), max_size=60), st.integers(1, 6), st.integers(0, 90))
def test_a_tally_is_full_when_so_many_came_within_the_time(at: list[int], times: int, within: int) -> None:
    tally: Tally = {}
    since: list[int] = []
    for second in sorted(at):
        since.append(second)
        tally, is_full = counted(tally, "k", Needs(times=times, within_s=within), START + timedelta(seconds=second))

        assert is_full == (sum(second - one <= within for one in since) >= times)
        if is_full:
            since.clear()
