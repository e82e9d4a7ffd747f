"""`healthd demo`: a lost GPU, a torn checkpoint and a crash, played to a training job on this machine in a minute."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from healthd.cli.errors import UserError
from healthd.cli.target.cluster import first_of
from healthd.cli.terminal.output import console
from healthd.clock import Clock, SystemClock
from healthd.core.config import LogFormat, LogLevel
from healthd.local.demo.kernel_logs import Writable, is_real_device, machine_log, own_log
from healthd.local.demo.outcome import DemoOutcome, judge
from healthd.local.demo.play import DemoInputs, play
from healthd.local.demo.scene import Note, Scene, Who
from healthd.local.demo.script import SLOW, DemoFolders, Script, changed_settings, config
from healthd.local.demo.shows import JsonShow, LinesShow, Show
from healthd.local.demo.undisturbed import TrainingFailed
from healthd.local.machine.machine import OpenKernelLog
from healthd.local.reports.page import FREE_PORT, check_address
from healthd.probes.errors import CannotRead
from healthd.probes.klog.kmsg import read_boot_id
from healthd.telemetry.address import AddressError
from healthd.telemetry.logs import configure

TERMINATED = 128 + signal.SIGTERM
NOT_AS_EXPECTED = 1
REAL_LOG = "THE REAL KERNEL LOG"

EPILOG = """\
Four ranks train on four slots of this machine; two more slots are spares.
Nothing but processes and a temporary folder is needed: no root, no GPU, no
cluster. Exit code 0 only if all went as expected and the weights are equal.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd demo`."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="one JSON object a line; the last one is the outcome")
    shape.add_argument("--plain", action="store_true", help="lines instead of the live view, also on a terminal")
    parser.add_argument("--slow", action="store_true", help="slow enough to watch; takes longer than a minute")
    parser.add_argument("--keep", action="store_true", help="keep the state, logs and checkpoints")
    parser.add_argument(
        "--web",
        nargs="?",
        const=FREE_PORT,
        default="",
        metavar="ADDR",
        help="show it in a browser, too: serve a live page on this address (127.0.0.1, a free port)",
    )
    parser.add_argument(
        "--real-kmsg", action="store_true", help="send the faults through this machine's own kernel log (root)"
    )


def run(args: argparse.Namespace) -> int:
    """Play the demo; exit code 0 when it went as expected."""
    root = Path(tempfile.mkdtemp(prefix="healthd-demo-"))
    try:
        outcome = asyncio.run(_run(args, root))
    except asyncio.CancelledError:
        return TERMINATED
    except (TrainingFailed, AddressError) as error:
        raise UserError(str(error)) from error
    except ExceptionGroup as errors:
        if errors.subgroup(BrokenPipeError):
            raise BrokenPipeError from errors  # the reader of the pipe is gone; everything is stopped and cleaned up
        if (refused := first_of(errors, AddressError)) is not None:
            raise UserError(str(refused)) from None
        raise
    finally:
        if not args.keep:
            shutil.rmtree(root, ignore_errors=True)
    return 0 if outcome.is_good else NOT_AS_EXPECTED


@contextlib.contextmanager
def _logging(root: Path) -> Iterator[None]:
    """Write healthd's own log to a file in *root*, so that it does not disturb the view."""
    with (root / "healthd.log").open("w") as log:
        configure(LogFormat.JSON, LogLevel.INFO, log)
        yield


async def _run(args: argparse.Namespace, root: Path) -> DemoOutcome:
    if args.web:
        check_address(args.web)
    script = Script(pace=SLOW) if args.slow else Script()
    clock = SystemClock()
    show = _show(args, script, clock)
    return await present(script, show, clock, root, real_kmsg=args.real_kmsg, kept=args.keep, web=args.web)


async def present(
    script: Script, show: Show, clock: Clock, root: Path, *, real_kmsg: bool, kept: bool, web: str = ""
) -> DemoOutcome:
    """
    Play *script* in the folder *root* on *show*. *web* is the address of the live page; empty: there is none. Raises
    TrainingFailed, UserError, AddressError.
    """
    boot_id, began = read_boot_id(), clock.now()
    kernel, open_kernel_log = _kernel_log(script, clock, boot_id, real=real_kmsg)
    scene = Scene(began, show=show.note, root=str(root))
    scene.warning = REAL_LOG if real_kmsg else ""
    stage = DemoInputs(
        script=script,
        place=DemoFolders(root),
        config=config(trust_user_space=real_kmsg, web=web),
        scene=scene,
        clock=clock,
        boot_id=boot_id,
        kernel=kernel,
        open_kernel_log=open_kernel_log,
    )
    quits = _cancelled_by(signal.SIGTERM, signal.SIGHUP)
    with _logging(root), contextlib.closing(kernel), quits, show.showing(scene):
        for text in _remarks(real_kmsg):
            scene.note(Note(began, Who.DEMO, text))
        ending = await play(stage)
    outcome = judge(script, stage.place, scene, ending, (clock.now() - began).total_seconds(), kept=kept)
    show.end(outcome)
    return outcome


def _show(args: argparse.Namespace, script: Script, clock: Clock) -> Show:
    if args.json:
        return JsonShow(sys.stdout)
    if args.plain or not sys.stdout.isatty():
        return LinesShow(sys.stdout)
    from healthd.local.demo.view import LiveShow, may_show  # imported here: pipes and programs need no terminal library

    screen = console()
    return LiveShow(script, clock, screen) if may_show(screen) else LinesShow(sys.stdout)


def _remarks(real_kmsg: bool) -> Iterator[str]:
    yield f"settings of the demo, to be quick: {changed_settings()}"
    if real_kmsg:
        yield f"{REAL_LOG}: lines that any process wrote are believed (kernel_log.trust_user_space)"
        yield f"{REAL_LOG}: whatever else reads it on this machine will see two made-up Xids, too"


def _kernel_log(script: Script, clock: Clock, boot_id: str, *, real: bool) -> tuple[Writable, OpenKernelLog]:
    if not real:
        return own_log(clock, boot_id)
    devices = [device.pci for slot in script.slots for device in slot.devices if is_real_device(device.pci)]
    if devices:
        raise UserError(
            f"--real-kmsg: this machine has a device at {devices[0]}, whose made-up fault others may believe"
        )
    try:
        return machine_log(clock, boot_id)
    except CannotRead as error:
        raise UserError(f"--real-kmsg: {error}") from error


@contextlib.contextmanager
def _cancelled_by(*signals: signal.Signals) -> Iterator[None]:
    """Make these signals end the demo as Ctrl-C does: everything is stopped and cleaned up."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
