"""
`healthd alerts list`: the incidents of a cluster or of a run, and which alert service has accepted what. The other
command, `healthd alerts test`, is in `try_alerts`.

Exit codes: 0 none is open, 1 some are.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from healthd.cli import try_alerts
from healthd.cli.errors import UserError
from healthd.cli.target.target import add_target_arguments, open_target
from healthd.cli.terminal.output import console
from healthd.clock import SystemClock
from healthd.cluster.port import NotFound
from healthd.core.alerts.listing import IncidentRow, Order, in_order, rows_of
from healthd.core.api import IncidentRecord, to_wire
from healthd.core.api.names import SYSTEM_NAMESPACE
from healthd.local.gang import NAMESPACE

OPEN = 1
_EPILOG = """\
examples:
  healthd alerts list               # what is open or was not sent, pages first
  healthd alerts list --all -o json # also what is over, as it was sent
  healthd alerts list --name llama  # of a run on this machine
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd alerts`."""
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    what = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")
    listing = what.add_parser("list", help="list incidents, and who has accepted them")
    listing.add_argument("--all", action="store_true", help="also those that are over, and were sent")
    listing.add_argument("-o", "--output", choices=["table", "json"], default="table", help="json: one object a line")
    listing.add_argument(
        "--in", dest="home", default=SYSTEM_NAMESPACE, metavar="NAMESPACE", help="where healthd itself runs"
    )
    add_target_arguments(listing)
    try_alerts.add_arguments(what.add_parser("test", help=try_alerts.HELP))


def run(args: argparse.Namespace) -> int:
    """List the incidents, or try the services."""
    if args.what == "test":
        return try_alerts.run(args)
    return show(asyncio.run(_read(args)), args, SystemClock().now())


def show(records: Sequence[IncidentRecord], args: argparse.Namespace, now: datetime) -> int:
    """Print *records* as *args* ask for it; the answer is the exit code."""
    chosen = in_order(records, Order(namespace=args.namespace, with_resolved=args.all))
    if args.output == "json":
        sys.stdout.writelines(f"{msgspec.json.encode(to_wire(each)).decode()}\n" for each in chosen)
    else:
        _print(rows_of(chosen, now))
    return OPEN if any(each.spec.resolved is None for each in chosen) else 0


async def _read(args: argparse.Namespace) -> Sequence[IncidentRecord]:
    async with open_target(args) as found:
        try:
            home = args.home if found.state is None else NAMESPACE
            return (await found.cluster.list(IncidentRecord, namespace=home)).items
        except NotFound:
            raise UserError("this cluster has no incidents: apply deploy/crds.yaml of this version") from None


def _print(rows: Iterable[IncidentRow]) -> None:
    from rich.table import Table  # imported here: JSON needs no terminal library
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for title in ("SEVERITY", "OPENED", "STATE", "TITLE", "SERVICES"):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # brackets in a title are no markup
    console().print(table if table.row_count else "no incident is open")
