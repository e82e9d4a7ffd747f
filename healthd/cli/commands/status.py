"""
`healthd status`: the devices of this machine and what is wrong with them, without an agent or a cluster.

One sample of every source and the kernel log of this boot, judged by the agent's rules. With `--node` it shows what the
agent of a node published instead, with `--name` or `--state` how a run on this machine stands. Exit codes: 0 healthy or
degraded, 3 unhealthy, 4 unknown; of a run 3 where it waits for a person.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from healthd.checks import devices
from healthd.checks.judging import OfflineJudge
from healthd.checks.sampling import Sampler, read_to_end
from healthd.checks.status import NodeReport, Unread, published, worst_first
from healthd.cli.commands.check import duration
from healthd.cli.configuration.reading import load
from healthd.cli.errors import UserError
from healthd.cli.machine.probes import probes_of
from healthd.cli.machine.status_page import StatusPrinter
from healthd.cli.runs import status as run_status
from healthd.cli.target.target import add_target_arguments, open_target
from healthd.cli.terminal.output import console
from healthd.clock import Clock, SystemClock
from healthd.cluster.port import NotFound
from healthd.core.api import Nic, NodeHealth
from healthd.core.api.model import KernelRecord, Verdict
from healthd.core.config import Config
from healthd.core.diagnosis.blindness import expected_by
from healthd.core.diagnosis.readings import Sample
from healthd.core.diagnosis.site_rules import beginnings
from healthd.probes.errors import CannotRead
from healthd.probes.host_root import HostRoot
from healthd.probes.klog.kmsg import read_boot_id
from healthd.probes.klog.source_selection import open_kernel_log
from healthd.probes.nics.rdma import read_nics
from healthd.threads import in_thread

EXIT = {Verdict.HEALTHY: 0, Verdict.DEGRADED: 0, Verdict.UNHEALTHY: 3, Verdict.UNKNOWN: 4}
DEADLINE = "15s"
"""For every source. Without persistence mode, the driver initialises each GPU for the first query."""
AGAIN = 2.0
"""Seconds between two samples of `--watch`."""


class _Log(NamedTuple):
    """The content of the kernel log, or the reason why it could not be read."""

    records: Sequence[KernelRecord] = ()
    trouble: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd status`."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration of an agent (default: none)")
    parser.add_argument("--json", action="store_true", help="one JSON object (docs/check.md)")
    parser.add_argument("--watch", action="store_true", help=f"read again every {AGAIN:g} s until interrupted")
    parser.add_argument(
        "--timeout", default=DEADLINE, metavar="DURATION", help=f"for every source (default: {DEADLINE})"
    )
    parser.add_argument("--node", default="", metavar="NODE", help="what the agent of NODE published, in a cluster")
    add_target_arguments(parser, no_run="none: the devices of this machine")


def run(args: argparse.Namespace) -> int:
    """Sample, print, and tell by the exit code."""
    clock, deadline = SystemClock(), duration(args.timeout, "--timeout")
    page = None if args.json else StatusPrinter()
    if (args.name or args.state) and not args.node:
        return _show_run(args, clock)
    if args.node:
        return _show(lambda: asyncio.run(_published(args, clock)), page, again=args.watch)
    with closing(LocalNode(load(args.config), clock, deadline)) as machine:
        return _show(machine.sample, page, again=args.watch)


def _show(source: Callable[[], NodeReport], page: StatusPrinter | None, *, again: bool) -> int:
    while True:
        status = source()
        if page:
            page.show(status, clear=again)
        else:
            print(msgspec.json.encode(status).decode(), flush=True)
        if not again:
            return EXIT[status.verdict]
        time.sleep(AGAIN)


def _show_run(args: argparse.Namespace, clock: Clock) -> int:
    """Print the status of a run on this machine."""
    while True:
        status = asyncio.run(run_status.status_of(args, clock))
        if args.watch and sys.stdout.isatty() and not args.json:
            console().clear()
        print(run_status.as_json(status) if args.json else "\n".join(run_status.lines(status)), flush=True)
        if not args.watch:
            return status.code
        time.sleep(AGAIN)


class LocalNode:
    """This machine. It remembers what it saw before, so that a state can hold."""

    def __init__(self, config: Config, clock: Clock, deadline: timedelta) -> None:
        self._config = config
        self._clock = clock
        self._boot_id = _boot_id()
        self._host = HostRoot(Path(config.host_root))
        self._sampler = Sampler(probes_of(config.probes, self._host), deadline)
        trusted = config.kernel_log.trust_user_space
        expected = expected_by(config.probes)
        self._judge = OfflineJudge(config.judge, self._boot_id, expected=expected, trust_user_space=trusted)

    def sample(self) -> NodeReport:
        """What is to be seen now."""
        began, now = time.monotonic(), self._clock.now()
        samples, log = asyncio.run(self._read(now))
        judged = self._judge.judge(samples, log.records, now=self._clock.now(), log_trouble=log.trouble)
        places = devices.by_name(samples)
        return NodeReport(
            node=platform.node(),
            at=now,
            verdict=judged.verdict,
            message=judged.message,
            gpus=devices.gpus(places),
            ports=devices.ports(_nics(self._host.sys), places),
            machine=devices.machine(places),
            findings=worst_first(judged.findings),
            seen_now=sorted(judged.seen_now, key=lambda seen: not seen.finding.quarantines),
            unread=[Unread(source=source, why=why) for source, why in judged.blind.items()],
            seconds=round(time.monotonic() - began, 2),
        )

    def close(self) -> None:
        """Let go of the driver."""
        self._sampler.close()

    async def _read(self, now: datetime) -> tuple[list[Sample], _Log]:
        """Read devices and the kernel log at the same time."""
        samples, log = await asyncio.gather(in_thread(partial(self._sampler.sample, now), "sampler"), self._read_log())
        return samples, log

    async def _read_log(self) -> _Log:
        try:
            also = beginnings(self._config.judge.rules)
            log = open_kernel_log(self._config.kernel_log, self._host, self._clock, boot_id=self._boot_id, also=also)
            return _Log((await read_to_end(log)).records)
        except (CannotRead, OSError) as error:
            return _Log(trouble=str(error))


async def _published(args: argparse.Namespace, clock: Clock) -> NodeReport:
    async with open_target(args) as found:
        try:
            health = await found.cluster.get(NodeHealth, args.node)
        except NotFound:
            raise UserError(f"{found.name}: no agent has reported on a node {args.node!r}") from None
    return published(args.node, health, clock.now())


def _boot_id() -> str:
    try:
        return read_boot_id()
    except OSError:
        return ""


def _nics(sys: Path) -> Sequence[Nic]:
    with suppress(OSError):
        return read_nics(sys)
    return []
