"""`healthd repair`: say that a node was repaired, so that its findings are cleared and its quarantine ends."""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import Path

import msgspec

from healthd.checks.report import CheckReport, refusal
from healthd.cli.errors import UserError
from healthd.cli.target.node import expected_of
from healthd.cli.target.target import Target, add_target_arguments, open_target
from healthd.clock import SystemClock
from healthd.cluster.port import ClusterError, NotFound
from healthd.core.api import ANNOTATION_REPAIRED, Node, NodeHealth
from healthd.core.node.quarantine import read_record
from healthd.core.recovery.terms import KUBERNETES, ONE_SERVER
from healthd.local.state.known_runs import is_held

FEW = 16
"""At most this number of node names is listed in the error for an unknown node."""

CLOCKS_DIFFER = timedelta(days=1)
"""By less, as where one has the local time. A time further ahead would hide what the node shows until then."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd repair`."""
    parser.add_argument("node", metavar="NODE", help="the node, such as slot-2 or gpu-17")
    what = "only if this report of `healthd check --json` says that the node is well; - for standard input"
    parser.add_argument("--checked", default="", metavar="FILE", help=what)
    add_target_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Mark the node; a running agent acts on it at once, a stopped one when it starts."""
    return asyncio.run(_repair(args, _report(args)))


def _report(args: argparse.Namespace) -> CheckReport | None:
    """The report of a check that must prove that the node is well. None: a person says so. Raises UserError."""
    if not args.checked:
        return None
    try:
        content = sys.stdin.buffer.read() if args.checked == "-" else Path(args.checked).read_bytes()
        return msgspec.json.decode(content, type=CheckReport)
    except (OSError, msgspec.DecodeError) as error:
        raise UserError(f"{args.checked} is no report of `healthd check --json`: {error}") from None


async def _repair(args: argparse.Namespace, report: CheckReport | None) -> int:
    name: str = args.node
    async with open_target(args) as found:
        try:
            node = await found.cluster.get(Node, name)
        except NotFound:
            raise UserError(f"there is no {_noun(found)} {name!r}; {await _others(found, name)}") from None
        at = await _good_since(found, node, report, SystemClock().now())
        patch = {"metadata": {"annotations": {ANNOTATION_REPAIRED: at.isoformat()}}}
        await found.cluster.patch(Node, name, patch)
    record = read_record(node)
    later = "; no healthd runs there now: the next start of the run gives it back" if _is_idle(found) else ""
    if record:
        print(f"{name}: {record.finding} is marked repaired{later}")
    else:
        print(f"{name} is marked repaired; it was in service")
    return 0


def _is_idle(found: Target) -> bool:
    """Whether it is a run on this machine that does not go on: what a repair says is done at its next start."""
    return found.state is not None and not is_held(found.state)


async def _good_since(found: Target, node: Node, report: CheckReport | None, now: datetime) -> datetime:
    """
    The time since when the node is good: now, or the time of its check. Later events still count. Raises UserError.

    Its agent may have another clock. So without a check the time is not before the faults that the agent has reported:
    a person who says that the node is repaired knows of them.
    """
    if report is None:
        return max([now, *(seen for seen in await _last_seen(found, node) if seen - now < CLOCKS_DIFFER)])
    name = node.metadata.name
    if why := refusal(report, name, now, await expected_of(found, node)):
        raise UserError(f"{name} is not marked repaired; the report does not prove that it is well: {why}")
    return min(report.at, now)


async def _last_seen(found: Target, node: Node) -> list[datetime]:
    """When each fault that the node has reported was last seen, by the clock of its agent."""
    record = read_record(node)
    recorded = [record.seen_at] if record and record.seen_at else []
    try:
        health = await found.cluster.get(NodeHealth, node.metadata.name)
    except ClusterError:  # nothing was reported yet, or this person may not read it
        return recorded
    return recorded + [finding.last_at for finding in health.status.findings if finding.cleared_at is None]


async def _others(found: Target, name: str) -> str:
    known = [node.metadata.name for node in (await found.cluster.list(Node)).items]
    if len(known) <= FEW:
        return f"there are {', '.join(known)}"
    near = get_close_matches(name, known, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"none of the {len(known)} {_noun(found)}s has such a name"


def _noun(found: Target) -> str:
    return (KUBERNETES if found.state is None else ONE_SERVER).node
