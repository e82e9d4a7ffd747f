"""
`healthd recoveries`: the recoveries of a cluster or of a run: those in progress first, then the newest.

`healthd explain RECOVERY` shows one of them in full.
"""

from __future__ import annotations

import argparse
import asyncio

from healthd.cli import listing
from healthd.cli.target.target import open_target
from healthd.clock import SystemClock
from healthd.core.api.model import ENDED
from healthd.core.report.listing.recoveries import COLUMNS, RecoveryRow, cells, in_order

_EXAMPLES = """\
examples:
  healthd recoveries             # held ones first, then those in progress
  healthd recoveries --active -n team-a
  healthd recoveries -o json | jq 'select(.phase == "Held") | .message'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd recoveries`."""
    listing.add_arguments(parser, _EXAMPLES)
    parser.add_argument("--active", action="store_true", help="only those that have not ended")


def run(args: argparse.Namespace) -> int:
    """Print the list. Exit code 0, also where there is none. Raises UserError."""
    now = SystemClock().now()
    rows, where = asyncio.run(_read(args))
    if args.output == "json":
        listing.print_json(rows)
    elif rows:
        listing.print_list(COLUMNS, [cells(row, now) for row in rows], wide=args.output == "wide")
    else:
        print(f"{where}: no recovery{' in progress' if args.active else ' so far'}")
    return 0


async def _read(args: argparse.Namespace) -> tuple[list[RecoveryRow], str]:
    async with open_target(args) as found:
        listed = await listing.read_recoveries(found)
    rows = in_order(listed)
    return [row for row in rows if not args.active or row.phase not in ENDED], found.name
