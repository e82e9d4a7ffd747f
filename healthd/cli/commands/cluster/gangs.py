"""
`healthd gangs`: the training gangs of a cluster or of a run, their state, and what a fault would cost each now.

Exit codes: 0, also where there is none; 1 if one needs a person.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable
from datetime import datetime

from healthd.cli import listing
from healthd.cli.target.target import open_target
from healthd.clock import SystemClock
from healthd.controller.cache.cluster_state import ClusterState
from healthd.core.recovery.gang import Root
from healthd.core.report.listing.gangs import COLUMNS, NEED_A_PERSON, GangRow, cells, gang_row, in_order

NEEDS_A_PERSON = 1
_EXAMPLES = """\
examples:
  healthd gangs                  # those that need a person first
  healthd gangs -n team-a -o wide
  healthd gangs -o json | jq 'select(.state == "held")'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd gangs`."""
    listing.add_arguments(parser, _EXAMPLES)


def run(args: argparse.Namespace) -> int:
    """Print the list. Raises UserError."""
    now = SystemClock().now()
    rows, where = asyncio.run(_read(args, now))
    if args.output == "json":
        listing.print_json(rows)
    elif rows:
        listing.print_list(COLUMNS, [cells(row, now) for row in rows], wide=args.output == "wide")
    else:
        print(f"{where}: no gang has an annotation of healthd's")
    return NEEDS_A_PERSON if any(row.state in NEED_A_PERSON for row in rows) else 0


def rows_of(roots: Iterable[Root], state: ClusterState, now: datetime) -> list[GangRow]:
    """The gangs of *roots* as they are in *state*, those that need a person first."""
    return in_order(gang_row(root, state.members(root.ref), state.of_gang(root.ref), now) for root in roots)


async def _read(args: argparse.Namespace, now: datetime) -> tuple[list[GangRow], str]:
    async with open_target(args) as found:
        state = await listing.read_gangs(found)
        return rows_of(state.roots.values(), state, now), found.name
