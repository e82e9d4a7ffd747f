"""
`healthd run` that kills itself at one write to its cluster: `python -m tests.e2e.killed_at_write PLAN ARGS…`.

PLAN is `before` or `after`, then what is written: `after:Recovery:Starting`, `before:Job:suspend`, `after:write:17`.
ARGS are those of `healthd run`. Everything else is the product's own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from healthd.alerts.registry import make_sinks
from healthd.cli.configuration.reading import load
from healthd.cli.runs.options import add_arguments
from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Event, Fields, Labels, Listed
from healthd.core.api import RESOURCES, Slim
from healthd.local.gang import RunSpec
from healthd.local.machine.machine import this_machine
from healthd.local.machine.slots import slots_for
from healthd.local.runtime import LocalRuntime
from healthd.local.state.folder import database, held
from healthd.probes.host_root import HostRoot
from healthd.probes.klog.kmsg import read_boot_id
from healthd.probes.klog.source_selection import open_kernel_log
from healthd.probes.nvml.inventory import inventory
from healthd.telemetry.logs import configure

T = TypeVar("T", bound=Slim)


class KilledAtWrite:
    """A cluster whose owner dies at the first write that *plan* names."""

    def __init__(self, cluster: EmbeddedCluster, plan: str) -> None:
        self._cluster = cluster
        self._when, self._what = plan.split(":", 1)
        self._writes = 0

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        """As the real one."""
        return await self._cluster.get(kind, name, namespace)

    async def list(
        self, kind: type[T], *, namespace: str | None = None, labels: Labels | None = None, fields: Fields | None = None
    ) -> Listed[T]:
        """As the real one."""
        return await self._cluster.list(kind, namespace=namespace, labels=labels, fields=fields)

    def watch(
        self,
        kind: type[T],
        *,
        since: str,
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
    ) -> AsyncIterator[Event[T]]:
        """As the real one."""
        return self._cluster.watch(kind, since=since, namespace=namespace, labels=labels, fields=fields)

    async def create(self, obj: T, **options: Any) -> T:
        """As the real one, unless it is time."""
        kind = RESOURCES[type(obj)].kind
        self._die("before", f"{kind}:create")
        made = await self._cluster.create(obj, **options)
        self._die("after", f"{kind}:create")
        return made

    async def patch(self, kind: type[T], name: str, patch: Mapping[str, Any], **options: str) -> T:
        """As the real one, unless it is time."""
        what = f"{RESOURCES[kind].kind}:{_reported(patch)}"
        self._die("before", what)
        patched = await self._cluster.patch(kind, name, patch, **options)
        self._die("after", what)
        return patched

    async def delete(self, kind: type[T], name: str, **options: Any) -> None:
        """As the real one, unless it is time."""
        self._die("before", f"{RESOURCES[kind].kind}:delete")
        await self._cluster.delete(kind, name, **options)
        self._die("after", f"{RESOURCES[kind].kind}:delete")

    def _die(self, when: str, what: str) -> None:
        self._writes += when == "before"
        if when == self._when and self._what in (what, f"write:{self._writes}"):
            os.kill(os.getpid(), signal.SIGKILL)


def _reported(patch: Mapping[str, Any]) -> str:
    """The word for a patch: a recovery's new phase, or whether a gang is suspended or resumed."""
    suspend = patch.get("spec", {}).get("suspend")
    if suspend is not None:
        return "suspend" if suspend else "resume"
    timeline = (patch.get("status") or {}).get("timeline")
    return str(timeline[-1]["phase"]) if timeline else "other"


async def _run(plan: str, args: argparse.Namespace) -> int:
    clock, boot_id, config = SystemClock(), read_boot_id(), load(args.config)
    spec = RunSpec(
        name=args.name,
        command=args.command,
        nproc=args.nproc,
        spares=args.spares,
        checkpoint=args.checkpoint,
        state=args.state,
        working_dir=Path.cwd(),
        grace=config.recovery.grace,
    )
    machine = this_machine(
        slots_for(spec.nproc, inventory().devices, spares=spec.spares),
        boot_id=boot_id,
        open_kernel_log=lambda cursor: open_kernel_log(
            config.kernel_log, HostRoot(), clock, boot_id=boot_id, cursor=cursor
        ),
        terminal=None,
    )
    with EmbeddedCluster.open(database(spec.state), clock=clock, new_uid=lambda: str(uuid.uuid4())) as cluster:
        sinks = make_sinks(config.alerts, clock)
        runtime = LocalRuntime(spec, config, machine, KilledAtWrite(cluster, plan), clock, sinks=sinks)
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, runtime.stop)
        return await runtime.run()


def main() -> int:
    """`healthd run`, until its plan comes true."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(sys.argv[2:])
    config = load(args.config)
    configure(config.log.format, config.log.level, sys.stderr)
    with held(args.state):
        return asyncio.run(_run(sys.argv[1], args))


if __name__ == "__main__":
    sys.exit(main())
