"""
`healthd nodes`: every node with its verdict, its history, and whether it is a lemon.

docs/spares.md explains the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from datetime import datetime

from healthd.cli import listing
from healthd.cli.errors import UserError
from healthd.cli.target.target import Target, open_target
from healthd.clock import SystemClock
from healthd.cluster.port import Forbidden, NotFound
from healthd.core.api import HardwareHistory, Node, NodeHealth, NodeRemediation
from healthd.core.api.names import SYSTEM_NAMESPACE
from healthd.core.api.remediations import SpareCheck
from healthd.core.report.listing.nodes import COLUMNS, NodeRow, cells, node_rows, summary

_EXAMPLES = """\
examples:
  healthd nodes                     # lemons first, and why each is one
  healthd nodes -o wide             # also what failed last, and what helped
  healthd nodes -o json gpu-17      # one object a line, with bad GPUs

FAULTS: how often the node was taken out of service in the last 180 days.
FAULTS/MONTH: its rate in service, with the interval that holds it with a chance
of 95 %. docs/spares.md explains the figures.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd nodes`."""
    listing.add_arguments(parser, _EXAMPLES)
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="only these")
    parser.add_argument(
        "--in", dest="home", default=SYSTEM_NAMESPACE, metavar="NAMESPACE", help="where healthd itself runs"
    )


def run(args: argparse.Namespace) -> int:
    """Print the list. Exit code 0, also where there is none. Raises UserError where a node that is named is missing."""
    rows, note = asyncio.run(_read(args, SystemClock().now()))
    show(rows, args)
    if note:
        print(note, file=sys.stderr)
    return 0


def show(rows: Sequence[NodeRow], args: argparse.Namespace) -> None:
    """Print *rows* as *args* ask for it. Raises UserError."""
    if missing := sorted(set(args.nodes) - {row.node for row in rows}):
        raise UserError(f"there is no node {', '.join(missing)}; `healthd nodes` lists all")
    chosen = [row for row in rows if not args.nodes or row.node in args.nodes]
    if args.output == "json":
        listing.print_json(chosen)
    elif chosen:
        listing.print_list(COLUMNS, [cells(row) for row in chosen], wide=args.output == "wide")
        for line in () if args.output == "wide" else summary(chosen):
            print(line)
    else:
        print("there is no node")


async def _read(args: argparse.Namespace, now: datetime) -> tuple[list[NodeRow], str]:
    async with open_target(args) as found:
        nodes = (await found.cluster.list(Node)).items
        health = {each.metadata.name: each for each in (await found.cluster.list(NodeHealth)).items}
        histories, note = await _histories(found, args.home)
        checks = await _spare_checks(found, args.home)
    return node_rows(nodes, health, [each.spec for each in histories], now, checks), note


async def _spare_checks(found: Target, namespace: str) -> dict[str, SpareCheck]:
    """The newest check of each spare. Where `remediation` was never installed, there is none."""
    try:
        listed = (await found.cluster.list(NodeRemediation, namespace=namespace)).items
    except (NotFound, Forbidden):
        return {}
    return {one.metadata.name: one.status.spare_check for one in listed if one.status.spare_check is not None}


async def _histories(found: Target, namespace: str) -> tuple[list[HardwareHistory], str]:
    try:
        listed = (await found.cluster.list(HardwareHistory, namespace=namespace)).items
    except (NotFound, Forbidden) as error:
        return [], f"no history: {error}; apply the definitions and rights of deploy/ of this version"
    return listed, "" if listed or found.state is not None else f"no history in namespace {namespace} yet"
