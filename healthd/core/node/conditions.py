"""
What a node's findings mean for its two conditions. Pure.

`AcceleratorHealthy` speaks of what stands in the node, `FabricHealthy` of what connects it: NVLink, NVSwitch, network.
A finding belongs to one of them by its rule. What no row of the table names is the node's own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from healthd.core.api import Condition
from healthd.core.api.model import Blame, Finding, Severity
from healthd.core.diagnosis.blindness import KERNEL_LOG, NOT_BLIND, said_of

ACCELERATOR_HEALTHY = "AcceleratorHealthy"
FABRIC_HEALTHY = "FabricHealthy"
CONDITIONS = (ACCELERATOR_HEALTHY, FABRIC_HEALTHY)

_FABRIC = re.compile(
    r"sxid-.*"  # the NVSwitch driver
    r"|xid-(?:74|108|136|137|14[4-9]|150|155|166|170)"  # NVLink in NVIDIA's Xid catalogue; C2C (121, 173) is in a chip
    r"|(?:mlx5|efa|ib)-.*"  # network drivers
)
_NETWORK = re.compile(r"infiniband.*|ethernet.*|ethtool")
"""Sources that speak of what connects the node."""
LONGEST_MESSAGE = 800
"""Characters: a person reads it in `kubectl describe node`."""
WORDS_AFTER = timedelta(minutes=5)
"""A message that changes while its rule stands (new evidence of the same) is not worth a write to the node at once."""

_BADNESS = list(Severity)


class Statement(msgspec.Struct, frozen=True):
    """What one condition should say."""

    type: str
    status: str
    reason: str
    message: str


def condition_of(rule: str) -> str:
    """The condition that a finding of *rule* speaks to."""
    return FABRIC_HEALTHY if _FABRIC.fullmatch(rule) else ACCELERATOR_HEALTHY


def state(findings: Sequence[Finding], blind: Mapping[str, str] = NOT_BLIND) -> list[Statement]:
    """
    What all *findings* of a node, cleared ones included, make its conditions say. *blind*: why sources tell nothing.

    The worst finding gives reason and message. One that does not take the node out of service leaves the condition
    True, but is named in it. Where nothing takes the node out and a source is blind, the condition is Unknown.
    """
    standing = [finding for finding in findings if finding.cleared_at is None and _speaks_of_the_node(finding)]
    return [
        _state(
            type_,
            [finding for finding in standing if condition_of(finding.rule) == type_],
            {source: why for source, why in blind.items() if type_ in _spoken_to(source)},
        )
        for type_ in CONDITIONS
    ]


def to_write(
    current: Sequence[Condition], wanted: Sequence[Statement], now: datetime, *, refresh_after: timedelta
) -> list[Condition] | None:
    """
    All conditions of the node, those of others untouched; None when there is nothing worth a write.

    `lastTransitionTime` moves only with the status. What stands is written again after *refresh_after*, so that a
    condition of an agent that is long gone can be told from one of an agent that lives.
    """
    known = {condition.type: condition for condition in current}
    if not any(_is_due(known.get(one.type), one, now, refresh_after) for one in wanted):
        return None
    ours = {one.type: _written(known.get(one.type), one, now) for one in wanted}
    return [*(condition for condition in current if condition.type not in ours), *ours.values()]


def _speaks_of_the_node(finding: Finding) -> bool:
    if finding.shadow:
        return False
    return finding.quarantines or (finding.severity is not Severity.INFO and finding.blame is not Blame.APPLICATION)


def _spoken_to(source: str) -> Collection[str]:
    """The conditions about which a blind *source* leaves us in the dark."""
    if source == KERNEL_LOG:
        return CONDITIONS
    return (FABRIC_HEALTHY,) if _NETWORK.fullmatch(source) else (ACCELERATOR_HEALTHY,)


def _state(type_: str, findings: list[Finding], blind: Mapping[str, str]) -> Statement:
    worst = max(findings, key=lambda one: (one.quarantines, _BADNESS.index(one.severity)), default=None)
    if blind and not (worst and worst.quarantines):
        besides = f" Besides, {_message(worst, len(findings))}" if worst else ""
        return Statement(type_, "Unknown", _reason(min(blind)), f"{said_of(blind)}{besides}"[:LONGEST_MESSAGE])
    if worst:
        return Statement(type_, "False" if worst.quarantines else "True", worst.rule, _message(worst, len(findings)))
    return Statement(type_, "True", "NoFindings", "No standing finding.")


def _reason(source: str) -> str:
    """`pcie-aer` as `PcieAerUnreadable`."""
    return "".join(word.capitalize() for word in re.split("[ -]", source)) + "Unreadable"


def _message(finding: Finding, count: int) -> str:
    more = f" (and {count - 1} more)" if count > 1 else ""
    seen = f" {finding.evidence[-1].source}: {finding.evidence[-1].text}" if finding.evidence else ""
    return f"{finding.message}{more}{seen}"[:LONGEST_MESSAGE]


def _is_due(known: Condition | None, wanted: Statement, now: datetime, refresh_after: timedelta) -> bool:
    if known is None or (known.status, known.reason) != (wanted.status, wanted.reason):
        return True
    written = known.last_heartbeat_time
    age = refresh_after if written is None else now - written
    return age >= (refresh_after if known.message == wanted.message else min(WORDS_AFTER, refresh_after))


def _written(known: Condition | None, wanted: Statement, now: datetime) -> Condition:
    since = known.last_transition_time if known is not None and known.status == wanted.status else None
    return Condition(
        type=wanted.type,
        status=wanted.status,
        reason=wanted.reason,
        message=wanted.message,
        last_transition_time=since or now,
        last_heartbeat_time=now,
    )
