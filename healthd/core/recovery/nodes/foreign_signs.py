"""
Signs of other detectors on a node: conditions, taints, labels and annotations that are already in the cluster.

A sign has one of four effects: it restarts gangs on other nodes at once, or right after their next save, it keeps gangs
from being placed on the node, or it is only shown to people. It never takes a node out of service: its detector decides
that. The rows are data (`foreign_signs.json`, each with its source). An operator can switch rows off and add rows.

A sign of readiness comes and goes: a node that is not Ready for a few seconds causes no restart.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache

import msgspec

from healthd.core.api import Node
from healthd.core.api.model import CauseKind
from healthd.core.config import ForeignPolicy, format_duration, parse_duration

READY = "Ready"
"""The node condition that the kubelet sets; when the kubelet is silent, the node controller sets it."""


class Carrier(StrEnum):
    """The part of the node object that has the sign."""

    CONDITION = "condition"
    TAINT = "taint"
    LABEL = "label"
    ANNOTATION = "annotation"
    DELETION = "deletion"
    """The node object is being deleted, and a finalizer still holds it."""


class Effect(StrEnum):
    """The effect of a sign, the strongest first."""

    RESTART = "restart"
    """Gangs on the node are restarted elsewhere."""
    MOVE = "move"
    """
    It is no fault: right after a save, gangs on the node are restarted elsewhere, when there are nodes for that. No
    gang is placed there while another node is available.
    """
    AVOID = "avoid"
    """No gang is placed there while another node is available."""
    TELL = "tell"
    """The sign is only shown to people."""


STRENGTH = {effect: strength for strength, effect in enumerate(reversed(Effect))}


class SignRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    One rule for a sign.

    *values* are the values that match: for a condition the status (empty: `True`), else the value (empty: any).
    *reasons* are the reasons of a condition that match (empty: any).
    """

    name: str
    on: Carrier
    key: str
    values: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    after: str = "0s"
    """How long the sign must have been present before it counts."""
    cause: CauseKind = CauseKind.HARDWARE
    effect: Effect
    says: str
    """The text of the sign, which follows the name of the node."""
    source: str
    """The detector that sets this sign, and where that is documented."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One sign on one node."""

    row: str
    node: str
    effect: Effect
    cause: CauseKind
    message: str
    since: datetime | None = None
    """When it appeared; None: unknown."""
    of_readiness: bool = False
    """The sign is about the kubelet (silent, or not well): the processes on the node may be well."""


@dataclass(frozen=True, slots=True)
class SignRules:
    """The active rows, by the carrier and the key that they match."""

    rows: Mapping[tuple[Carrier, str], tuple[SignRule, ...]] = field(default_factory=dict)
    _keys: dict[Carrier, list[str]] = field(init=False, default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for carrier, key in self.rows:
            self._keys.setdefault(carrier, []).append(key)

    def at(self, carrier: Carrier, key: str) -> tuple[SignRule, ...]:
        """The rows for one key."""
        return self.rows.get((carrier, key), ())

    def keys(self, carrier: Carrier) -> Sequence[str]:
        """The keys of *carrier* that at least one row matches."""
        return self._keys.get(carrier, ())


def rules_of(policy: ForeignPolicy) -> SignRules:
    """The built-in rows that *policy* does not switch off, and the rows that it adds."""
    if not policy.enabled:
        return SignRules()
    rows = [row for row in known_rows().values() if row.name not in policy.off]
    by_place: dict[tuple[Carrier, str], list[SignRule]] = {}
    for row in [*rows, *map(parse_row, policy.rows)]:
        by_place.setdefault((row.on, row.key), []).append(row)
    return SignRules({place: tuple(group) for place, group in by_place.items()})


@cache
def known_rows() -> Mapping[str, SignRule]:
    """The built-in rows, by name."""
    raw = pkgutil.get_data("healthd.core.recovery.nodes", "foreign_signs.json")
    assert raw is not None
    return {row.name: row for row in msgspec.json.decode(raw, type=list[SignRule])}


_ROW = re.compile(
    r"(?P<on>condition|taint|label|annotation) (?P<key>[^\s=]+)(=(?P<values>\S+))?"
    r"( reason (?P<reasons>\S+))?( after (?P<after>\S+))? -> (?P<effect>restart|move|avoid|tell)"
)
GRAMMAR = (
    "condition|taint|label|annotation KEY[=VALUE,VALUE…] [reason REASON,…] [after DURATION] -> restart|move|avoid|tell"
)
"""The syntax of a row in the configuration."""


def parse_row(text: str) -> SignRule:
    """Parses one row of the configuration. Raises ValueError with a message for the operator."""
    match = _ROW.fullmatch(" ".join(text.split()))
    if match is None:
        raise ValueError(f"must be a row such as `taint example.com/broken -> restart` ({GRAMMAR}), not {text!r}")
    after = match["after"] or "0s"
    parse_duration(after)
    if match["reasons"] and match["on"] != Carrier.CONDITION:
        raise ValueError(f"only a condition has a reason: {text!r}")
    matched = f"={match['values']}" if match["values"] else ""
    return SignRule(
        name=f"{match['on']} {match['key']}{matched}",
        on=Carrier(match["on"]),
        key=match["key"],
        values=tuple(match["values"].split(",")) if match["values"] else (),
        reasons=tuple(match["reasons"].split(",")) if match["reasons"] else (),
        after=after,
        effect=Effect(match["effect"]),
        says=f"it has the {match['on']} {match['key']}{matched}",
        source="configuration",
    )


def check_name(name: str) -> None:
    """Raises ValueError unless *name* is a row that can be switched off."""
    if name not in known_rows():
        raise ValueError(f"there is no row {name!r}; the rows are {', '.join(sorted(known_rows()))}")


def signs_on(node: Node, rules: SignRules, now: datetime) -> list[Sign]:
    """Every sign on *node* that has been present for long enough, the strongest first."""
    found = [*_conditions(node, rules), *_taints(node, rules), *_notes(node, rules)]
    ripe = [_sign(node, row, since, detail) for row, since, detail in found if _is_ripe(row, since, now)]
    return sorted(ripe, key=lambda sign: STRENGTH[sign.effect], reverse=True)


def reader(nodes: Mapping[str, Node], rules: SignRules, now: datetime) -> Callable[[str], Sign | None]:
    """
    A function from a node name to the strongest sign there. Computed on demand, and once: most nodes are never asked
    for, and those of a gang several times.
    """

    @cache
    def strongest(name: str) -> Sign | None:
        node = nodes.get(name)
        return next(iter(signs_on(node, rules, now)), None) if node is not None else None

    return strongest


Found = tuple[SignRule, datetime | None, str]
"""A row that matches, since when, and the detector's own text."""


def _conditions(node: Node, rules: SignRules) -> Iterator[Found]:
    for condition in node.status.conditions:
        for row in rules.at(Carrier.CONDITION, condition.type):
            counts = condition.status in (row.values or ("True",))
            if counts and (not row.reasons or condition.reason in row.reasons):
                detail = ": ".join(filter(None, (condition.reason, condition.message)))
                yield row, condition.last_transition_time, f"{condition.type} is {condition.status}, {detail}"


def _taints(node: Node, rules: SignRules) -> Iterator[Found]:
    for taint in node.spec.taints:
        for row in rules.at(Carrier.TAINT, taint.key):
            if not row.values or taint.value in row.values:
                yield row, taint.time_added, f"taint {taint.key}{f'={taint.value}' if taint.value else ''}"


def _notes(node: Node, rules: SignRules) -> Iterator[Found]:
    """Labels, annotations, and a deletion that has begun. The age of labels and annotations is unknown."""
    meta = node.metadata
    for carrier, notes in ((Carrier.LABEL, meta.labels), (Carrier.ANNOTATION, meta.annotations)):
        for key in rules.keys(carrier):
            if key not in notes:
                continue
            for row in rules.at(carrier, key):
                if not row.values or notes[key] in row.values:
                    yield row, None, f"{carrier} {key}={notes[key]}"
    if meta.deletion_timestamp is not None:
        for row in rules.at(Carrier.DELETION, ""):
            yield row, meta.deletion_timestamp, f"deleted at {meta.deletion_timestamp:%H:%M:%S}"


def _is_ripe(row: SignRule, since: datetime | None, now: datetime) -> bool:
    """Whether the sign has lasted for `row.after`. A sign of unknown age has an age of zero."""
    wanted = parse_duration(row.after)
    return not wanted or (since is not None and now - since >= wanted)


def _sign(node: Node, row: SignRule, since: datetime | None, detail: str) -> Sign:
    name = node.metadata.name
    lasts = (
        f" for {format_duration(parse_duration(row.after))} or more" if parse_duration(row.after) > timedelta() else ""
    )
    return Sign(
        row=row.name,
        node=name,
        effect=row.effect,
        cause=row.cause,
        message=f"{name}: {row.says}{lasts} ({detail.removesuffix(', ')})",
        since=since,
        of_readiness=row.on is Carrier.CONDITION and row.key == READY,
    )
