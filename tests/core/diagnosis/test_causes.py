"""Faults that several witnesses tell of: every name joins some, and the kernel's word ends as it says."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from healthd.core.diagnosis.causes import KERNEL_REPORTED, stands_for
from healthd.core.diagnosis.signals.tables import known_rules
from healthd.core.diagnosis.xid.tables import xid_codes
from healthd.core.diagnosis.xid.words import wordings

WITNESSES = Counter(rule.same_as for rule in known_rules().values() if rule.same_as)
"""By fault: how many rules about readings tell of it."""


def test_every_fault_that_a_rule_names_has_another_witness() -> None:
    alone = {cause for cause, count in WITNESSES.items() if count + len(KERNEL_REPORTED.get(cause, ())) < 2}

    assert alone == set()


def test_every_fault_that_the_kernel_reports_can_be_seen_by_somebody_else() -> None:
    assert set(KERNEL_REPORTED) <= set(WITNESSES)


def test_every_rule_of_the_kernel_log_that_is_named_exists() -> None:
    exist = {row.rule for row in wordings()} | {f"xid-{code}" for code in xid_codes()} | {"gpu-lost"}

    assert {rule for rules in KERNEL_REPORTED.values() for rule in rules} <= exist


def test_a_rule_of_the_kernel_log_reports_one_fault() -> None:
    reported = Counter(rule for rules in KERNEL_REPORTED.values() for rule in rules)

    assert max(reported.values()) == 1


def test_every_xid_that_nvml_reports_is_the_kernels_fault_of_the_same_number() -> None:
    reported = {
        rule.name.removeprefix("nvml-"): rule.same_as for rule in known_rules().values() if "nvml-xid" in rule.name
    }

    assert reported
    assert all(xid in KERNEL_REPORTED[cause] for xid, cause in reported.items())


@pytest.mark.parametrize(
    ("rule", "stands"),
    [
        ("mlx5-link-down", timedelta(0)),  # the kernel says when it is over
        ("net-link-down", timedelta(0)),
        ("aer-storm", timedelta(days=7)),  # as long as its tier stands
        ("xid-79", None),  # until a reset or a repair
        ("ib-port-down", None),  # of a probe
    ],
)
def test_the_kernels_report_counts_for_as_long_as_it_says(rule: str, stands: timedelta | None) -> None:
    assert stands_for(rule) == stands
