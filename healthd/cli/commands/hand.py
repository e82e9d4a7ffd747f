"""
`healthd hand`: what healthd's own pod does to its node: it resets the GPUs, or reboots it. Not for people.

The controller makes that pod where `remediation.hands` names it (docs/remediation.md). It does nothing in another boot
than the one that it names. Exit codes: 0 done, or no more needed; 3 refused, and nothing was done; 4 tried and failed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from healthd.checks import programs
from healthd.cli.terminal.output import complain
from healthd.core.printable import printable
from healthd.core.remediation.node_hand import LONGEST, Ending
from healthd.hand.gpu_reset import reset_gpus
from healthd.hand.host import ROOT, Machine
from healthd.hand.reboot import reboot

_STOPPED = 128 + signal.SIGTERM


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd hand`."""
    parser.add_argument("what", choices=["gpu-reset", "reboot"], help="what to do to the machine of this pod")
    parser.add_argument("--boot-id", required=True, metavar="ID", help="do nothing unless this boot runs")
    parser.add_argument("--root", type=Path, default=ROOT, metavar="FOLDER", help=f"the tree of the machine; {ROOT}")
    parser.add_argument("--result", type=Path, metavar="FILE", help="also write there how it ended, in a sentence")


def run(args: argparse.Namespace) -> int:
    """Do it; say in a sentence how it ended."""
    machine = Machine(args.root)
    before = signal.signal(signal.SIGTERM, _stop)  # persistence mode is switched on again on the way out
    try:
        is_reset = args.what == "gpu-reset"
        with programs.none_left():
            ending = reset_gpus(machine, args.boot_id, time.sleep) if is_reset else reboot(machine, args.boot_id)
    finally:
        signal.signal(signal.SIGTERM, before)
    _say(ending, args.result)
    return int(ending.code)


def _say(ending: Ending, result: Path | None) -> None:
    sentence = printable(ending.why)[:LONGEST]
    sys.stdout.write(f"{sentence}\n")
    if result is None:
        return
    try:
        result.write_text(sentence)
    except OSError as error:  # what was done counts more
        complain(f"--result {result}: {error.strerror}")


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(_STOPPED)
