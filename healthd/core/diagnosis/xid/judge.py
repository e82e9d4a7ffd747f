"""
Judges one kernel message: severity, blame, action. Pure. Findings over time are in `healthd.core.diagnosis.findings`.
"""

from __future__ import annotations

from functools import cache, lru_cache

import msgspec

from healthd.core.api.model import Blame
from healthd.core.diagnosis import tiers
from healthd.core.diagnosis.judgement import Judgement, sentence
from healthd.core.diagnosis.klog.message import Message, MessageKind
from healthd.core.diagnosis.readings import NODE
from healthd.core.diagnosis.xid.nvlink import tier_of_74, tier_of_link
from healthd.core.diagnosis.xid.tables import Code, rules, sxid_codes, xid_codes
from healthd.core.diagnosis.xid.words import Wording, WordingEffect, wording_of, wordings

RECOVERY_CODE = 154
RECOVERY_RULE = f"xid-{RECOVERY_CODE}"
LOST_RULE = "gpu-lost"


def judge(message: Message) -> Judgement:
    """Judge *message* by the catalogue and the rules beside it."""
    if message.kind is MessageKind.XID:
        return _judge_recovery(message) if message.xid == RECOVERY_CODE else _judge_xid(message)
    if message.kind is MessageKind.SXID:
        return _judge_sxid(message)
    if message.load is not None:
        judged = _judged(message, "driver-load", "record", Blame.UNKNOWN, "the driver is loaded", raises=False)
        return msgspec.structs.replace(judged, load=message.load)
    if message.gpu_lost:
        return _judged(message, LOST_RULE, "reboot", Blame.DEVICE, "the GPU is gone from the PCIe bus")
    return _judge_message(message)


def is_the_drivers(rule: str) -> bool:
    """Whether *rule* is about messages of NVIDIA's driver on one of its GPUs."""
    return rule == LOST_RULE or rule.startswith("xid-") or rule in _driver_rules()


@cache
def _driver_rules() -> frozenset[str]:
    return frozenset(row.rule for row in wordings() if row.kind is MessageKind.NVRM and row.rule)


@lru_cache(maxsize=1024)  # asked of every finding at every record, and rules may have any number in their name
def fades_after_hours(rule: str) -> float:
    """Hours after its last event when a finding of *rule* that does not quarantine fades. 0 is never."""
    return max((tier.fades_h for tier in _possible_tiers(rule)), default=0)


def _judge_xid(message: Message) -> Judgement:
    code = xid_codes().get(message.xid or 0)
    if code is None:
        summary = "a code that is not in the catalogue"
        return _judged(message, f"xid-unknown-{message.xid}", "unknown", Blame.UNKNOWN, summary)
    tier = _tier_of(code, message)
    return _judged(message, f"xid-{code.code}", tier, code.blame, code.summary)


def _tier_of(code: Code, message: Message) -> str:
    if code.tier != "decode":
        return code.tier
    return tier_of_74(message.link) if code.code == 74 else tier_of_link(code.code, message.link)


def _judge_recovery(message: Message) -> Judgement:
    """By the number: the label of the same action differs between drivers."""
    asked = None if message.recovery is None else rules().recovery_action(message.recovery)
    if asked is None:
        summary = "the driver changed its recovery action; the line is cut or new"
        return _judged(message, RECOVERY_RULE, "undecided", Blame.UNKNOWN, summary)
    return Judgement(
        device=message.pci or NODE,
        rule=RECOVERY_RULE,
        severity=asked.severity,
        action=asked.action,
        blame=Blame.DEVICE,
        quarantines=asked.quarantines,
        message=f"{_subject(message)}: {asked.summary}. {tiers.ADVICE[asked.action]}",
        clears=asked.clears,
        raises=not asked.clears,
    )


def _judge_sxid(message: Message) -> Judgement:
    """The severity in the line counts more than any table."""
    code = sxid_codes().get(message.sxid or 0)
    # One event is reported in several lines of the same code. Only the first is the event.
    is_event = not message.detail.startswith(("Severity", "Data"))
    if code is None:
        rule, tier = f"sxid-unknown-{message.sxid}", "fabric" if message.fatal else "unknown"
        summary = "a switch error that is not in the catalogue"
        return _judged(message, rule, tier, Blame.UNKNOWN, summary, raises=is_event)
    tier = "record"
    if message.fatal:
        tier = "fabric_always" if code.severity == "always-fatal" else "fabric"
    return _judged(message, f"sxid-{code.code}", tier, Blame.DEVICE, code.summary, raises=is_event)


def _judge_message(message: Message) -> Judgement:
    row = wording_of(message)
    if row is None or row.says is WordingEffect.NOTHING:
        summary = row.summary if row else "a message of the driver"
        return _judged(message, message.kind.value, "record", Blame.UNKNOWN, summary, raises=False)
    if row.says is WordingEffect.ENDS:
        judged = _judged(message, row.rule, "record", row.blame, row.summary, raises=False)
        return msgspec.structs.replace(judged, ends=True)
    return _judge_wording(message, row)


def _judge_wording(message: Message, row: Wording) -> Judgement:
    tier = tiers.tier(row.tier)
    return Judgement(
        device=message.pci or NODE,
        rule=row.rule,
        severity=tier.severity,
        action=tier.action,
        blame=tier.blame or row.blame,
        quarantines=tier.quarantines,
        message=sentence(_subject(message), row.summary, tier, row.advice),
        needs=row.needs,
    )


def _judged(
    message: Message, rule: str, tier_name: str, blame: Blame, summary: str, *, raises: bool = True
) -> Judgement:
    tier = tiers.tier(tier_name)
    return Judgement(
        device=message.pci or NODE,
        rule=rule,
        severity=tier.severity,
        action=tier.action,
        blame=tier.blame or blame,
        quarantines=tier.quarantines,
        message=sentence(_subject(message), summary, tier),
        raises=raises,
    )


def _subject(message: Message) -> str:
    where = f" on {message.pci}" if message.pci else ""
    if message.mig is not None:
        where += f" (MIG instance {message.mig.gpu})"
    if message.xid is not None:
        return f"Xid {message.xid}{where}"
    if message.sxid is not None:
        return f"SXid {message.sxid}{where}"
    return f"{message.kind.upper()}{where}"


def _possible_tiers(rule: str) -> list[tiers.Tier]:
    """The tiers that findings of *rule* can come from."""
    if rule == "kmsg-lost":
        return [tiers.tier("records_lost")]
    if raised := [row.tier for row in wordings() if row.rule == rule and row.says is WordingEffect.RAISES]:
        return [tiers.tier(name) for name in raised]
    number = rule.rpartition("-")[2]
    code = xid_codes().get(int(number)) if rule.startswith("xid-") and number.isdigit() else None
    if code is not None and code.tier not in {"decode", "driver"}:
        return [tiers.tier(code.tier)]
    return [tiers.tier(name) for name in ("peer", "await_154", "unknown", "serious")]
