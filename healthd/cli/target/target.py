"""
Where a command looks: at a run on this machine, or at a Kubernetes cluster.

A cluster is meant where an option names one or kubectl runs the command, where a gang is spelled as kubectl does
(`job/llama`), in a pod, and where kubectl knows a cluster and nothing ever ran on this machine. Else it is the run, as
`healthd.cli.target.run` finds it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from healthd.cli.errors import UserError
from healthd.cli.target import cluster as target_cluster
from healthd.cli.target import run as target_run
from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster, UnusableStore
from healthd.cluster.port import Cluster, ClusterError
from healthd.local.state.folder import database, runs_dir
from healthd.local.state.known_runs import with_way_out


class Target(NamedTuple):
    """What was found. *state* is the folder of a run, None for a Kubernetes cluster; *name* is for messages."""

    cluster: Cluster
    state: Path | None
    name: str
    namespace: str | None
    """The only namespace to read. None: all namespaces."""


def add_target_arguments(parser: argparse.ArgumentParser, *, no_run: str = "") -> None:
    """The options that say where to look. *no_run*: what is looked at where no run is named, if that is no run."""
    target_run.add_arguments(parser, no_run) if no_run else target_run.add_arguments(parser)
    target_cluster.add_arguments(parser)
    parser.add_argument("-n", "--namespace", default="", metavar="NAMESPACE", help="only there (default: all of them)")


@asynccontextmanager
async def open_target(args: argparse.Namespace, target: str = "") -> AsyncIterator[Target]:
    """The world that *args* mean; *target* is what the user asks about. Raises UserError for all that is wrong."""
    is_run = bool(args.name or args.state)
    try:
        if is_cluster(args, target):
            if is_run:
                raise UserError("--name and --state are of a run on this machine; leave out what is of a cluster")
            from healthd.cluster.remote import connect  # imported here: a run on this machine needs no client

            clock = SystemClock()
            async with connect(target_cluster.connection(args, clock), clock=clock, jitter=random.random) as cluster:
                yield Target(cluster, None, "the cluster", args.namespace or None)
        else:
            state = await asyncio.to_thread(target_run.find_state, args, runs_dir(), Path.cwd(), target)
            try:
                opened = EmbeddedCluster.open(database(state), clock=SystemClock(), new_uid=lambda: str(uuid.uuid4()))
                with opened as embedded:
                    yield Target(embedded, state, str(state), None)
            except UnusableStore as error:
                raise UserError(with_way_out(error, state)) from error
    except ClusterError as error:
        raise UserError(str(error)) from error


def is_cluster(
    args: argparse.Namespace, target: str = "", environ: Mapping[str, str] = os.environ, runs: Path | None = None
) -> bool:
    """Whether a Kubernetes cluster is meant; *runs* is where runs keep their state (None: the usual place)."""
    is_named = target_cluster.is_named(args) or bool(args.namespace) or getattr(args, "plugin", False)
    if args.name or args.state:
        return is_named
    if is_named or "/" in target or target_cluster.is_inside(environ):
        return True
    return target_cluster.is_known(environ) and not target_run.known_runs(runs or runs_dir())
