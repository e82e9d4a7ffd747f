"""
All rules about readings, and what an operator may change about them. Pure.

A rule may be left out (`judge.off`) or get other numbers (`judge.limits`). Trying one in shadow is possible for rules
of every source (`judge.shadow`, in the ledger of findings).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import msgspec

from healthd.core.config import JudgePolicy, format_duration, parse_duration
from healthd.core.diagnosis.signals import host, pcie, peers, spare_check
from healthd.core.diagnosis.signals.gpus import dcgm, nvml
from healthd.core.diagnosis.signals.nics import efa, ethernet, infiniband, roce
from healthd.core.diagnosis.signals.rule import AtLeast, Below, Changes, Grows, OutOfLine, Rule, Test
from healthd.core.diagnosis.site_rules import SHORTEST, rules_about_readings, tiers_of
from healthd.core.nearest import nearest

TABLES = (nvml, dcgm, pcie, host, infiniband, roce, efa, ethernet, peers, spare_check)
"""In the order of the documentation."""

_LIMIT = re.compile(r"(?P<rule>[a-z0-9-]+) (?P<number>\d+(?:\.\d+)?)(?: in (?P<within>\S+))?")
MOST = 1e15
PLAUSIBLE = {
    "nvml.temperature": (40, 150),
    "nvml.temperature.margin": (0, 50),
    "thermal.margin_c": (0, 50),
    "filesystem.free_inodes_percent": (0, 99),
}
"""The range of a useful limit. Outside it, every value is bad, or none."""
GRAMMAR = "RULE NUMBER [in DURATION]"
"""How a limit is written in the configuration."""


class Limit(NamedTuple):
    """An operator's own test for one rule."""

    rule: str
    test: Test


@cache
def known_rules() -> Mapping[str, Rule]:
    """Every rule about readings by name."""
    return {rule.name: rule for table in TABLES for rule in table.RULES}


def rules_of(policy: JudgePolicy) -> tuple[Rule, ...]:
    """The rules that *policy* leaves on, with its limits and tiers, and those that it adds."""
    limits, tiers = dict(map(parse_limit, policy.limits)), tiers_of(policy.tiers)
    known = tuple(
        msgspec.structs.replace(rule, test=limits.get(rule.name, rule.test), tier=tiers.get(rule.name, rule.tier))
        for rule in known_rules().values()
        if rule.name not in policy.off
    )
    return (*known, *rules_about_readings(policy.rules))


def parse_limit(text: str) -> Limit:
    """Parse one limit as an operator writes it. Raises ValueError with a text for an operator."""
    match = _LIMIT.fullmatch(" ".join(text.split()))
    if match is None:
        raise ValueError(f"must be a limit such as `ib-symbol-errors 50 in 1h` ({GRAMMAR}), not {text!r}")
    rule = known_rules()[check_rule(match["rule"])]
    return Limit(rule.name, _with_limit(rule, float(match["number"]), match["within"]))


def check_rule(name: str) -> str:
    """*name*, if it is a rule about readings. Raises ValueError with a text for an operator."""
    if name not in known_rules():
        near = nearest(name, known_rules())
        raise ValueError(f"there is no rule {name!r} about readings" + (f"; did you mean {near!r}?" if near else ""))
    return name


def _with_limit(rule: Rule, number: float, within: str | None) -> Test:
    test = rule.test
    _check_number(rule, number)
    if isinstance(test, AtLeast) and within is None:
        return AtLeast(number)
    if isinstance(test, Below) and within is None and not test.other:
        return Below(number)
    if not isinstance(test, Grows | Changes | OutOfLine):
        raise ValueError(f"{rule.name} has no limit that could be another" + (" with a span" if within else ""))
    span = parse_duration(within) if within else test.within
    if span < SHORTEST:
        raise ValueError(f"{rule.name} cannot be counted in {within}: a span is at least {format_duration(SHORTEST)}")
    match test:
        case Grows():
            return Grows(number, span)
        case Changes():
            if number % 1:
                raise ValueError(f"{rule.name} counts whole changes, not {number:g}")
            return Changes(int(number), span)
        case OutOfLine():
            return OutOfLine(test.score, number, span)


def _check_number(rule: Rule, number: float) -> None:
    """Raises ValueError for a limit that every reading passes, or none."""
    if number == 0:
        raise ValueError(
            f"{rule.name} with a limit of 0 would always be true, or never; to leave it out, use judge.off"
        )
    least, most = PLAUSIBLE.get(rule.reads, (0, MOST))
    if not least <= number <= most:
        raise ValueError(
            f"{rule.name} with a limit of {number:g} would always be true, or never; {least:g} to {most:g} make sense"
        )
