"""What one event or state means: severity, blame, action. Findings are made of judgements. Pure."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from healthd.core.api.model import Blame, RepairAction, Severity
from healthd.core.diagnosis.klog.message import Load
from healthd.core.diagnosis.tiers import ADVICE, Tier, all_tiers


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """How many events on one device within how many seconds make a finding. Fewer events make none."""

    times: int
    within_s: float

    @property
    def within(self) -> timedelta:
        """The window in which the events must occur."""
        return timedelta(seconds=self.within_s)


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What one message, or one state, means. *device* is a PCI address, or `node`."""

    device: str
    rule: str
    severity: Severity
    action: RepairAction
    blame: Blame
    quarantines: bool
    message: str
    """One sentence about what happened, one about what to do."""
    raises: bool = True
    """Whether it becomes a finding. Noise of drivers does not."""
    clears: bool = False
    """Xid 154 to 0: the driver withdraws its advice."""
    ends: bool = False
    """The fault of the finding of *rule* on *device* is over."""
    load: Load | None = None
    """NVIDIA's driver is loaded: faults that a reset of its GPUs clears are over."""
    needs: Needs | None = None
    """It becomes a finding only after this many events."""
    cause: str = ""
    """The fault that this is evidence of, where other sources show it too: see `healthd.core.diagnosis.causes`."""
    parts: tuple[str, ...] = ()
    """The parts of the device it is about: `port 1`, `nvlink 3`. Empty for the device as a whole."""
    watched: bool = False
    """A state that is sampled again and again. Its finding ends when the state is good, and not by time."""
    shadow: bool = False
    """Its rule is in shadow: it reports what it would do."""


def in_shadow(judgement: Judgement) -> Judgement:
    """The judgement of a rule in shadow."""
    would = "would take the node out of service" if judgement.quarantines else "would say"
    return msgspec.structs.replace(
        judgement, quarantines=False, shadow=True, message=f"In shadow, {would}: {judgement.message}"
    )


def in_tier(judgement: Judgement, tier: Tier) -> Judgement:
    """The judgement under *tier*, where an operator chose another tier than the rule's own."""
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
    """The sentence of a judgement about what happened, without the sentence about what to do."""
    given = {*ADVICE.values(), *(tier.advice for tier in all_tiers().values() if tier.advice)}
    return next((message.removesuffix(advice).rstrip() for advice in given if message.endswith(advice)), message)
