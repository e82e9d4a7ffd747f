"""`healthd run`: keep a training job on this machine going when a GPU breaks."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog

from healthd.cli.configuration.reading import load
from healthd.cli.errors import UserError
from healthd.cli.runs.options import add_arguments as add_arguments  # each command has it
from healthd.cli.runs.options import with_options, words_of
from healthd.cli.target.run import name_of, name_of_folder, run_name
from healthd.cli.terminal import streams
from healthd.cli.terminal.output import complain, console
from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster, UnusableStore
from healthd.cluster.port import ClusterError
from healthd.core.api import Node
from healthd.core.config import Config, LogFormat
from healthd.core.diagnosis.site_rules import beginnings
from healthd.core.printable import printable
from healthd.local.checkpoints.writer_lock import TwoWriters, refuse_among_checkpoints, sole_writer
from healthd.local.gang import RunSpec
from healthd.local.launchers import find_launcher, what_to_know, why_not_launch
from healthd.local.machine.machine import this_machine
from healthd.local.machine.slots import Slot, keep_places, offered, slots_for
from healthd.local.processes.output import open_log
from healthd.local.reports.lines import Lines
from healthd.local.runtime import LocalRuntime, RefusedToStart
from healthd.local.state.folder import AlreadyRunning, before_start, database, held, logs_dir, runs_dir, undone
from healthd.local.state.known_runs import with_way_out
from healthd.probes.host_root import HostRoot
from healthd.probes.klog.kmsg import read_boot_id
from healthd.probes.klog.source_selection import open_kernel_log
from healthd.probes.nvml.inventory import inventory
from healthd.probes.pci.gpus import nvidia_gpus
from healthd.telemetry.address import AddressError
from healthd.telemetry.logs import Render, configure

if TYPE_CHECKING:
    from rich.console import Console

    from healthd.alerts.sink import Sink

log = structlog.get_logger(__name__)

REFUSALS = (UserError, TwoWriters, RefusedToStart, UnusableStore, AddressError)
"""The exit code when nothing was started and nothing is left behind."""


def run(args: argparse.Namespace) -> int:
    """Run the gang; the answer is its exit code."""
    if refusal := _cannot_run(args.command[0]):
        complain(f"healthd: {refusal.why}")
        return refusal.code
    config = with_options(load(args.config), args)
    if args.min_nodes is not None and args.min_nodes > args.nproc:
        raise UserError(
            f"--min-nodes {args.min_nodes} is more than --nproc {args.nproc}: it is the fewest ranks to go on with "
            "when a GPU breaks and there is no spare; name a number up to --nproc, or leave it out"
        )
    _judge_launcher(args)
    name = run_name(args.name) if args.name else _usual_name(args)
    state = args.state or runs_dir() / name
    _judge_folders(state, args.checkpoint)
    render = _lines(config, verbose=args.verbose, live=args.live)
    configure(config.log.format, config.log.level, sys.stderr, render=render)
    try:
        refuse_among_checkpoints(state)
        clock, before = SystemClock(), before_start(state, args.checkpoint)
        with (
            streams.best_effort(),
            held(state),
            undone(state, before, REFUSALS),
            _kept_log(config, state, render),
            sole_writer(args.checkpoint, name, now=clock.now()),
        ):
            return asyncio.run(_run(args, config, name, state, clock))
    except AlreadyRunning as error:
        raise UserError(f"{error}; wait for its end, or stop it: the same command goes on then") from None
    except TwoWriters as error:
        raise UserError(str(error)) from None
    except (RefusedToStart, UnusableStore, AddressError) as error:
        raise UserError(with_way_out(error, state)) from None
    except (OSError, ClusterError) as error:
        raise UserError(f"the state in {state} cannot be used: {error}") from error
    except BaseExceptionGroup as group:
        trouble = group.subgroup((OSError, ClusterError))
        if trouble is None or trouble.exceptions != group.exceptions:
            raise
        raise UserError(f"the state in {state} cannot be used any more: {trouble.exceptions[0]}") from group


def _lines(config: Config, *, verbose: bool, live: bool) -> Render | None:
    """Sentences for people, unless the user asked for the log itself."""
    if verbose or config.log.format is not LogFormat.AUTO:
        return None
    return Lines(colours=not live and sys.stderr.isatty() and not os.environ.get("NO_COLOR"))


@contextmanager
def _kept_log(config: Config, state: Path, render: Render | None) -> Iterator[None]:
    """While the block runs, also write the whole log to a file beside those of the ranks. Raises OSError."""
    file = os.fdopen(open_log(logs_dir(state) / "healthd.log"), "a", errors="backslashreplace")
    configure(config.log.format, config.log.level, sys.stderr, render=render, file=file)
    try:
        yield
    finally:
        configure(config.log.format, config.log.level, sys.stderr, render=render)
        with suppress(OSError):  # the disk is full; the log has said so
            file.close()


def _judge_folders(state: Path, checkpoints: Path) -> None:
    """
    Checkpoints may be kept in the folder of the state, but nothing is kept among checkpoints. And ranks get the path of
    a checkpoint as text: none is resumed from whose path does not print. Raises UserError.
    """
    if not str(path := checkpoints.absolute()).isprintable():
        raise UserError(
            f"--checkpoint {printable(str(path))} has characters that do not print, so no rank could be given a "
            "checkpoint in it: rename the folder, or name another"
        )
    state_place, place = _real("--state", state), _real("--checkpoint", checkpoints)
    if state_place.is_relative_to(place):
        raise UserError(f"--state {state} lies in --checkpoint {checkpoints}: name a folder for checkpoints alone")
    if place.is_relative_to(logs_dir(state_place)):
        raise UserError(
            f"--checkpoint {checkpoints} lies in {logs_dir(state)}, where healthd keeps logs, and which `healthd "
            "forget` removes: name another folder"
        )


def _real(option: str, folder: Path) -> Path:
    """*folder* without links. Raises UserError."""
    try:
        return folder.resolve()
    except (OSError, RuntimeError):  # RuntimeError: that of Python before 3.13
        raise UserError(
            f"{option} {folder} cannot be used: a link in it leads back to itself; name the folder itself"
        ) from None


def _usual_name(args: argparse.Namespace) -> str:
    """
    The name of the directory. When another directory of that name already has a run, with a mark that distinguishes
    them.
    """
    here = Path.cwd()
    return name_of(here) if args.state else name_of_folder(here, runs_dir())


NAMED_BESIDE = frozenset({"nproc", "checkpoint", "command"})
"""Arguments that the line to use instead of a launcher has anyway."""


def _judge_launcher(args: argparse.Namespace) -> None:
    """Raises UserError when the command would start its own gangs."""
    launcher = find_launcher(args.command, Path.cwd())
    if launcher is None or args.allow_launcher:
        return
    if why := why_not_launch(launcher, args.nproc, args.checkpoint, words_of(args, NAMED_BESIDE)):
        raise UserError(why)
    complain(f"healthd: {what_to_know(launcher)}")


class _Refusal(NamedTuple):
    """Why a command cannot be run, and the exit code that a shell returns for it."""

    why: str
    code: int


def _cannot_run(command: str) -> _Refusal | None:
    """Restarts do not repair a typing error, so it is reported before anything is created or started."""
    if shutil.which(command):
        return None
    if shutil.which(command, os.F_OK):
        return _Refusal(f"{command} cannot be run: it is not executable (chmod +x, or name its interpreter)", 126)
    return _Refusal(f"there is no command {command}; nothing was started", 127)


async def _run(args: argparse.Namespace, config: Config, name: str, state: Path, clock: SystemClock) -> int:
    boot_id = read_boot_id()
    spec = RunSpec(
        name=name,
        command=args.command,
        nproc=args.nproc,
        spares=args.spares,
        min_nodes=args.min_nodes,
        checkpoint=args.checkpoint,
        checkpoint_format=args.checkpoint_format,
        grace=config.recovery.grace if args.grace is None else args.grace,
        state=state,
        working_dir=Path.cwd(),
        fresh=args.fresh,
        accept_changes=args.accept_changes,
    )
    if config.kernel_log.trust_user_space:
        log.warning("kernel_log.trusts_user_space", note="any process that may write to the log can quarantine a slot")
    slots, host = await _slots(spec), HostRoot(Path(config.host_root))
    screen = _screen() if args.live else None
    with EmbeddedCluster.open(database(state), clock=clock, new_uid=lambda: str(uuid.uuid4())) as cluster:
        machine = this_machine(
            keep_places(slots, (await cluster.list(Node)).items),
            boot_id=boot_id,
            open_kernel_log=lambda cursor: open_kernel_log(
                config.kernel_log, host, clock, boot_id=boot_id, cursor=cursor, also=beginnings(config.judge.rules)
            ),
            terminal=None if args.quiet or screen else sys.stdout,
        )
        sinks = _sinks(config, clock)
        runtime = LocalRuntime(spec, config, machine, cluster, clock, runs_dir(), args.notify, sinks)
        if screen is None:
            return await until_signal(runtime)
        async with _live(state, clock, screen):
            return await until_signal(runtime)


def _sinks(config: Config, clock: SystemClock) -> Sequence[Sink]:
    """The alert services. Raises UserError."""
    if not config.alerts.sinks:
        return ()
    from healthd.alerts.registry import SinkError, make_sinks  # imported here: few runs alert, and it takes 0.1 s

    try:
        return make_sinks(config.alerts, clock)
    except SinkError as error:
        raise UserError(str(error)) from None


def _screen() -> Console | None:
    """A terminal that can show the live view, or None: then lines are shown."""
    from healthd.local.demo.view import may_show  # imported here: pipes and programs need no terminal library

    screen = console()
    if may_show(screen):
        return screen
    complain("healthd: --live needs a terminal of at least 76 columns and 22 lines; here are lines")
    return None


@asynccontextmanager
async def _live(state: Path, clock: SystemClock, screen: Console) -> AsyncIterator[None]:
    """Show healthd's terminal output in the picture while the block runs. The end is printed completely below it."""
    from healthd.cli.runs.live import Happened, live

    happened = Happened()
    handlers = [handler for handler in logging.getLogger().handlers if isinstance(handler, logging.StreamHandler)]
    moved = [handler for handler in handlers if handler.stream is sys.stderr]
    for handler in moved:
        handler.setStream(happened)
        handler.addFilter(happened)
    try:
        async with live(state, happened, clock, screen):
            yield
    finally:
        for handler in moved:
            handler.removeFilter(happened)
            handler.setStream(sys.stderr)
        with suppress(OSError):  # the terminal is gone; the log has the lines
            sys.stderr.write("".join(happened.end))


ASKED_BY: Mapping[int, str] = {
    signal.SIGINT: "Ctrl-C (SIGINT)",
    signal.SIGTERM: "SIGTERM came",
    signal.SIGHUP: "SIGHUP came, as when a terminal is closed",
}
"""The signals that stop a run, as the log names them: the next morning it must be clear why a run stopped."""


class Stoppable(Protocol):
    """What `LocalRuntime` offers to signals."""

    async def run(self) -> int:
        """Until the end; the exit code."""
        ...

    def stop(self, by: str = "") -> None:
        """End with grace; called again, at once. *by*: what asks for it."""
        ...


async def until_signal(runtime: Stoppable) -> int:
    """
    Signals stop the gang with its grace, a further Ctrl-C at once; the exit code then says which signal came first.

    Only a person at a keyboard means more by saying it again: `timeout` signals its child and then its child's group,
    and a session that ends may send SIGHUP and SIGTERM. That must not cost the ranks their last checkpoint.

    SIGHUP comes when a terminal is closed or its connection is lost. Under nohup it is ignored, and stays so.
    """
    caught: list[int] = []

    def stop(number: int) -> None:
        if not caught or number == signal.SIGINT:
            runtime.stop(ASKED_BY[number])
        caught.append(number)

    loop = asyncio.get_running_loop()
    for number in ASKED_BY:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop, number)
    code = await runtime.run()
    return 128 + caught[0] if caught else code


def log_no_gpu(why: str, on_bus: Sequence[str]) -> None:
    """Loud where the bus has GPUs: ranks would train on none, or all on one."""
    so = "slots are numbers, and kernel messages cannot be mapped to them"
    if on_bus:
        some_of = f"{len(on_bus)} NVIDIA GPU{'s are' if len(on_bus) > 1 else ' is'} on the PCI bus"
        so = "slots are numbers: ranks share what the driver gives them, and a broken GPU takes no slot out of service"
        log.warning("gpus.unseen", devices=some_of, why=why, so=so)
    else:
        log.info("gpus.none", why=why, so=so)


async def _slots(spec: RunSpec) -> list[Slot]:
    """One GPU per rank when NVML finds GPUs, otherwise only numbers."""
    found = await asyncio.to_thread(inventory)
    if found.reason:
        log_no_gpu(found.reason, nvidia_gpus())
    try:
        devices = offered(found.devices, os.environ.get("CUDA_VISIBLE_DEVICES")) if found.devices else []
        return slots_for(spec.nproc, devices, spares=spec.spares)
    except ValueError as error:
        raise UserError(str(error)) from None
