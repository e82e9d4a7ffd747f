"""What `healthd gangs` and `healthd recoveries` share: their options, and how a list is printed."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable, Sequence

import msgspec

from healthd.cli.errors import UserError
from healthd.cli.listed_objects import ListedObjects
from healthd.cli.target.target import Target, add_target_arguments
from healthd.cluster.port import ClusterError, Forbidden, NotFound
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.cache.informers import watched_kinds
from healthd.core.api import Node, NodeHealth, Recovery
from healthd.core.report.listing.table import Column, lines_of
from healthd.gangs.completed import completed
from healthd.gangs.kinds import ALL

_NOT_LISTED = frozenset({Node, NodeHealth, Recovery})
"""No list of gangs needs nodes, and a user with the rights of one namespace may not read them."""


def add_arguments(parser: argparse.ArgumentParser, examples: str) -> None:
    """Where to look, and in which form to print."""
    parser.epilog = examples
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_target_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        choices=["table", "wide", "json"],
        default="table",
        help="wide: all columns; json: one object a line",
    )


async def read_gangs(found: Target) -> ClusterState:
    """All gangs, pods and recoveries of the target. A kind that is missing or forbidden has none. Raises UserError."""
    state, objects = ClusterState(ALL), ListedObjects(found.cluster)
    recoveries = await read_recoveries(found)
    for recovery in recoveries:
        state.upsert(recovery)
    for kind, labels in watched_kinds(ALL).items():
        if kind in _NOT_LISTED:
            continue
        try:
            listed = await objects.read(kind, found.namespace, labels)
        except (NotFound, Forbidden):
            continue
        state.replace(kind, listed.items, listed.resource_version)
    for key, root in state.roots.items():
        state.roots[key] = await completed(ALL, objects, root)
    return state


async def read_recoveries(found: Target) -> Sequence[Recovery]:
    """All recoveries of the target. Raises UserError where it has none, or they may not be read."""
    try:
        return (await found.cluster.list(Recovery, namespace=found.namespace)).items
    except (NotFound, Forbidden) as error:
        raise UserError(_no_recoveries(error, found)) from error


def print_list(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, wide: bool) -> None:
    """A table; in a terminal no wider than that, unless it is *wide*."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() and not wide else None
    for line in lines_of(columns, list(rows), wide=wide, width=width):
        print(line)


def print_json(rows: Iterable[msgspec.Struct]) -> None:
    """One JSON object a line."""
    for row in rows:
        print(msgspec.json.encode(row).decode())


def _no_recoveries(error: ClusterError, found: Target) -> str:
    if isinstance(error, NotFound):
        return f"{found.name} has no recoveries: healthd is not installed there (deploy/crds.yaml)"
    where = f"in {found.namespace}" if found.namespace else "of all namespaces: name one with -n NAMESPACE"
    return f"this account may not list the recoveries {where} ({error})"
