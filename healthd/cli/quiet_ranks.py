"""What each rank of a gang does that hangs now in a cluster, for `healthd explain`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from healthd.cli.listing import read_gangs
from healthd.cli.target.target import Target
from healthd.cluster.port import Forbidden, NotFound
from healthd.core.api import Node, NodeHealth
from healthd.core.hang.suspects.evidence import RankEvidence
from healthd.core.hang.suspects.vote import vote
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.hangs.gang_silence import quiet_ranks
from healthd.core.report.hang_text import hang_lines


async def read_quiet_ranks(gang: Root, found: Target, now: datetime) -> list[RankEvidence]:
    """
    What the agents report of its ranks. Empty where it does not hang, a rank works, or that may not be read.

    It reads the gangs of the namespace, all nodes and all reports: a gang that hangs may be on each of them.
    """
    if gang.silence is None or gang.silence.ended_at is not None:
        return []
    state = await read_gangs(found._replace(namespace=gang.ref.namespace))
    try:
        nodes = (await found.cluster.list(Node)).items
        reports = (await found.cluster.list(NodeHealth)).items
    except (NotFound, Forbidden):
        return []
    view = GangView(
        root=gang,
        pods=state.members(gang.ref),
        nodes={node.metadata.name: node for node in nodes},
        health={report.metadata.name: report for report in reports},
    )
    return quiet_ranks(view, now)


def lines_of_ranks(ranks: list[RankEvidence], width: int) -> Iterator[str]:
    """Who holds up the others, and a table of the *ranks*; nothing without them."""
    if ranks:
        yield from hang_lines(vote(ranks), ranks, width=width)
