"""
`healthd check`: active checks of a machine on which no gang runs, as a gate before work and for the return to service.

Exit codes: 0 what could be checked passed, 3 a check failed or a device that the node should have is missing, 4 nothing
could be checked, 5 somebody computes on the machine, so nothing was done.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from types import FrameType

import msgspec

from healthd.checks import busy, programs
from healthd.checks.check import Check, CheckContext, CheckOutcome, Expected, InUse
from healthd.checks.report import CheckReport, CheckVerdict, FinishedCheck, result_of, summary_of
from healthd.checks.running import all_checks, context_of, run_all
from healthd.checks.sampling import Sampler
from healthd.cli.configuration.reading import load
from healthd.cli.errors import UserError
from healthd.cli.machine.probes import probes_of
from healthd.cli.target.node import known_devices
from healthd.cli.target.target import add_target_arguments
from healthd.cli.terminal.output import console
from healthd.clock import SystemClock
from healthd.core.api import Nic
from healthd.core.config import Config, parse_duration
from healthd.core.node.expected_devices import NOTHING_EXPECTED, ExpectedDevices
from healthd.core.remediation.check_summary import fitted
from healthd.probes.host_root import HostRoot
from healthd.probes.nics.rdma import read_nics

FAILED = 3
UNCHECKED = 4
"""The same exit code as `healthd status` for an unknown verdict."""
BUSY = 5
SAMPLE_LIMIT = timedelta(seconds=60)
"""The longest time for the first sample: without persistence mode, the driver initialises every GPU for it."""
QUICK = timedelta(minutes=1)
DEEP = timedelta(minutes=10)
_SOURCES = frozenset({"nvml", "pcie", "infiniband", "infiniband-counters"})
"""The objects that the checks read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd check`."""
    names = ", ".join(check.name for check in all_checks())
    parser.add_argument("--deep", action="store_true", help="also the checks that put load on the devices")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help=f"these checks alone: {names}")
    parser.add_argument("--skip", action="append", default=[], metavar="NAME", help="not this check; may be repeated")
    parser.add_argument("--force", action="store_true", help="also while the machine is in use")
    parser.add_argument("--timeout", default="", metavar="DURATION", help="for everything (default: 1m, deep 10m)")
    parser.add_argument(
        "--gpus",
        "--expect-gpus",
        dest="gpus",
        type=_count,
        metavar="N",
        help="how many GPUs must answer (default: as known)",
    )
    parser.add_argument("--nics", type=int, metavar="N", help="how many RDMA ports must be up")
    parser.add_argument("--nic-rate", type=float, metavar="GBPS", help="Gb/s that each of them must run at")
    parser.add_argument("--dcgm-level", type=int, choices=(1, 2, 3), default=1, help="of `dcgmi diag` (default: 1)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration of an agent (default: none)")
    parser.add_argument("--node", default="", metavar="NODE", help="this machine in a cluster, which knows its devices")
    parser.add_argument("--json", action="store_true", help="one JSON object (docs/check.md)")
    parser.add_argument("--result", type=Path, metavar="FILE", help="also write the result there, in at most 4 KiB")
    add_target_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Sample, require an idle machine, check, and set the exit code."""
    checks, config, timeout = _chosen(args), load(args.config), _timeout(args)
    page = None if args.json else CheckPrinter()
    began = time.monotonic()
    known = asyncio.run(_known(args, timeout)) if args.node else NOTHING_EXPECTED
    with _ended_by_sigterm():
        context = _bench(args, config, known, ends=began + timeout.total_seconds())
        report = CheckReport(
            node=platform.node(),
            at=SystemClock().now(),
            result=CheckVerdict.BUSY,
            busy=_busy(args, config, context),
            expected_gpus=context.expected.gpus,
        )
        if not report.busy:
            report = _checked(report, checks, context, page)
    report = msgspec.structs.replace(report, seconds=round(time.monotonic() - began, 2))
    if args.result:
        _leave(args.result, report, _boot_id(config))
    if page:
        page.conclude(report)
    else:
        print(msgspec.json.encode(report).decode())
    return _EXIT[CheckVerdict(report.result)]


def _leave(path: Path, report: CheckReport, boot_id: str) -> None:
    """Write the result for the program that started this one. Raises UserError."""
    try:
        path.write_bytes(fitted(summary_of(report, boot_id)))
    except OSError as error:
        raise UserError(f"--result {path}: {error}") from None


def _boot_id(config: Config) -> str:
    """The boot of this machine; empty where the kernel does not say."""
    with suppress(OSError):
        return (HostRoot(Path(config.host_root)).proc / "sys/kernel/random/boot_id").read_text().strip()
    return ""


async def _known(args: argparse.Namespace, timeout: timedelta) -> ExpectedDevices:
    """What the cluster knows of this machine. Raises UserError, also where it does not answer in time."""
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            return await known_devices(args, args.node)
    except TimeoutError:
        raise UserError(f"the cluster did not answer in {args.timeout or timeout}; --expect-gpus needs none") from None


def _chosen(args: argparse.Namespace) -> list[Check]:
    """The checks to run. A deep check that is named with `--only` runs without `--deep`."""
    known = {check.name: check for check in all_checks(args.dcgm_level)}
    for name in (*args.only, *args.skip):
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise UserError(f"there is no check {name!r}; {hint}")
    left = [check for check in known.values() if check.name not in args.skip]
    if args.only:
        return [check for check in left if check.name in args.only]
    return [check for check in left if args.deep or not check.is_deep]


def _timeout(args: argparse.Namespace) -> timedelta:
    if args.timeout:
        return duration(args.timeout, "--timeout")
    return DEEP if args.deep or args.only else QUICK


def duration(text: str, option: str) -> timedelta:
    """What somebody gave for *option*. Raises UserError."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UserError(f"{option} {text}: {error}") from None


def _count(text: str) -> int:
    """A number of devices on the command line."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of GPUs")
    return int(text)


def _bench(args: argparse.Namespace, config: Config, known: ExpectedDevices, *, ends: float) -> CheckContext:
    host = HostRoot(Path(config.host_root))
    probes = [probe for probe in probes_of(config.probes, host) if probe.source in _SOURCES]
    left = timedelta(seconds=max(0.0, ends - time.monotonic()))
    with closing(Sampler(probes, min(SAMPLE_LIMIT, left))) as sampler:
        samples = sampler.sample(SystemClock().now())
    gpus = config.probes.gpus if args.gpus is None else args.gpus
    expected = Expected(gpus=gpus, ports=args.nics, rate_gbps=args.nic_rate, known=known)
    context = context_of(samples, _nics(host.sys), expected=expected, sys=host.sys, environ=os.environ, ends=ends)
    return replace(context, may_disturb=args.force)


def _nics(sys: Path) -> Sequence[Nic]:
    with suppress(OSError):
        return read_nics(sys)
    return []


def _busy(args: argparse.Namespace, config: Config, context: CheckContext) -> list[str]:
    """The processes that compute on this machine, in words. Empty with `--force`."""
    if args.force:
        return []
    return [*map(str, busy.workers(HostRoot(Path(config.host_root)).proc)), *busy.occupied(context.gpus)]


def _checked(
    report: CheckReport, checks: Sequence[Check], context: CheckContext, page: CheckPrinter | None
) -> CheckReport:
    done: list[FinishedCheck] = []
    try:
        for one in run_all(checks, context):
            done.append(one)
            if page:
                page.show(one)
    except InUse as somebody:
        return msgspec.structs.replace(report, checks=done, busy=[str(somebody)])
    return msgspec.structs.replace(report, checks=done, result=result_of(done))


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """On SIGTERM, also stop the started processes: a prolog that takes too long is ended by SIGTERM."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        with programs.none_left():
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


class CheckPrinter:
    """What a person sees: a line for each check as it ends, and the result."""

    def __init__(self) -> None:
        self._console = console()

    def show(self, done: FinishedCheck) -> None:
        """One line."""
        self._print(
            (f"{done.status:5}", _STYLES[done.status]), f"{done.name:16}{done.why}", (f"  {done.seconds:g} s", "dim")
        )

    def conclude(self, report: CheckReport) -> None:
        """The last words."""
        counts = {outcome: sum(one.status is outcome for one in report.checks) for outcome in CheckOutcome}
        counted = ", ".join(f"{count} {_SPOKEN[outcome]}" for outcome, count in counts.items() if count)
        if report.result == CheckVerdict.BUSY:
            self._print(
                ("busy", "yellow"), f": the machine is in use, so nothing more was done: {'; '.join(report.busy)}"
            )
            self._print("Wait for the end of that work; --force checks all the same and may disturb it.")
        else:
            words, style = _VERDICTS[CheckVerdict(report.result)]
            self._print((words, style), f": {counted} in {report.seconds:g} s")
        if report.result == CheckVerdict.UNCHECKED:
            self._print("This is no pass: a node with a dead driver looks like this.")
            self._print("Say how many GPUs it should have (--expect-gpus N), or let it ask the cluster (--node NAME).")

    def _print(self, *parts: str | tuple[str, str]) -> None:
        from rich.text import Text

        self._console.print(Text.assemble(*parts), soft_wrap=True)


_STYLES = {CheckOutcome.PASS: "green", CheckOutcome.FAIL: "bold red", CheckOutcome.SKIP: "dim"}
_SPOKEN = {CheckOutcome.PASS: "passed", CheckOutcome.FAIL: "failed", CheckOutcome.SKIP: "skipped"}
_VERDICTS = {
    CheckVerdict.PASS: ("pass", "green"),
    CheckVerdict.FAIL: ("fail", "bold red"),
    CheckVerdict.UNCHECKED: ("nothing checked", "bold yellow"),
}
_EXIT = {
    CheckVerdict.PASS: 0,
    CheckVerdict.FAIL: FAILED,
    CheckVerdict.UNCHECKED: UNCHECKED,
    CheckVerdict.BUSY: BUSY,
}
