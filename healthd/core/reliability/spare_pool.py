"""How many spares the fleet of a cluster wants, by its own history. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime

from healthd.core.api import MachineHistory
from healthd.core.reliability.fleet_rates import rates
from healthd.core.reliability.history import is_away
from healthd.core.reliability.spares_plan import plan

SHORTAGE = 0.01
"""The share of time in which a node may be missing, where nothing else is asked for."""


def wanted_spares(histories: Iterable[MachineHistory], pool: Collection[str], now: datetime) -> int:
    """
    The spares that all kinds of machines want together. *pool* are the Nodes that are spares, free or claimed.

    Spares of one kind are no help for another kind. A kind whose repairs cannot keep up wants as many as it has nodes.
    """
    every = list(histories)
    spares = Counter(each.model for each in every if each.node in pool and not is_away(each))
    total = 0
    for kind in rates(every, now):
        wanted = plan(kind.fleet(spares[kind.model]), SHORTAGE, around=0).wanted
        total += kind.nodes if wanted is None else wanted.spares
    return total
