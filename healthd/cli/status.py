"""
`healthd status`: the devices of this machine and what is wrong with them, without an agent or a cluster.

One look at every source and the kernel log of this boot, judged by the agent's rules. With `--node` it shows what the
agent of a node published instead. Exit codes: 0 healthy or degraded, 3 unhealthy, 4 unknown.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from healthd.checks import devices
from healthd.checks.judging import Judged, SeenNow, judge_log, judge_once
from healthd.checks.looking import look_once, read_to_end
from healthd.cli import which_world
from healthd.cli.config import load
from healthd.cli.errors import UserError
from healthd.cli.probes import probes_of
from healthd.clock import Clock, SystemClock
from healthd.cluster.port import NotFound
from healthd.core.findings import Ledger
from healthd.core.model import Finding, Severity, Verdict
from healthd.core.objects import Nic, NodeHealth
from healthd.core.policy import Config
from healthd.core.readings import NODE
from healthd.core.reporting import is_silent
from healthd.probes.errors import CannotRead
from healthd.probes.klog.kmsg import read_boot_id
from healthd.probes.klog.which_source import open_kernel_log
from healthd.probes.nics.rdma import read_nics

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

EXIT = {Verdict.HEALTHY: 0, Verdict.DEGRADED: 0, Verdict.UNHEALTHY: 3, Verdict.UNKNOWN: 4}
DEADLINE = timedelta(seconds=15)
"""For every source; without persistence the driver initialises each GPU for the first question."""
AGAIN = 2.0
"""Seconds between two looks of `--watch`."""
PIPE_WIDTH = 160
"""Columns where there is no terminal."""


class Unread(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A source that could not be read, and why."""

    source: str
    why: str


class Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `--json` prints."""

    node: str
    at: datetime
    verdict: Verdict
    message: str
    gpus: list[devices.Gpu] = []
    ports: list[devices.Port] = []
    machine: list[str] = []
    findings: list[Finding] = []
    """Those that stand, the worst first."""
    seen_now: list[SeenNow] = []
    unread: list[Unread] = []
    seconds: float = 0


class _Log(NamedTuple):
    """What the kernel log says, and why it could not be read where it could not."""

    ledger: Ledger
    trouble: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd status`."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration of an agent (default: none)")
    parser.add_argument("--json", action="store_true", help="one JSON object (docs/check.md)")
    parser.add_argument("--watch", action="store_true", help=f"look again every {AGAIN:g} s until interrupted")
    parser.add_argument("--node", default="", metavar="NODE", help="what the agent of NODE published, in a cluster")
    which_world.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Look, print, and tell by the exit code."""
    config, clock = load(args.config), SystemClock()
    console = None if args.json else _console()
    while True:
        status = asyncio.run(_published(args, clock)) if args.node else look(config, clock)
        _print(status, console, clear=args.watch)
        if not args.watch:
            return EXIT[status.verdict]
        time.sleep(AGAIN)


def look(config: Config, clock: Clock) -> Status:
    """This machine, now."""
    began, now, boot_id = time.monotonic(), clock.now(), _boot_id()
    looks = look_once(probes_of(config.probes), now, DEADLINE)
    log = _read_log(config, clock, boot_id)
    judged = judge_once(looks, log.ledger, config.judge, now=clock.now(), boot_id=boot_id, log_is_read=not log.trouble)
    unread = [Unread(source=look.source, why=look.trouble) for look in looks if look.trouble]
    if log.trouble:
        unread.append(Unread(source="kernel log", why=log.trouble))
    places = devices.by_name(looks)
    return Status(
        node=platform.node(),
        at=now,
        verdict=judged.verdict,
        message=judged.message,
        gpus=devices.gpus(places),
        ports=devices.ports(_nics(config), places),
        machine=devices.machine(places),
        findings=_worst_first(judged.findings),
        seen_now=_seen(judged),
        unread=unread,
        seconds=round(time.monotonic() - began, 2),
    )


def published(name: str, health: NodeHealth, now: datetime) -> Status:
    """What an agent said of its node, some time ago."""
    said = health.status
    verdict, message, unread = said.verdict, said.message, []
    if is_silent(said, now):
        unread = [Unread(source="agent", why=f"nothing was heard of it {_since(said.seen_at, now)}")]
        if verdict is Verdict.HEALTHY:
            verdict, message = Verdict.UNKNOWN, unread[0].why
    gpus = [
        devices.Gpu(pci=one.pci, index=one.index, uuid=one.uuid, name=one.name, state="listed")
        for one in said.inventory
    ]
    standing = _worst_first([finding for finding in said.findings if finding.cleared_at is None])
    return Status(
        node=name,
        at=said.seen_at or now,
        verdict=verdict,
        message=message,
        gpus=gpus,
        ports=devices.ports(said.nics, {}),
        findings=standing,
        unread=unread,
    )


async def _published(args: argparse.Namespace, clock: Clock) -> Status:
    async with which_world.open_world(args) as world:
        try:
            health = await world.cluster.get(NodeHealth, args.node)
        except NotFound:
            raise UserError(f"{world.name}: no agent has said anything of a node {args.node!r}") from None
    return published(args.node, health, clock.now())


def _read_log(config: Config, clock: Clock, boot_id: str) -> _Log:
    policy = config.kernel_log
    try:
        log = open_kernel_log(policy, clock, boot_id=boot_id)
        heard = asyncio.run(read_to_end(log))
    except (CannotRead, OSError) as error:
        return _Log(Ledger(policy=config.judge), str(error))
    trusted = policy.trust_user_space
    return _Log(judge_log(heard.records, config.judge, now=clock.now(), trust_user_space=trusted))


def _boot_id() -> str:
    try:
        return read_boot_id()
    except OSError:
        return ""


def _nics(config: Config) -> Sequence[Nic]:
    with suppress(OSError):
        return read_nics(Path(config.probes.sys))
    return []


def _seen(judged: Judged) -> list[SeenNow]:
    order = _worst_first([seen.finding for seen in judged.seen_now])
    return sorted(judged.seen_now, key=lambda seen: order.index(seen.finding))


_BADNESS = [Severity.FATAL, Severity.ERROR, Severity.WARNING, Severity.INFO]


def _worst_first(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda one: (not one.quarantines, _BADNESS.index(one.severity), one.raised_at, one.id))


def _console() -> Console:
    from rich.console import Console  # here: machines need no terminal library

    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def _print(status: Status, console: Console | None, *, clear: bool) -> None:
    if console is None:
        print(msgspec.json.encode(status).decode(), flush=True)
        return
    if clear and console.is_terminal:
        console.clear()
    for part in _told(status):
        console.print(part, soft_wrap=not console.is_terminal)


_COLOURS = {
    Verdict.HEALTHY: "bold green",
    Verdict.DEGRADED: "bold yellow",
    Verdict.UNHEALTHY: "bold red",
    Verdict.UNKNOWN: "bold magenta",
}
_STYLES = {Severity.INFO: "dim", Severity.WARNING: "", Severity.ERROR: "yellow", Severity.FATAL: "red"}


def _told(status: Status) -> Iterator[RenderableType]:
    """The page for a person, from the verdict to what nobody could see."""
    from rich.text import Text

    yield Text.assemble((f"{status.node} is {status.verdict}", _COLOURS[status.verdict]), f": {status.message}")
    if status.gpus:
        yield _table(_GPU_COLUMNS, [_gpu_cells(gpu) for gpu in status.gpus])
    if status.ports:
        yield _table(_PORT_COLUMNS, [_port_cells(port) for port in status.ports])
    if status.machine:
        yield Text("machine: " + ", ".join(status.machine))
    told = [(finding, f"since {_age(finding, status.at)}") for finding in status.findings]
    told += [(seen.finding, _pending(seen)) for seen in status.seen_now]
    explained: set[str] = set()
    for finding, when in told:
        yield from _finding(finding, when, explain=finding.rule not in explained)
        explained.add(finding.rule)
    for unread in status.unread:
        yield Text.assemble(("not read: ", "magenta"), f"{unread.source}: {unread.why}")


def _finding(finding: Finding, when: str, *, explain: bool) -> Iterator[RenderableType]:
    """*explain*: also say what it means, which is the same for every device of a rule."""
    from rich.padding import Padding
    from rich.text import Text

    from healthd.cli.klog import printable

    style = "bold red" if finding.quarantines else _STYLES[finding.severity]
    out = ", takes the node out" if finding.quarantines and not finding.shadow else ""
    shadow = ", in shadow" if finding.shadow else ""
    yield Text(f"{finding.severity}{out}{shadow}  {finding.id}  {when}", style=style)
    if explain:
        yield Padding(Text(printable(finding.message)), (0, 0, 0, 4), expand=False)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    kept = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    for at in kept:
        table.add_column(columns[at], overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[at], style="red" if row[at] in _BAD_WORDS else "") for at in kept))
    return table


_BAD_WORDS = frozenset(
    {"lost", "reset-required", "error", "gone", "silent", "missing", "down", "failed", "pending", "no-manager"}
)
_GPU_COLUMNS = ("gpu", "pci", "name", "state", "°C", "ecc", "remap", "nvlinks", "pcie", "processes", "uuid")
_PORT_COLUMNS = ("port", "pci", "kind", "interface", "rail", "state", "Gb/s")


def _gpu_cells(gpu: devices.Gpu) -> tuple[str, ...]:
    width = f"x{gpu.pcie_width:g}" if gpu.pcie_width else ""
    full = f" of x{gpu.pcie_full_width:g}" if gpu.pcie_full_width and gpu.pcie_full_width != gpu.pcie_width else ""
    generation = f"gen{gpu.pcie_generation:g} " if gpu.pcie_generation else ""
    return (
        "-" if gpu.index is None else str(gpu.index),
        gpu.pci,
        gpu.name,
        gpu.state,
        _shown(gpu.temperature_c),
        _shown(gpu.ecc_uncorrected),
        gpu.remap or "",
        "" if gpu.nvlinks is None else f"{gpu.nvlinks_up}/{gpu.nvlinks}",
        f"{generation}{width}{full}",
        _shown(gpu.processes),
        gpu.uuid,
    )


def _port_cells(port: devices.Port) -> tuple[str, ...]:
    rail = "" if port.rail is None else str(port.rail)
    rate = f"{port.rate_gbps:g}" if port.rate_gbps else ""
    return f"{port.device}/{port.port}", port.pci, port.family, port.netdev, rail, port.state, rate


def _shown(number: float | None) -> str:
    return "" if number is None else f"{number:g}"


def _age(finding: Finding, now: datetime) -> str:
    times = f", {finding.count} times" if finding.count > 1 else ""
    where = "" if finding.device == NODE or not finding.parts else f" ({', '.join(finding.parts)})"
    return f"{finding.raised_at:%Y-%m-%d %H:%M:%S} UTC, {_spoken(now - finding.raised_at)} ago{times}{where}"


def _pending(seen: SeenNow) -> str:
    return f"seen now; a finding once it was so for {_spoken(timedelta(seconds=seen.holds_s))}"


def _since(at: datetime | None, now: datetime) -> str:
    return "ever" if at is None else f"for {_spoken(now - at)}"


def _spoken(age: timedelta) -> str:
    seconds = max(0, int(age.total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
