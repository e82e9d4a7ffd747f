"""
The state of the page: a head, and four tables by key. A viewer gets all of it once, and then what changed.

A viewer sees the gangs, recoveries and incidents of his namespaces, and the nodes where he may read nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgspec

from healthd.core.api.model import BreakerTrigger
from healthd.core.recovery.terms import Terms
from healthd.core.report.listing.fleet import FleetSummary, sentences
from healthd.core.report.page.lists import GangEntry, IncidentEntry, RecoveryEntry
from healthd.core.report.page.nodes import NodeCell

V = TypeVar("V")


class Scope(NamedTuple):
    """What one viewer may see."""

    namespaces: frozenset[str] | None = None
    """None: all namespaces."""
    nodes: bool = True
    """Whether he may see nodes, the budget and the breaker. Incidents that are about nodes, too."""

    def sees(self, namespace: str) -> bool:
        """Whether the objects of *namespace* are shown. What is in no namespace is shown with the nodes."""
        if not namespace:
            return self.nodes and self.namespaces is None
        return self.namespaces is None or namespace in self.namespaces


EVERYTHING = Scope()


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One indicator in the head of the page."""

    text: str
    is_bad: bool = False
    """It needs a person's attention."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The top of the page."""

    name: str
    """Of the cluster or of the run."""
    node: str
    """What a node is called: `node`, or `slot` on one server."""
    gang: str
    summary: list[str]
    """The same two lines as in `healthd top`; of the gangs alone where the viewer may not see nodes."""
    budget: Level | None
    breaker: Level | None
    has_alerts: bool
    """Whether alert services are configured. Without them there are no incidents."""
    trouble: str
    """Why what is shown may be out of date; empty if it is not."""


@dataclass(frozen=True, slots=True)
class PageState:
    """Everything that the page can show, of all namespaces. Keys: node name, `team-a/job/llama`, `team-a/llama-3`."""

    nodes: Mapping[str, NodeCell] = field(default_factory=dict)
    gangs: Mapping[str, GangEntry] = field(default_factory=dict)
    recoveries: Mapping[str, RecoveryEntry] = field(default_factory=dict)
    incidents: Mapping[str, IncidentEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the head shows beside the tables. *fleet* counts nodes; its count of gangs is not used."""

    name: str
    terms: Terms
    fleet: FleetSummary
    budget: int
    triggers: frozenset[BreakerTrigger] = frozenset()
    has_alerts: bool = False
    trouble: str = ""


def visible(state: PageState, scope: Scope) -> PageState:
    """The part of *state* that a viewer with *scope* may see."""
    if scope == EVERYTHING:
        return state
    return PageState(
        nodes=state.nodes if scope.nodes else {},
        gangs={key: each for key, each in state.gangs.items() if scope.sees(each.row.namespace)},
        recoveries={key: each for key, each in state.recoveries.items() if scope.sees(each.row.namespace)},
        incidents={key: each for key, each in state.incidents.items() if scope.sees(each.namespace)},
    )


def head(state: PageState, around: Surroundings, scope: Scope = EVERYTHING) -> Head:
    """The head over *state*, which is what a viewer with *scope* sees."""
    gangs = Counter(each.row.state for each in state.gangs.values())
    lines = sentences(around.fleet._replace(gangs=gangs), around.terms)
    return Head(
        name=around.name,
        node=around.terms.node,
        gang=around.terms.gang,
        summary=lines if scope.nodes else lines[1:],
        budget=budget_level(around) if scope.nodes else None,
        breaker=breaker_level(around.triggers, around.terms) if scope.nodes else None,
        has_alerts=around.has_alerts,
        trouble=around.trouble,
    )


def budget_level(around: Surroundings) -> Level:
    """How much of the budget is used."""
    used, limit, node = around.fleet.quarantined, around.budget, around.terms.node
    if used < limit:
        return Level(text=f"{used} of {limit} {node}s in quarantine")
    so = f"the budget is used up, and a further bad {node} stays in service"
    return Level(text=f"{used} of {limit} {node}s in quarantine: {so}", is_bad=True)


_OPEN = {
    BreakerTrigger.NODES: "too many {node}s went bad at once",
    BreakerTrigger.RESTARTS: "too many recoveries began in one namespace",
}


def breaker_level(triggers: Iterable[BreakerTrigger], terms: Terms) -> Level:
    """Whether the breaker holds restarts, and why."""
    over = [_OPEN[each].format(node=terms.node) for each in sorted(triggers)]
    if not over:
        return Level(text="closed")
    return Level(text=f"open: {' and '.join(over)}; restarts wait", is_bad=True)


def changes(before: PageState, after: PageState) -> dict[str, dict[str, Any]]:
    """What changed, by table: the new entry of each key, None for one that is gone. Tables without a change are left
    out."""
    tables: dict[str, dict[str, Any]] = {
        "nodes": _changes(before.nodes, after.nodes),
        "gangs": _changes(before.gangs, after.gangs),
        "recoveries": _changes(before.recoveries, after.recoveries),
        "incidents": _changes(before.incidents, after.incidents),
    }
    return {name: table for name, table in tables.items() if table}


def _changes(before: Mapping[str, V], after: Mapping[str, V]) -> dict[str, V | None]:
    if before is after:
        return {}
    changed: dict[str, V | None] = {}
    for key, each in after.items():
        former = before.get(key)
        if former is not each and former != each:
            changed[key] = each
    changed.update((key, None) for key in before if key not in after)
    return changed
