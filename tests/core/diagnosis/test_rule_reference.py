"""The rows for people: none is missing, and each says what the judge does."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import msgspec
import pytest

from healthd.core.config import JudgePolicy
from healthd.core.diagnosis.judgement import Judgement
from healthd.core.diagnosis.klog import parse_message
from healthd.core.diagnosis.rule_reference import RuleRow, all_rules, check_pattern, kernel_rules
from healthd.core.diagnosis.signals.tables import known_rules
from healthd.core.diagnosis.tiers import tier
from healthd.core.diagnosis.xid import judge, sxid_codes, xid_codes
from tests.core.diagnosis.xid.messages import RAISED

LINKS = [
    "NVLink: fatal error detected on link 11(0x10000, 0x0, 0x4)",
    "NVLink: fatal error detected on link 11(0x10, 0x0, 0x0)",
    "NVLink: fatal error detected on link 11(0x2, 0x0, 0x0)",
    "NVLink: fatal error detected on link 11(0x800000, 0x0, 0x0)",
    "SAW_MVB Nonfatal XC0 i0 Link 04 (0x00000021 0x4)",
    "SAW_MVB Fatal XC0 i0 Link 04 (0x00000021 0x10)",
    "NETIR_LINK_EVT Nonfatal XC0 i0 Link 04 (0x023001c6 0x0)",
    "RLW_SRC_TRACK Nonfatal XC0 i0 Link 04 (0x000000e2 0x8)",
    "X Nonfatal XC0 i0 Link 04 (0x000003ff 0x1)",
]


def texts() -> list[str]:
    """Messages that make the judge answer everything that it can."""
    xid = [f"NVRM: Xid (PCI:0000:c1:00): {code}, text" for code in (*xid_codes(), 999)]
    links = [f"NVRM: Xid (PCI:0000:c1:00): {code}, {link}" for code in (74, *range(144, 151)) for link in LINKS]
    advice = [
        f"NVRM: Xid (PCI:0000:c1:00): 154, GPU recovery action changed from 0x0 (None) to 0x{number:x} (X)"
        for number in range(9)
    ]
    switch = [
        f"nvidia-nvswitch0: SXid (PCI:0000:b8:00.0): {code}, {word}, Link 1"
        for code in (*sxid_codes(), 99999)
        for word in ("Fatal", "Non-fatal")
    ]
    return [
        *xid,
        *links,
        *advice,
        *switch,
        "NVRM: GPU 0000:c1:00.0: GPU has fallen off the bus.",
        *(t for t, _ in RAISED),
    ]


def judgements() -> list[Judgement]:
    messages = [parse_message(text) for text in texts()]
    return [judgement for message in messages if message and (judgement := judge(message)).raises]


def row_of(rule: str) -> RuleRow | None:
    return next((row for row in kernel_rules() if fnmatchcase(rule, row.rule)), None)


def test_what_the_judge_answers_has_a_row_that_says_it() -> None:
    rows = {row.rule: row for row in kernel_rules()}
    unsaid = []
    for one in judgements():
        row = rows.get(one.rule) or next(row for name, row in rows.items() if fnmatchcase(one.rule, name))
        reported = {(outcome.severity, outcome.action, outcome.quarantines) for outcome in row.outcomes}
        if (one.severity, one.action, one.quarantines) not in reported:
            unsaid.append(one.rule)

    assert unsaid == []


def test_every_row_is_met_by_the_judge() -> None:
    met = {one.rule for one in judgements()} | {"kmsg-lost"}
    never = [row.rule for row in kernel_rules() if not any(fnmatchcase(rule, row.rule) for rule in met)]

    assert never == []


def test_every_name_is_there_once() -> None:
    names = [row.rule for row in all_rules()]

    assert len(names) == len(set(names))


def test_every_rule_about_readings_has_a_row() -> None:
    rows = {row.rule: row for row in all_rules()}

    assert set(known_rules()) <= set(rows)
    assert all(rows[name].quarantines is tier(rule.tier).quarantines for name, rule in known_rules().items())


def test_every_row_can_be_read() -> None:
    assert all(row.what and row.reads and row.threshold and row.outcomes for row in all_rules())


@pytest.mark.parametrize(
    ("rule", "threshold"),
    [
        ("xid-79", "once"),
        ("aer-storm", "30 in 10m"),
        ("nfs-not-responding", "once, until the kernel says that it is over"),
    ],
)
def test_the_threshold_is_reported(rule: str, threshold: str) -> None:
    row = row_of(rule)

    assert row is not None
    assert row.threshold == threshold


@pytest.mark.parametrize("pattern", ["aer-storm", "fs-*", "gpu-lost", "xid-79", "nvml-*"])
def test_every_rule_that_is_listed_can_be_tried_in_shadow(pattern: str) -> None:
    assert check_pattern(pattern) == pattern
    assert any(fnmatchcase(row.rule, pattern) for row in all_rules())


def test_a_pattern_that_no_rule_has_is_refused() -> None:
    with pytest.raises(ValueError, match="no rule has a name like 'fs-lost'"):
        check_pattern("fs-lost")


def test_rules_that_the_configuration_page_names_are_there() -> None:
    fields = {field.name: field for field in msgspec.structs.fields(JudgePolicy)}
    texts = [fields[name].type.__metadata__[0].description for name in ("shadow", "off", "limits", "tiers")]
    named = {word.split()[0] for text in texts for word in re.findall(r"`([a-z]+-[a-z*][^`]*)`", text)}

    assert {"ib-symbol-errors", "nvml-*", "fs-read-only"} <= named
    assert [name for name in sorted(named) if not check_pattern(name)] == []
