"""
`healthd spares plan`: how many spares a fleet needs, and what one more is worth.

From the history of a cluster, or, with `--nodes`, from what is given by options, without any cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
from collections import Counter
from datetime import datetime

import msgspec

from healthd.cli.errors import UserError
from healthd.cli.target.target import add_target_arguments, open_target
from healthd.clock import SystemClock
from healthd.cluster.port import ClusterError, Forbidden, NotFound
from healthd.core.api import ANNOTATION_CLAIM, HardwareHistory, MachineHistory, Node
from healthd.core.api.names import SYSTEM_NAMESPACE
from healthd.core.recovery.nodes.spares import is_spare
from healthd.core.reliability.fleet_rates import FleetRates, Rate, published_failures, published_repair, rates
from healthd.core.reliability.history import is_away
from healthd.core.reliability.spares_plan import MOST_NODES, Fleet, plan
from healthd.core.report.spares_text import Planned, as_object, plan_lines

_EPILOG = """\
examples:
  healthd spares plan                   # this cluster, by its own history
  healthd spares plan --shortage 0.1%   # short for a thousandth of the time
  healthd spares plan --nodes 63 --repair-hours 24   # without a cluster

A shortage is a time in which more nodes are broken than there are spares.
docs/spares.md explains the figures.
"""
GIVEN = "given by an option"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd spares`."""
    what = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")
    planning = what.add_parser("plan", help="say how many spares are needed, and what one more is worth")
    planning.epilog = _EPILOG
    planning.formatter_class = argparse.RawDescriptionHelpFormatter
    planning.add_argument(
        "--shortage", type=share, default=0.01, metavar="PERCENT", help="at most so much of the time (default: 1%%)"
    )
    planning.add_argument("--nodes", type=_count, metavar="N", help="nodes that must work; no cluster is asked then")
    planning.add_argument("--failures", type=_positive, metavar="RATE", help="of one node in a month of 30 days")
    planning.add_argument("--repair-hours", type=_positive, metavar="HOURS", help="until a broken node is back")
    planning.add_argument("--crews", type=_count, default=0, metavar="N", help="nodes in repair at once (default: all)")
    planning.add_argument("--gpus", type=_count, default=8, metavar="N", help="of one node (default: 8)")
    planning.add_argument(
        "--gang", type=_count, default=1, metavar="NODES", help="that stand still while one is missing (default: 1)"
    )
    planning.add_argument("-o", "--output", choices=["text", "json"], default="text", help="json: one object a line")
    planning.add_argument(
        "--in", dest="home", default=SYSTEM_NAMESPACE, metavar="NAMESPACE", help="where healthd itself runs"
    )
    add_target_arguments(planning)


def run(args: argparse.Namespace) -> int:
    """Plan, print; exit code 0."""
    if args.nodes:
        plans = [_by_options(args)]
    else:
        histories, pool = asyncio.run(_read(args))
        plans = by_history(histories, pool, args, SystemClock().now())
    if args.output == "json":
        sys.stdout.writelines(f"{msgspec.json.encode(as_object(each)).decode()}\n" for each in plans)
    else:
        print("\n\n".join("\n".join(plan_lines(each)) for each in plans))
    return 0


def by_history(
    histories: list[MachineHistory], pool: set[str], args: argparse.Namespace, now: datetime
) -> list[Planned]:
    """A plan for each kind of node; *pool*: the Nodes that are spares. Options beat the history. Raises UserError."""
    kinds = rates(histories, now)
    if not kinds:
        raise UserError("this cluster has no history yet: say with --nodes for how many nodes to plan")
    spares = Counter(each.model for each in histories if each.node in pool and not is_away(each))
    return [_planned(kind, spares[kind.model], args) for kind in kinds]


def _planned(kind: FleetRates, has: int, args: argparse.Namespace) -> Planned:
    failures = Rate(args.failures, GIVEN) if args.failures else kind.failures
    repair = Rate(args.repair_hours, GIVEN) if args.repair_hours else kind.repair_hours
    known = kind._replace(failures=failures, repair_hours=repair)
    fleet = known.fleet(has, crews=args.crews, gpus=args.gpus, gang=args.gang)
    return Planned(kind.model, fleet, failures, repair, has, args.shortage, plan(fleet, args.shortage))


def _by_options(args: argparse.Namespace) -> Planned:
    failures = Rate(args.failures, GIVEN) if args.failures else published_failures()
    repair = Rate(args.repair_hours, GIVEN) if args.repair_hours else published_repair()
    fleet = Fleet(args.nodes, failures.value, repair.value, args.crews, args.gpus, args.gang)
    return Planned("", fleet, failures, repair, None, args.shortage, plan(fleet, args.shortage))


async def _read(args: argparse.Namespace) -> tuple[list[MachineHistory], set[str]]:
    async with open_target(args) as found:
        try:
            histories = (await found.cluster.list(HardwareHistory, namespace=args.home)).items
            nodes = (await found.cluster.list(Node)).items
        except (NotFound, Forbidden) as error:
            raise UserError(f"{error}; apply the definitions and rights of deploy/ of this version") from None
        except ClusterError as error:
            raise UserError(str(error)) from error
    pool = {node.metadata.name for node in nodes if is_spare(node) or ANNOTATION_CLAIM in node.metadata.annotations}
    return [each.spec for each in histories], pool


# What options may say -------------------------------------------------------------------------------------------------


def share(text: str) -> float:
    """`1%` or `0.01` as a share between 0 and 1, both excluded. Raises ArgumentTypeError."""
    number = _number(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: write a percentage, such as 1%, or a share such as 0.01")
    return number


def _positive(text: str) -> float:
    number = _number(text)
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number above 0")
    return number


def _count(text: str) -> int:
    number = _number(text)
    if number != int(number) or not 1 <= number <= MOST_NODES:
        raise argparse.ArgumentTypeError(f"{text!r}: write a whole number from 1 to {MOST_NODES:,}")
    return int(number)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return number
