"""
Every rule by which a node is judged, as rows for people: what it reads, when it fires, what follows. Pure.

The documentation is made from these rows, and the tests compare them with what the judges return.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec

from healthd.core.api.model import Blame, RepairAction, Severity
from healthd.core.config import JudgePolicy, SiteRule, format_duration
from healthd.core.diagnosis.signals.rule import (
    AtLeast,
    Below,
    Changes,
    FellBelowBest,
    Grows,
    Is,
    IsNot,
    OutOfLine,
    Rule,
    Test,
)
from healthd.core.diagnosis.signals.tables import known_rules, rules_of
from healthd.core.diagnosis.site_rules import tier_chosen
from healthd.core.diagnosis.tiers import tier
from healthd.core.diagnosis.xid import RECOVERY_RULE, Code, SwitchCode, Wording, rules, sxid_codes, wordings, xid_codes
from healthd.core.diagnosis.xid.judge import LOST_RULE
from healthd.core.diagnosis.xid.nvlink import TIERS_OF_74, TIERS_OF_LINKS
from healthd.core.diagnosis.xid.words import WordingEffect

KERNEL_LOG = "kernel log"
ONCE = "once"
KMSG_LOST = "kmsg-lost"


class Mode(StrEnum):
    """What happens to a rule's findings."""

    ON = "on"
    SHADOW = "shadow"
    """Findings report what they would do."""
    OFF = "off"
    """There are no findings."""


class RuleOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What follows. *when* is empty where only one outcome is possible."""

    severity: Severity
    action: RepairAction
    quarantines: bool
    when: str = ""


class RuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. *rule* is its name in findings. A `*` in it stands for a number that is not in the catalogue."""

    rule: str
    source: str
    """`kernel log`, or the source of the readings, such as `nvml`."""
    what: str
    """What is wrong: half a sentence."""
    reads: str
    """The messages or the reading, for a person."""
    threshold: str
    outcomes: tuple[RuleOutcome, ...]
    blame: Blame = Blame.UNKNOWN
    advice: str = ""
    """What a person should do, where the action does not make that clear."""
    origin: str = ""
    """The source of threshold and meaning."""
    mode: Mode = Mode.ON

    @property
    def quarantines(self) -> bool:
        """Whether it can take a node out of service."""
        return any(outcome.quarantines for outcome in self.outcomes)


def all_rules() -> Iterator[RuleRow]:
    """Every rule of every source, each name once."""
    yield from kernel_rules()
    for rule in known_rules().values():
        yield _of_reading(rule)


def rules_under(policy: JudgePolicy) -> list[RuleRow]:
    """Every rule under *policy*, with its limits, tiers and shadows. The site's rules follow healthd's own."""
    chosen = {rule.name: rule for rule in rules_of(policy)}
    rows = [
        *(_in_tier(row, tier_chosen(policy.tiers, row.rule)) for row in kernel_rules()),
        *(_of_line(rule) for rule in policy.rules if rule.message),
        *(_of_reading(rule) for rule in {**known_rules(), **chosen}.values()),
    ]
    sources = dict.fromkeys(row.source for row in rows)
    in_order = [row for source in sources for row in rows if row.source == source]
    return [msgspec.structs.replace(row, mode=_mode(row, policy)) for row in in_order]


def kernel_rules() -> Iterator[RuleRow]:
    """Every rule about kernel records: Xids, switch errors, and messages without a code."""
    for code in xid_codes().values():
        yield _of_xid(code)
    yield _simple("xid-unknown-*", "an Xid that is not in the catalogue", "NVRM: Xid", "unknown")
    for switch in sxid_codes().values():
        yield _of_sxid(switch)
    yield _by_word("sxid-unknown-*", "a switch error that is not in the catalogue", fatal="fabric", other="unknown")
    yield _simple(LOST_RULE, "the GPU is gone from the PCIe bus", "fallen off the bus", "reboot", Blame.DEVICE)
    yield _simple(
        KMSG_LOST, "kernel records were overwritten before they were read", "numbers of records", "records_lost"
    )
    yield from _of_wordings()


def check_pattern(pattern: str) -> str:
    """*pattern*, if it matches the name of any rule. Raises ValueError with a text for an operator."""
    if any(fnmatchcase(row.rule, pattern) or fnmatchcase(pattern, row.rule) for row in all_rules()):
        return pattern
    raise ValueError(f"no rule has a name like {pattern!r}; `healthd rules` lists them")


def check_tier_of(rule: str, tier_name: str) -> None:
    """Raise ValueError unless *rule* exists and may have that tier."""
    row = next((row for row in all_rules() if row.rule == rule), None)
    if row is None or row.rule in {RECOVERY_RULE, KMSG_LOST}:
        raise ValueError(f"no rule {rule!r} can have another tier; `healthd rules` lists them")
    if tier(tier_name).quarantines and row.blame is Blame.APPLICATION:
        raise ValueError(f"{rule} reports faults of the application, so any process could take nodes out of service")


def _outcome(name: str, when: str = "") -> RuleOutcome:
    known = tier(name)
    return RuleOutcome(severity=known.severity, action=known.action, quarantines=known.quarantines, when=when)


def _simple(rule: str, what: str, reads: str, tier_name: str, blame: Blame = Blame.UNKNOWN) -> RuleRow:
    return RuleRow(
        rule=rule,
        source=KERNEL_LOG,
        what=what,
        reads=reads,
        threshold=ONCE,
        outcomes=(_outcome(tier_name),),
        blame=tier(tier_name).blame or blame,
        advice=tier(tier_name).advice,
    )


def _of_xid(code: Code) -> RuleRow:
    row = RuleRow(
        rule=f"xid-{code.code}",
        source=KERNEL_LOG,
        what=code.summary,
        reads=f"NVRM: Xid {code.code}",
        threshold=ONCE,
        outcomes=_outcomes_of_xid(code),
        blame=code.blame,
        origin=code.reason,
    )
    if code.tier in {"decode", "driver"}:
        return row
    return msgspec.structs.replace(row, blame=tier(code.tier).blame or code.blame, advice=tier(code.tier).advice)


def _outcomes_of_xid(code: Code) -> tuple[RuleOutcome, ...]:
    if code.tier == "driver":
        rows_of = [
            RuleOutcome(severity=one.severity, action=one.action, quarantines=one.quarantines, when=f"to {one.label}")
            for one in rules().recovery
            if not one.clears
        ]
        return (*rows_of, _outcome("undecided", "to a number that is not known"))
    if code.tier == "decode":
        names = TIERS_OF_74 if code.code == 74 else TIERS_OF_LINKS
        return tuple(_outcome(name, f"registers: {name.replace('_', ' ')}") for name in sorted(names))
    return (_outcome(code.tier),)


def _of_sxid(code: SwitchCode) -> RuleRow:
    fatal = "fabric_always" if code.severity == "always-fatal" else "fabric"
    return _by_word(f"sxid-{code.code}", code.summary, fatal=fatal, other="record")


def _by_word(rule: str, what: str, *, fatal: str, other: str) -> RuleRow:
    """The severity in the line counts more than any table."""
    return RuleRow(
        rule=rule,
        source=KERNEL_LOG,
        what=what,
        reads=f"SXid {rule.removeprefix('sxid-').removeprefix('unknown-')}",
        threshold=ONCE,
        outcomes=(_outcome(fatal, "the line says Fatal"), _outcome(other, "else")),
        blame=Blame.DEVICE,
        advice=tier(fatal).advice,
    )


def _of_wordings() -> Iterator[RuleRow]:
    """Messages of several drivers may share one rule."""
    rows_of: dict[str, list[Wording]] = {}
    for row in wordings():
        if row.says is WordingEffect.RAISES:
            rows_of.setdefault(row.rule, []).append(row)
    ended = {row.rule for row in wordings() if row.says is WordingEffect.ENDS}
    for rule, rows in rows_of.items():
        yield _of_wording(rule, rows, ends=rule in ended)


def _of_wording(rule: str, rows: list[Wording], *, ends: bool) -> RuleRow:
    first = rows[0]
    known = tier(first.tier)
    needs = first.needs
    many = f"{needs.times} in {format_duration(needs.within)}" if needs else ONCE
    return RuleRow(
        rule=rule,
        source=KERNEL_LOG,
        what=first.summary,
        reads="; ".join(dict.fromkeys(_wording_text(row) for row in rows)),
        threshold=f"{many}, until the kernel says that it is over" if ends else many,
        outcomes=tuple(_outcome(name) for name in dict.fromkeys(row.tier for row in rows)),
        blame=known.blame or first.blame,
        advice=first.advice or known.advice,
        origin=first.source,
    )


def _wording_text(row: Wording) -> str:
    words = f"{row.kind}: {' | '.join(row.any)}" if row.any else f"{row.kind}: any"
    also = f" with {' | '.join(row.also)}" if row.also else ""
    return words + also + (" (uncorrected)" if row.fatal else "")


def _in_tier(row: RuleRow, name: str | None) -> RuleRow:
    if name is None:
        return row
    return msgspec.structs.replace(row, outcomes=(_outcome(name),), advice=tier(name).advice)


def _of_line(rule: SiteRule) -> RuleRow:
    row = _simple(rule.name, rule.summary, rule.message, rule.tier, rule.blame)
    advice = rule.advice or row.advice
    return msgspec.structs.replace(row, threshold=rule.when or ONCE, advice=advice, origin="configuration")


def _mode(row: RuleRow, policy: JudgePolicy) -> Mode:
    if row.rule in policy.off:
        return Mode.OFF
    is_tried = any(fnmatchcase(row.rule, pattern) for pattern in policy.tried)
    return Mode.SHADOW if is_tried else Mode.ON


def _of_reading(rule: Rule) -> RuleRow:
    known = tier(rule.tier)
    held = f" for {format_duration(rule.holds)}" if rule.holds else ""
    return RuleRow(
        rule=rule.name,
        source=rule.reads.partition(".")[0],
        what=rule.summary,
        reads=rule.reads,
        threshold=_threshold(rule.test) + held,
        outcomes=(_outcome(rule.tier),),
        blame=known.blame or rule.blame,
        advice=rule.advice or known.advice,
        origin=rule.source,
    )


def _threshold(test: Test) -> str:
    match test:
        case Is():
            return f"is {_either(test.values)}"
        case IsNot():
            return f"is not {_either(test.values)}"
        case AtLeast():
            return f"{test.limit:g} or more"
        case Below():
            return f"below {test.other}" if test.other else f"below {test.limit:g}"
        case FellBelowBest():
            return "below the best since the agent started"
        case Grows():
            return f"grows by {test.by:g} in {_span(test.within)}"
        case Changes():
            return f"changes {test.times} times in {_span(test.within)}"
        case OutOfLine():
            return f"grows by {test.floor:g} in {_span(test.within)}, {test.score:g} deviations above its peers"


def _either(values: Iterable[str]) -> str:
    return " or ".join(sorted(values))


def _span(span: timedelta) -> str:
    return format_duration(span)
