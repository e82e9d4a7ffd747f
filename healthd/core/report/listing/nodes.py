"""One row for each node: its verdict, its history, and whether it is a lemon."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from healthd.core.api import MachineHistory, Node, NodeHealth, Outage
from healthd.core.api.model import Verdict
from healthd.core.api.remediations import SpareCheck
from healthd.core.node.quarantine import read_record
from healthd.core.node.reporting import is_silent
from healthd.core.recovery.nodes.spares import is_spare
from healthd.core.reliability.history import is_away
from healthd.core.reliability.lemons import FEWEST_OUTAGES
from healthd.core.reliability.ranking import Standing, Subject, rank
from healthd.core.report.listing.table import Column

_NO_CHECKS: Mapping[str, SpareCheck] = {}
COLUMNS = (
    Column("NODE"),
    Column("VERDICT"),
    Column("IN SERVICE SINCE"),
    Column("FAULTS"),
    Column("FAULTS/MONTH"),
    Column("LEMON"),
    Column("USUAL", wide=True),
    Column("LAST FAULT", wide=True),
    Column("HELPED", wide=True),
    Column("SPARE CHECK", wide=True),
    Column("MODEL", wide=True),
    Column("MACHINE", wide=True),
    Column("WHY", wide=True, flexible=True),
)


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One node. Rates are in outages a month of service; None where nothing is known."""

    node: str
    verdict: str
    """`healthy`, `degraded`, `unhealthy`, `unknown`; `quarantined` while healthd holds it out of service."""
    machine: str = ""
    model: str = ""
    since: datetime | None = None
    outages: int = 0
    """In the time that counts."""
    hours: float = 0
    rate: float | None = None
    low: float | None = None
    high: float | None = None
    usual: float | None = None
    probability: float | None = None
    lemon: bool = False
    reason: str = "no history yet"
    last: Outage | None = None
    spare: bool = False
    """It is held free for recoveries."""
    spare_check: SpareCheck | None = None
    """Its newest check as an idle spare."""
    gpus: Sequence[Standing] = ()
    """Those of its GPUs that were the cause of an outage, the most likely lemon first."""


def node_rows(
    nodes: Iterable[Node],
    health: Mapping[str, NodeHealth],
    histories: Iterable[MachineHistory],
    now: datetime,
    checks: Mapping[str, SpareCheck] = _NO_CHECKS,
) -> list[NodeRow]:
    """A row for each node: lemons first, then by outages, then by name. *checks*: of spares, by node."""
    every = list(histories)
    here = {each.node: each for each in every if not is_away(each)}
    standings: dict[str, Standing] = {}
    gpus: dict[str, list[Standing]] = defaultdict(list)
    for standing in rank(every, now):
        if standing.subject is Subject.GPU:
            gpus[standing.node].append(standing)
        else:
            standings[standing.node] = standing
    rows = []
    for node in nodes:
        name = node.metadata.name
        verdict = _verdict(node, health.get(name), now)
        row = _row(name, verdict, here.get(name), standings.get(name), gpus.get(name, ()))
        check = checks.get(name)
        is_of_node = check is not None and check.node_uid == node.metadata.uid
        spare = {"spare": is_spare(node), "spare_check": check if is_of_node else None}
        rows.append(msgspec.structs.replace(row, **spare))
    return sorted(rows, key=lambda row: (not row.lemon, -row.outages, row.node))


def _row(
    name: str, verdict: str, history: MachineHistory | None, own: Standing | None, gpus: Sequence[Standing]
) -> NodeRow:
    if history is None or own is None:
        return NodeRow(node=name, verdict=verdict)
    to_blame = next((each for each in gpus if each.is_lemon), None)
    worst = to_blame if to_blame is not None and not own.is_lemon else own
    return NodeRow(
        node=name,
        verdict=verdict,
        machine=history.machine,
        model=history.model,
        since=history.since,
        outages=own.outages,
        hours=own.hours,
        rate=own.rate,
        low=own.low,
        high=own.high,
        usual=own.usual,
        probability=worst.probability,
        lemon=worst.is_lemon,
        reason=worst.reason,
        last=history.outages[-1] if history.outages else None,
        gpus=gpus,
    )


def _verdict(node: Node, health: NodeHealth | None, now: datetime) -> str:
    if read_record(node) is not None:
        return "quarantined"
    status = health.status if health is not None else None
    if status is None or (is_silent(status, now) and status.verdict is Verdict.HEALTHY):
        return Verdict.UNKNOWN.value
    return status.verdict.value


# As text --------------------------------------------------------------------------------------------------------------


def cells(row: NodeRow) -> tuple[str, ...]:
    """*row* as text, a cell for each of `COLUMNS`."""
    last = row.last
    return (
        row.node,
        row.verdict,
        f"{row.since:%Y-%m-%d}" if row.since else "",
        str(row.outages) if row.since else "",
        rate_text(row.rate, row.low, row.high),
        lemon_text(row),
        f"{row.usual:.2f}" if row.usual is not None else "",
        f"{last.rule} {last.began:%Y-%m-%d %H:%M}" if last else "",
        (last.helped or ("still out" if last.ended is None else "")) if last else "",
        spare_check_text(row),
        row.model,
        row.machine,
        row.reason,
    )


def rate_text(rate: float | None, low: float | None, high: float | None) -> str:
    """A rate with its interval: `2.1 (0.9-4.0)`."""
    return "" if rate is None or low is None or high is None else f"{rate:.2f} ({low:.2f}-{high:.2f})"


def spare_check_text(row: NodeRow) -> str:
    """How its last check as an idle spare ended, and when: `passed 2026-01-01 10:00`."""
    check = row.spare_check
    if check is None:
        return "never" if row.spare else ""
    if check.outcome is None:
        return f"runs since {check.at:%Y-%m-%d %H:%M}"
    return f"{check.outcome} {check.ended_at or check.at:%Y-%m-%d %H:%M}"


def lemon_text(row: NodeRow) -> str:
    """`yes (99 %)`; `no`; where it may become one: the chance alone."""
    if row.probability is None:
        return ""
    percent = f"{min(99, round(100 * row.probability))} %"
    if row.lemon:
        return f"yes ({percent})"
    return f"no ({percent})" if row.outages >= FEWEST_OUTAGES - 1 else "no"


def summary(rows: Sequence[NodeRow]) -> Iterator[str]:
    """Below the table: why each lemon is one."""
    for row in rows:
        if row.lemon:
            yield f"{row.node}: {row.reason}"
