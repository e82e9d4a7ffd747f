"""What one event or state means: how bad, whose fault, what to do. Findings are made of judgements. Pure."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from healthd.core.api.model import Action, Blame, Severity
from healthd.core.diagnosis.klog.message import Load
from healthd.core.diagnosis.tiers import ADVICE, Tier, all_tiers


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """How many events on one device within how many seconds make a finding; fewer are not worth one."""

    times: int
    within_s: float

    @property
    def within(self) -> timedelta:
        """The time in which they must come."""
        return timedelta(seconds=self.within_s)


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What one message, or one state, means. *device* is a PCI address, or `node`."""

    device: str
    rule: str
    severity: Severity
    action: Action
    blame: Blame
    quarantines: bool
    message: str
    """One sentence of what happened, one of what to do."""
    raises: bool = True
    """Whether it becomes a finding; chatter of drivers does not."""
    clears: bool = False
    """Xid 154 to 0: the driver takes its advice back."""
    ends: bool = False
    """What the finding of *rule* on *device* told of is over."""
    load: Load | None = None
    """NVIDIA's driver is loaded: what a reset of its GPUs puts right is over."""
    needs: Needs | None = None
    """It becomes a finding only once it was seen so often."""
    cause: str = ""
    """The fault that this is a witness of, where there are others: see `healthd.core.diagnosis.causes`."""
    parts: tuple[str, ...] = ()
    """Which parts of the device it speaks of: `port 1`, `nvlink 3`; empty for the device as a whole."""
    watched: bool = False
    """A state that is looked at again and again: its finding ends when it is good, and not by time."""
    shadow: bool = False
    """Its rule is being tried: it says what it would do."""


def in_shadow(judgement: Judgement) -> Judgement:
    """The judgement of a rule that is being tried."""
    would = "would take the node out of service" if judgement.quarantines else "would say"
    return msgspec.structs.replace(
        judgement, quarantines=False, shadow=True, message=f"In shadow, {would}: {judgement.message}"
    )


def in_tier(judgement: Judgement, tier: Tier) -> Judgement:
    """The judgement with what *tier* makes of it, where an operator chose another than the rule's own."""
    return msgspec.structs.replace(
        judgement,
        severity=tier.severity,
        action=tier.action,
        quarantines=tier.quarantines,
        message=f"{without_advice(judgement.message)} {tier.advice or ADVICE[tier.action]}",
    )


def sentence(subject: str, summary: str, tier: Tier, advice: str = "") -> str:
    """What happened to *subject*, and what a person should do."""
    return f"{subject}: {summary}. {advice or tier.advice or ADVICE[tier.action]}"


def without_advice(message: str) -> str:
    """The sentence of a judgement that says what happened, without the one that says what to do."""
    given = {*ADVICE.values(), *(tier.advice for tier in all_tiers().values() if tier.advice)}
    return next((message.removesuffix(advice).rstrip() for advice in given if message.endswith(advice)), message)
