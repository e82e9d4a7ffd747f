"""The head of `healthd top`: how many nodes, spares and gangs there are, and in which state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from healthd.core.api import ANNOTATION_CLAIM, Node, NodeHealth
from healthd.core.api.model import Verdict
from healthd.core.node.quarantine import read_record
from healthd.core.recovery.nodes.spares import is_spare
from healthd.core.recovery.terms import Terms
from healthd.core.report.listing.gangs import GangRow, GangState


class FleetSummary(NamedTuple):
    """Numbers of a cluster, or of the slots of a run."""

    nodes: int
    quarantined: int
    verdicts: Mapping[Verdict, int]
    """Nodes by verdict. A node without an agent's report counts as unknown."""
    spares_free: int
    spares_in_use: int
    gangs: Mapping[GangState, int]


def summary(nodes: Mapping[str, Node], health: Mapping[str, NodeHealth], gangs: Iterable[GangRow]) -> FleetSummary:
    """The numbers of these *nodes*, with the reports of their agents, and of these *gangs*."""
    reports = (health.get(name) for name in nodes)
    return FleetSummary(
        nodes=len(nodes),
        quarantined=sum(read_record(node) is not None for node in nodes.values()),
        verdicts=Counter(report.status.verdict if report else Verdict.UNKNOWN for report in reports),
        spares_free=sum(map(is_spare, nodes.values())),
        spares_in_use=sum(ANNOTATION_CLAIM in node.metadata.annotations for node in nodes.values()),
        gangs=Counter(row.state for row in gangs),
    )


def sentences(fleet: FleetSummary, terms: Terms) -> list[str]:
    """*fleet* in two lines. Numbers of zero are left out, except where zero spares are free."""
    verdicts = [f"{count} {verdict.value}" for verdict in Verdict if (count := fleet.verdicts.get(verdict, 0))]
    out = [f"{fleet.quarantined} in quarantine"] if fleet.quarantined else []
    free = f"{fleet.spares_free} spare{'' if fleet.spares_free == 1 else 's'} free"
    spares = [free, *([f"{fleet.spares_in_use} in use"] if fleet.spares_in_use else [])]
    gangs = [f"{count} {state.value}" for state in GangState if (count := fleet.gangs.get(state, 0))]
    return [
        f"{terms.node}s  {fleet.nodes}: {', '.join([*verdicts, *out, *spares])}",
        f"gangs  {sum(fleet.gangs.values())}{': ' if gangs else ''}{', '.join(gangs)}",
    ]
