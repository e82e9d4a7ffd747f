"""How the hardware of a node is judged, and when that takes it out of service."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from healthd.core.api.names import SYSTEM_NAMESPACE
from healthd.core.config.base import Policy
from healthd.core.config.site_rules import SITE, SiteRule


class GiveBack(StrEnum):
    """When a node comes back into service."""

    MENDED = "mended"
    """When everything that took it out has ended: by a reset, a reboot or a repair, as each finding says."""
    REPAIRED = "repaired"
    """Only once it was also declared repaired."""


class QuarantinePolicy(Policy, frozen=True, kw_only=True):
    """How far healthd may go in taking nodes out of service."""

    budget: Annotated[
        int,
        Meta(
            description="Nodes that healthd may hold in quarantine at the same time, in the whole cluster. Exact, "
            "however many agents fire at once. Two by default: one bad node and the next one while the "
            "first is repaired; more at once is more often a wrong judgement than broken hardware. 0 "
            "quarantines nothing.",
            ge=0,
        ),
    ] = 2
    per_domain: Annotated[
        int,
        Meta(
            description="The same limit within one failure domain (nodes with the same value of `domain_label`). 0, "
            "the default, sets no limit besides `budget`; a value above `budget` changes nothing.",
            ge=0,
        ),
    ] = 0
    domain_label: Annotated[
        str,
        Meta(
            description="The node label that names a failure domain. Used only when `per_domain` is above 0.",
            min_length=1,
            max_length=317,
        ),
    ] = "topology.kubernetes.io/zone"
    namespace: Annotated[
        str,
        Meta(
            description="The namespace of the budget slots (one Lease for each quarantined node). Every agent of a "
            "cluster must name the same one, or each namespace has a budget of its own.",
            pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
            extra={"shape": "a Kubernetes namespace: up to 63 lower-case letters, digits and inner hyphens"},
        ),
    ] = SYSTEM_NAMESPACE
    cordon: Annotated[
        bool,
        Meta(
            description="Whether a node is really cordoned and tainted. With `false` healthd judges, reports and says "
            "what it would have done, and leaves every node alone: the way to try it on a cluster.",
        ),
    ] = True
    give_back: Annotated[
        GiveBack,
        Meta(
            description="When a node in quarantine comes back. `mended`: as soon as what took it out has ended, "
            "such as by the reset that an XID asks for. `repaired`: not before `healthd repair NODE` "
            "either, best with the report of a check (docs/check.md), however its findings ended."
        ),
    ] = GiveBack.MENDED


class JudgePolicy(Policy, frozen=True, kw_only=True):
    """
    How findings are judged: rules that are tried, left out or given other limits, and when faults that look like the
    application's turn out to be the device's.

    For the latter, `app_distinct_jobs` jobs must have had such a fault on one GPU within a day. (A finding keeps its
    newest five pieces of evidence, so it can count at most five jobs.)
    """

    app_distinct_jobs: Annotated[
        int,
        Meta(
            description="From how many different jobs application faults (such as XID 13 or 31) must come within a "
            "day to turn the suspicion on the GPU. One job with a bug produces any number of faults on a good GPU, and "
            "three jobs rarely share a bug. A job that had the same fault on another GPU does not count.",
            ge=2,
            le=5,
        ),
    ] = 3
    shadow: Annotated[
        tuple[str, ...],
        Meta(
            description="Rules that are being tried, such as `ib-symbol-errors` or `nvml-*`: their findings say what "
            "they would do, and do nothing. Names are in docs/findings/."
        ),
    ] = ()
    off: Annotated[
        tuple[str, ...],
        Meta(
            description="Rules about counters and states that are not applied, such as `clock-free-running`. What "
            "they had raised ends when the agents start again."
        ),
    ] = ()
    limits: Annotated[
        tuple[str, ...],
        Meta(
            description="Limits of your own for rules about counters and gauges, such as `ib-symbol-errors 50 in 1h` "
            "or `nvml-temperature 92`. A span can only be given to a rule that has one, and is at least 1m. A limit "
            "that is always true, or never, is refused."
        ),
    ] = ()
    tiers: Annotated[
        tuple[str, ...],
        Meta(
            description="Other tiers for rules that there are, higher or lower, such as `fs-read-only reboot` or "
            "`rcu-stall record`; what a tier means is said at `judge.rules.tier`. A rule about faults of the "
            "application cannot take a node out of service. To see first what it would do, name the rule in `shadow`."
        ),
    ] = ()
    rules: Annotated[
        tuple[SiteRule, ...],
        Meta(description="Rules of your own, about lines of the kernel log or readings. docs/klog.md has an example."),
    ] = ()

    def __post_init__(self) -> None:
        limited = [text.split(maxsplit=1)[0] for text in self.limits if text.strip()]
        if twice := sorted({rule for rule in limited if limited.count(rule) > 1}):
            raise ValueError(f"limits has more than one limit for {', '.join(twice)}")
        names = [rule.name for rule in self.rules]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"rules has more than one rule named {', '.join(twice)}")

    def leaves_out(self, rule: str) -> bool:
        """Whether *rule* is off, or was a rule of the site's that is gone."""
        return rule in self.off or (rule.startswith(SITE) and rule not in {known.name for known in self.rules})

    @property
    def tried(self) -> tuple[str, ...]:
        """Names and patterns of the rules in shadow, those of the site among them."""
        return (*self.shadow, *(rule.name for rule in self.rules if rule.shadow))
