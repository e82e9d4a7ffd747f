"""How often and on how many nodes at once healthd tries to repair. Pure."""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api import Node
from healthd.core.api.remediations import NodeRemediationStatus, RungAttempt
from healthd.core.config.remediation import RemediationPolicy
from healthd.core.node.budget import SlotSet, limits_of
from healthd.core.remediation.situation import WEEK, NodeSituation


def remediation_slots(node: Node, policy: RemediationPolicy, domain_label: str) -> tuple[SlotSet, ...]:
    """
    The limits that count *node* while it is under a rung or a check: Leases, as for the quarantine. So two controllers
    that act at the same time, one of them deposed, stay within the limit together.
    """
    domain = node.metadata.labels.get(domain_label, "")
    return limits_of("healthd-remediation", policy.at_once, policy.per_domain, domain)


def is_forgiven(status: NodeRemediationStatus, attempt: RungAttempt) -> bool:
    """Whether a person asked for a further try after *attempt*."""
    return status.forgiven_at is not None and attempt.at <= status.forgiven_at


def attempts_this_week(s: NodeSituation) -> int:
    """Attempts of the last seven days that count."""
    return sum(s.now - each.at < WEEK and not is_forgiven(s.status, each) for each in s.status.attempts)


def probation_length(policy: RemediationPolicy, relapses: int) -> timedelta:
    """Twice as long after each relapse in a row."""
    doubled = policy.probation * (1 << min(relapses, 16))
    return min(doubled, max(policy.probation_max, policy.probation))
