"""Rules of a site's own: what may be one, what a line of the log then means, and other tiers for known rules."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.core.api.model import Blame, Finding, KernelRecord, Severity
from healthd.core.config import JudgePolicy, SiteRule
from healthd.core.diagnosis.findings import Ledger
from healthd.core.diagnosis.rule_reference import check_tier_of
from healthd.core.diagnosis.signals.rule import AtLeast, Below, Changes, Grows, Is, Test
from healthd.core.diagnosis.signals.tables import rules_of
from healthd.core.diagnosis.site_rules import beginnings, check_site_rule, parse_pattern, parse_tier
from healthd.probes.klog.record import may_matter, may_matter_or
from tests.core.diagnosis.klog.forged import forged_lines

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LINE = "mydrv 0000:3b:00.0: fatal error 7 in unit 3"
RULE = SiteRule(
    name="site-mydrv-fatal",
    message="mydrv <device>: fatal error *",
    example=f"[   12.5] {LINE}",
    summary="the accelerator failed",
    tier="reset",
    shadow=False,
)


def changed(**fields: object) -> SiteRule:
    return msgspec.structs.replace(RULE, **fields)


def findings(*lines: str, policy: JudgePolicy, source: str = "file") -> list[Finding]:
    ledger = Ledger(policy=policy)
    for second, line in enumerate(lines):
        at = NOON + timedelta(seconds=second)
        ledger = ledger.ingest_record(KernelRecord(sequence=second, at=at, text=line, source=source), now=at)
    return ledger.standing


@pytest.mark.parametrize(
    ("pattern", "line", "device"),
    [
        ("mydrv <device>: fatal error *", LINE, "0000:3b:00.0"),
        ("mydrv: *fatal*", "mydrv: a fatal error", "node"),
        ("mydrv: *fatal*", "mydrv: all is well", None),
        ("mydrv: fatal error", "mydrv: fatal error", "node"),
        ("mydrv: fatal error", "mydrv: fatal error 7", None),
        ("mydrv: * failed", "mydrv: unit 7 failed", "node"),
        ("mydrv: * failed", "mydrv: unit 7 failed and came back", None),
        ("mydrv: a*a failed", "mydrv: a failed", None),
        ("mydrv: (wxyz.) *", "mydrv: (wxyz.) 7", "node"),
        ("mydrv: (wxyz.) *", "mydrv: wxyz! 7", None),
        ("mydrv <device>: fatal error *", "xmydrv 0000:3b:00.0: fatal error 7", None),
        ("mydrv <device>: fatal error *", "mydrv 3b: fatal error 7", None),
    ],
)
def test_a_pattern_fits_a_line_from_its_beginning_to_its_end(pattern: str, line: str, device: str | None) -> None:
    assert parse_pattern(pattern).device_in(line) == device


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("", "must begin with the name of a driver"),
        ("*", "must begin with the name of a driver"),
        ("* fatal error", "must begin with the name of a driver"),
        ("<device>: fatal error", "must begin with the name of a driver"),
        ("my: fatal error", "must begin with the name of a driver"),
        ("mydrv*", "must begin with the name of a driver"),
        ("mydrv: *", "fits nearly every line of mydrv"),
        ("mydrv <device>: *", "fits nearly every line of mydrv"),
        ("mydrv: a *", "fits nearly every line of mydrv"),
        ("mydrv: ** fatal", "two in a row"),
        ("mydrv: fatal" + "*a" * 9, "more than 8"),
        ("mydrv: fatal * <device>", "before the first"),
        ("mydrv: fatal \x1b", "printable ASCII"),
        ("mydrv: fatal " + "a" * 200, "at most 200"),
    ],
)
def test_a_pattern_that_fits_too_much_or_costs_too_much_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_pattern(pattern)


@given(st.text(max_size=60))
def test_any_pattern_is_read_or_refused_in_words(pattern: str) -> None:
    with suppress(ValueError):
        assert parse_pattern(pattern).beginning == pattern[: len(parse_pattern(pattern).beginning)]


def test_a_long_line_against_many_stars_is_done_at_once() -> None:
    """With a matcher that tries again this would not end."""
    pattern = parse_pattern("mydrv: a" + "*a" * 8 + "b")

    assert pattern.device_in("mydrv: " + "a" * 100_000) is None


def test_a_line_that_fits_is_a_finding_of_its_device() -> None:
    [finding] = findings(LINE, policy=JudgePolicy(rules=(RULE,)))

    assert finding.id == "0000:3b:00.0/site-mydrv-fatal"
    assert finding.quarantines
    assert finding.message == "0000:3b:00.0: the accelerator failed. Reset the GPU."


def test_a_rule_is_tried_before_it_acts() -> None:
    assert SiteRule().shadow
    [finding] = findings(LINE, policy=JudgePolicy(rules=(changed(shadow=True),)))

    assert (finding.shadow, finding.quarantines) == (True, False)


def test_a_rule_may_want_more_than_one_line() -> None:
    policy = JudgePolicy(rules=(changed(when="3 in 1h"),))

    assert findings(LINE, LINE, policy=policy) == []
    assert len(findings(LINE, LINE, LINE, policy=policy)) == 1


def test_a_line_of_a_device_needs_its_tag_here_too() -> None:
    assert findings(LINE, policy=JudgePolicy(rules=(RULE,)), source="kmsg") == []


@pytest.mark.slow
def test_no_forged_line_fits_a_rule() -> None:
    rules = tuple(
        changed(name=f"site-{at}", message=message)
        for at, message in enumerate(["NVRM: GPU*fallen*", "NVRM: *fallen off*", "mce: fatal*", "AER: uncorrect*"])
    )
    made = findings(*forged_lines(), policy=JudgePolicy(rules=rules))

    assert not any(finding.rule.startswith("site-") for finding in made)


def test_a_rule_of_the_site_hides_none_of_healthds() -> None:
    rule = changed(message="NVRM: Xid *bus*")
    made = findings("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", policy=JudgePolicy(rules=(rule,)))

    assert [finding.rule for finding in made] == ["xid-79", "site-mydrv-fatal"]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": ""}, "needs a name and a summary"),
        ({"summary": ""}, "needs a name and a summary"),
        ({"message": ""}, "needs a message or a reading, and not both"),
        ({"reading": "ib.symbol_error"}, "needs a message or a reading, and not both"),
        ({"example": ""}, "does not fit the message"),
        ({"example": "mydrv 0000:3b:00.0: all is well"}, "does not fit the message"),
        ({"example": f"node17 app[7]: {LINE}"}, "does not fit the message"),
        (
            {"message": "NVRM: GPU*bus*", "example": "NVRM: GPU[7]: segfault at 0 in bus[400000+1000]"},
            "a process chose",
        ),
        ({"when": "3"}, "a number in a span"),
        ({"when": "3 in 0s"}, "a number in a span"),
        ({"when": "0 in 1h"}, "a number in a span"),
        ({"when": "3 in soon"}, "is not a duration"),
        ({"blame": Blame.APPLICATION}, "takes no node out of service"),
        ({"message": "", "reading": "ib.symbol_error", "when": ""}, "must say of a reading"),
        ({"message": "", "reading": "ib.symbol_error", "when": "grows 0 in 1h"}, "always true"),
        ({"message": "", "reading": "ib.symbol_error", "when": "grows 5 in 1s"}, "at least 1m"),
        ({"message": "", "reading": "ib.symbol_error", "when": "changes 1.5 in 1h"}, "counted whole"),
    ],
)
def test_what_makes_no_rule_is_refused(fields: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_site_rule(changed(**fields))


def test_what_makes_a_rule_is_taken() -> None:
    check_site_rule(RULE)
    check_site_rule(changed(when="3 in 1h"))


@pytest.mark.parametrize(
    ("when", "test", "holds"),
    [
        ("grows 50 in 1h", Grows(50, timedelta(hours=1)), 0),
        ("changes 6 in 1h", Changes(6, timedelta(hours=1)), 0),
        ("at least 90 for 5m", AtLeast(90), 300),
        ("below 2.5", Below(2.5), 0),
        ("is DOWN for 1m", Is(frozenset({"DOWN"})), 60),
    ],
)
def test_a_reading_has_a_rule_of_the_site(when: str, test: Test, holds: int) -> None:
    rule = changed(message="", example="", reading="ib.symbol_error", when=when)
    made = rules_of(JudgePolicy(rules=(rule,)))[-1]

    assert (made.name, made.reads, made.tier) == ("site-mydrv-fatal", "ib.symbol_error", "reset")
    assert (made.test, made.holds) == (test, timedelta(seconds=holds))


def test_another_tier_counts_for_messages_and_for_readings() -> None:
    policy = JudgePolicy(tiers=("fs-read-only reboot", "ib-symbol-errors record"))
    [finding] = findings("EXT4-fs (sda1): Remounting filesystem read-only", policy=policy)
    rules = {rule.name: rule.tier for rule in rules_of(policy)}

    assert (finding.severity, finding.quarantines) == (Severity.FATAL, True)
    assert finding.message.endswith("then check the file system. Reboot the node.")
    assert rules["ib-symbol-errors"] == "record"


def test_a_tier_for_codes_that_are_not_in_the_catalogue_counts_for_each_of_them() -> None:
    check_tier_of(*parse_tier("xid-unknown-* record"))

    [finding] = findings("NVRM: Xid (PCI:0000:3b:00): 997, text", policy=JudgePolicy(tiers=("xid-unknown-* record",)))

    assert (finding.rule, finding.severity) == ("xid-unknown-997", Severity.INFO)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("fs-read-only", "must be a rule and a tier"),
        ("fs-read-only awful", "must be a tier"),
        ("fs-red-only reboot", "no rule 'fs-red-only'"),
        ("xid-154 record", "no rule 'xid-154' can have another tier"),
        ("oom reboot", "any process could take nodes out of service"),
        ("xid-31 reset", "any process could take nodes out of service"),
    ],
)
def test_a_tier_that_cannot_be_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_tier_of(*parse_tier(text))


def test_the_reader_lets_through_what_rules_of_the_site_are_about() -> None:
    raw = b"6,1,1,-;usb 1-1: x\n6,1,1,-;mydrv: fatal error\n"
    wanted = may_matter_or(beginnings([changed(message="mydrv: fatal *")]))

    assert not may_matter(raw)
    assert wanted(raw)
    assert not wanted(b"6,1,1,-;usb mydrv: fatal error\n")


def test_what_a_rule_raised_ends_when_the_rule_is_gone() -> None:
    raised = findings(LINE, policy=JudgePolicy(rules=(RULE,)))

    assert Ledger.of(raised, JudgePolicy(rules=(RULE,))).clear_left_out(NOON).standing == raised
    assert Ledger.of(raised, JudgePolicy()).clear_left_out(NOON).standing == []
