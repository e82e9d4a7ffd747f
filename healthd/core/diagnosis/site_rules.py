"""
A site's own rules about kernel lines and readings, and other tiers for existing rules. Pure.

A pattern of a line is literal text with a few `*`. It is matched piece by piece from the left, in time linear in the
line. It begins with the name of a driver, and is never tried on a line that may begin with text chosen by a process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from functools import cache
from typing import NamedTuple

from healthd.core.api.model import Blame
from healthd.core.config import format_duration, parse_duration
from healthd.core.config.site_rules import SiteRule
from healthd.core.diagnosis.judgement import Judgement, Needs, sentence
from healthd.core.diagnosis.klog import LONGEST_MESSAGE, begins_with_a_name, normal_address, parse_line
from healthd.core.diagnosis.klog.message import FULL_ADDRESS
from healthd.core.diagnosis.readings import NODE
from healthd.core.diagnosis.signals.rule import AtLeast, Below, Changes, Grows, Is, Rule, Test
from healthd.core.diagnosis.tiers import tier
from healthd.core.nearest import nearest

TIERS = (
    "record",
    "application",
    "ticket",
    "suspect",
    "serious",
    "reboot_idle",
    "reset",
    "reboot",
    "mechanics",
    "hardware",
)
"""Tiers that mean the same for any rule."""
DEVICE = "<device>"
LONGEST_PATTERN = 200
MOST_STARS = 8
LEAST_LITERAL = 4
"""Letters and digits that a pattern must have beside the driver's name."""
SHORTEST = timedelta(minutes=1)
"""Of a time window: sources are sampled every few seconds to every minute. A shorter window cannot be counted."""

_DRIVER = re.compile(r"\[?[A-Za-z][\w./-]{2,31}[: \]]", re.ASCII)
_TIMES = re.compile(r"(?P<times>[1-9]\d{0,5}) in (?P<within>\S+)", re.ASCII)
_TEST = re.compile(
    r"(?:(?P<counts>grows|changes) (?P<by>\d{1,15}(?:\.\d{1,6})?) in (?P<within>\S+)"
    r"|(?P<gauge>at least|below) (?P<limit>\d{1,15}(?:\.\d{1,6})?)|is (?P<state>[^\s,]{1,64}))(?: for (?P<holds>\S+))?",
    re.ASCII,
)


class LinePattern(NamedTuple):
    """A parsed pattern. *beginning* is its literal start, *pieces* must follow the *head* in order."""

    beginning: str
    head: re.Pattern[str]
    pieces: tuple[str, ...]

    def device_in(self, text: str) -> str | None:
        """The device that *text* is about (`node` where the pattern has none). None where the pattern does not fit."""
        found = self.head.match(text)
        if found is None or not self._goes_on(text, found.end()):
            return None
        named = found.groupdict().get("device")
        return normal_address(named) if named else NODE

    def _goes_on(self, text: str, at: int) -> bool:
        if not self.pieces:
            return at == len(text)
        *between, last = self.pieces
        for piece in between:
            at = text.find(piece, at)
            if at < 0:
                return False
            at += len(piece)
        return text.endswith(last) and len(text) - len(last) >= at


@cache
def parse_pattern(text: str) -> LinePattern:
    """Parse a pattern as an operator writes it. Raises ValueError with a text for an operator."""
    if not text.isascii() or not text.isprintable() or len(text) > LONGEST_PATTERN:
        raise ValueError(f"must be at most {LONGEST_PATTERN} printable ASCII characters")
    head, *pieces = text.split("*")
    if len(pieces) > MOST_STARS or "**" in text:
        raise ValueError(f"has more than {MOST_STARS} `*`, or two in a row")
    if DEVICE in "".join(pieces) or head.count(DEVICE) > 1:
        raise ValueError(f"may have one {DEVICE}, before the first `*`")
    beginning, device, behind = head.partition(DEVICE)
    driver = _DRIVER.match(beginning)
    if driver is None or "\\" in beginning:
        raise ValueError("must begin with the name of a driver and a colon or a blank, such as `mydrv: `")
    literal = (beginning[driver.end() :], behind, *pieces)
    if sum(char.isalnum() for part in literal for char in part) < LEAST_LITERAL:
        raise ValueError(f"fits nearly every line of {driver[0].strip(': ')}; say more of the line")
    address = f"(?P<device>{FULL_ADDRESS})" if device else ""
    return LinePattern(beginning, re.compile(re.escape(beginning) + address + re.escape(behind)), tuple(pieces))


def check_tier(name: str) -> str:
    """*name*, if a site may use that tier. Raises ValueError."""
    if name not in TIERS:
        raise ValueError(f"must be a tier ({', '.join(TIERS)}), not {name!r}")
    return name


def check_site_rule(rule: SiteRule) -> None:
    """Raise ValueError where the parts of *rule* do not form a rule."""
    if not rule.name or not rule.summary:
        raise ValueError("a rule needs a name and a summary")
    if bool(rule.message) is bool(rule.reading):
        raise ValueError(f"{rule.name} needs a message or a reading, and not both")
    if tier(rule.tier).quarantines and rule.blame is Blame.APPLICATION:
        raise ValueError(f"{rule.name}: a fault of the application takes no node out of service; choose another tier")
    if rule.reading:
        _test_of(rule)
        return
    _needs_of(rule)
    line = parse_line(rule.example)
    if line is None or parse_pattern(rule.message).device_in(line.text) is None:
        raise ValueError(f"{rule.name}: the example {rule.example!r} does not fit the message {rule.message!r}")
    if begins_with_a_name(line.text):
        raise ValueError(f"{rule.name}: a line like the example may begin with words that a process chose")


def check_reading(name: str, known: Iterable[str]) -> None:
    """Raise ValueError where no probe reads *name*."""
    names = sorted(set(known))
    if name not in names:
        near = nearest(name, names)
        raise ValueError(f"nothing reads {name!r}" + (f"; did you mean {near!r}?" if near else ""))


def beginnings(rules: Iterable[SiteRule]) -> tuple[str, ...]:
    """The beginnings of the kernel lines that *rules* are about."""
    return tuple(parse_pattern(rule.message).beginning for rule in rules if rule.message)


def judge_line(rules: Iterable[SiteRule], text: str) -> Iterator[Judgement]:
    """The judgements of *rules* about the kernel line *text*."""
    text = text[:LONGEST_MESSAGE].strip("\r\n\x00 ")
    fitting = ((rule, parse_pattern(rule.message).device_in(text)) for rule in rules if rule.message)
    for rule, device in fitting:
        if device is not None and not begins_with_a_name(text):
            yield _judgement(rule, device)


def rules_about_readings(rules: Iterable[SiteRule]) -> tuple[Rule, ...]:
    """Those of *rules* that are about readings, for the engine."""
    return tuple(_rule(rule) for rule in rules if rule.reading)


def parse_tier(text: str) -> tuple[str, str]:
    """Parse `RULE TIER` as an operator writes it. Raises ValueError. It does not check that the rule exists."""
    words = text.split()
    if len(words) != 2:
        raise ValueError(f"must be a rule and a tier, such as `fs-read-only reboot`, not {text!r}")
    return words[0], check_tier(words[1])


@cache
def tiers_of(tiers: tuple[str, ...]) -> Mapping[str, str]:
    """By rule: the tier that an operator chose."""
    return dict(map(parse_tier, tiers))


def tier_chosen(tiers: tuple[str, ...], rule: str) -> str | None:
    """
    The tier that an operator chose for *rule*. None where none was chosen.

    Codes that are not in the catalogue share a row of the list, whose name ends in `*`. Its tier applies to each of
    them.
    """
    chosen = tiers_of(tiers)
    if rule in chosen:
        return chosen[rule]
    return next((name for row, name in chosen.items() if row.endswith("*") and rule.startswith(row[:-1])), None)


def _judgement(rule: SiteRule, device: str) -> Judgement:
    known = tier(rule.tier)
    where = "The node" if device == NODE else device
    return Judgement(
        device=device,
        rule=rule.name,
        severity=known.severity,
        action=known.action,
        blame=known.blame or rule.blame,
        quarantines=known.quarantines,
        message=sentence(where, rule.summary, known, rule.advice),
        needs=_needs_of(rule),
    )


def _needs_of(rule: SiteRule) -> Needs | None:
    if not rule.when:
        return None
    found = _TIMES.fullmatch(rule.when)
    within = parse_duration(found["within"]) if found else timedelta(0)
    if found is None or not within:
        raise ValueError(f"{rule.name}: when must be a number in a span, such as `3 in 1h`, not {rule.when!r}")
    return Needs(times=int(found["times"]), within_s=within.total_seconds())


def _rule(rule: SiteRule) -> Rule:
    test, holds = _test_of(rule)
    return Rule(
        name=rule.name,
        reads=rule.reading,
        test=test,
        tier=rule.tier,
        blame=rule.blame,
        summary=rule.summary,
        advice=rule.advice,
        holds=holds,
        source="configuration",
    )


def _test_of(rule: SiteRule) -> tuple[Test, timedelta]:
    found = _TEST.fullmatch(" ".join(rule.when.split()))
    if found is None:
        raise ValueError(
            f"{rule.name}: when must say of a reading `grows 50 in 1h`, `changes 6 in 1h`, `at least 90`, `below 2` or "
            f"`is DOWN`, each with ` for 5m` behind it if it must last, not {rule.when!r}"
        )
    holds = parse_duration(found["holds"]) if found["holds"] else timedelta(0)
    if found["state"]:
        return Is(frozenset({found["state"]})), holds
    number = float(found["by"] or found["limit"])
    if not number:
        raise ValueError(f"{rule.name}: a limit of 0 is always true, or never")
    if found["gauge"]:
        return (AtLeast(number) if found["gauge"] == "at least" else Below(number)), holds
    within = parse_duration(found["within"])
    if within < SHORTEST or (found["counts"] == "changes" and number % 1):
        raise ValueError(
            f"{rule.name}: a span is at least {format_duration(SHORTEST)}, and changes are counted whole, "
            f"not {rule.when!r}"
        )
    return (Grows(number, within) if found["counts"] == "grows" else Changes(int(number), within)), holds
