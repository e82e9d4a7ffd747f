"""`healthd repair`: say that a node was repaired, so that its findings are cleared and its quarantine ends."""

from __future__ import annotations

import argparse
import asyncio
import uuid
from pathlib import Path

from healthd.cli import which_run
from healthd.cli.errors import UserError
from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster, UnusableStore
from healthd.cluster.port import ClusterError, NotFound
from healthd.core.objects import ANNOTATION_REPAIRED, Node
from healthd.core.quarantine import read_record
from healthd.local.state import database, runs_dir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd repair`."""
    parser.add_argument("node", metavar="NODE", help="the node, such as slot-2")
    which_run.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Mark the node; a running agent acts on it at once, a stopped one when it starts."""
    state = which_run.find_state(args, runs_dir(), Path.cwd())
    try:
        return asyncio.run(_repair(database(state), args.node))
    except (UnusableStore, ClusterError) as error:
        raise UserError(str(error)) from None


async def _repair(path: Path, name: str) -> int:
    clock = SystemClock()
    with EmbeddedCluster.open(path, clock=clock, new_uid=lambda: str(uuid.uuid4())) as cluster:
        try:
            node = await cluster.get(Node, name)
        except NotFound:
            known = ", ".join(node.metadata.name for node in (await cluster.list(Node)).items)
            raise UserError(f"there is no node {name!r}; there are {known}") from None
        patch = {"metadata": {"annotations": {ANNOTATION_REPAIRED: clock.now().isoformat()}}}
        await cluster.patch(Node, name, patch)
    record = read_record(node)
    print(f"{name}: {record.finding} is marked repaired" if record else f"{name} is marked repaired; it was in service")
    return 0
