"""
Computes a node's two conditions from its findings. Pure.

`AcceleratorHealthy` is about the devices in the node, `FabricHealthy` about its connections: NVLink, NVSwitch, network.
The rule of a finding decides its condition. A rule that the fabric pattern does not match belongs to the node itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from healthd.core.api import Condition
from healthd.core.api.model import Blame, Finding, Severity
from healthd.core.diagnosis.blindness import GPU_SOURCES, KERNEL_LOG, NOT_BLIND, blindness_text

ACCELERATOR_HEALTHY = "AcceleratorHealthy"
FABRIC_HEALTHY = "FabricHealthy"
CONDITIONS = (ACCELERATOR_HEALTHY, FABRIC_HEALTHY)

_FABRIC = re.compile(
    r"sxid-.*"  # the NVSwitch driver
    r"|xid-(?:74|108|136|137|14[4-9]|150|155|166|170)"  # NVLink in NVIDIA's Xid catalogue; C2C (121, 173) is in a chip
    r"|(?:mlx5|efa|ib)-.*"  # network drivers
)
_NETWORK = re.compile(r"infiniband.*|ethernet.*|ethtool")
"""Sources that report about the connections of the node."""
LONGEST_MESSAGE = 800
"""Characters: people read the message in `kubectl describe node`."""
WORDS_AFTER = timedelta(minutes=5)
"""Delay before a changed message is written while the rule stays the same (new evidence of the same fault): it is not
worth a write to the node at once."""

_BADNESS = list(Severity)


class Statement(msgspec.Struct, frozen=True):
    """The wanted content of one condition."""

    type: str
    status: str
    reason: str
    message: str


def condition_of(rule: str) -> str:
    """The condition that a finding of *rule* belongs to."""
    return FABRIC_HEALTHY if _FABRIC.fullmatch(rule) else ACCELERATOR_HEALTHY


def state(findings: Sequence[Finding], blind: Mapping[str, str] = NOT_BLIND) -> list[Statement]:
    """
    The conditions for all *findings* of a node, cleared ones included. *blind*: why sources report nothing.

    The worst finding gives the reason and the message. A finding that does not take the node out of service leaves the
    condition True, but is named in it. When no finding takes the node out and a source is blind, the condition is
    Unknown.
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
    All conditions of the node, those of other controllers unchanged; None when no change is worth a write.

    `lastTransitionTime` changes only with the status. An unchanged condition is written again after *refresh_after*, so
    that a reader can distinguish the condition of a live agent from that of an agent that is long gone.
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
    """The conditions that become Unknown when *source* is blind."""
    if source == KERNEL_LOG:
        return CONDITIONS
    return (FABRIC_HEALTHY,) if _NETWORK.fullmatch(source) else (ACCELERATOR_HEALTHY,)


def _state(type_: str, findings: list[Finding], blind: Mapping[str, str]) -> Statement:
    worst = max(findings, key=lambda one: (one.quarantines, _BADNESS.index(one.severity)), default=None)
    if blind and not (worst and worst.quarantines):
        besides = f" Besides, {_message(worst, len(findings))}" if worst else ""
        return Statement(type_, "Unknown", _reason(blind), f"{blindness_text(blind)}{besides}"[:LONGEST_MESSAGE])
    if worst:
        return Statement(type_, "False" if worst.quarantines else "True", worst.rule, _message(worst, len(findings)))
    return Statement(type_, "True", "NoFindings", "No standing finding.")


def _reason(blind: Collection[str]) -> str:
    """`pcie-aer` as `PcieAerUnreadable`. Of several blind sources, one of the GPUs themselves gives the reason."""
    source = min(blind, key=lambda source: (source not in GPU_SOURCES, source))
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
