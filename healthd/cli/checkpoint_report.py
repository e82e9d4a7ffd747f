"""`healthd checkpoints report`: what a verifier pod runs. It leaves its answer where its kubelet picks it up."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from healthd.core.checkpoint.verification import TERMINATION_LOG

_LONGEST = 1e6
"""Seconds. The pod also has a deadline."""


def add_arguments(commands: Any) -> None:
    """Declare the command among *commands*, the subparsers of `healthd checkpoints`."""
    about = "the newest checkpoint that will load, in few bytes, for the program that started this one"
    command = commands.add_parser("report", help=about, description=f"Show {about}.")
    command.add_argument("path", type=Path, metavar="PATH", help="a directory; nothing in it is changed")
    command.add_argument("--to", type=Path, default=Path(TERMINATION_LOG), metavar="FILE", help="default: %(default)s")
    command.add_argument("--quick", action="store_true", help="read headers and sizes alone")
    command.add_argument("--format", default="", help="declared format (default: detect), or marked:FILE")
    command.add_argument("--newer-than", type=int, default=None, metavar="STEP", help="do not look at older ones")
    how = "take the save of this step and time (ns since 1970) only where there is no other; may be repeated"
    command.add_argument("--doubted", action="append", default=[], metavar="STEP:NS", help=how)


def run(args: argparse.Namespace) -> int:
    """Exit code 0 when there is an answer, also where there is no checkpoint."""
    from healthd.checkpoints.processes import Processes
    from healthd.checkpoints.report import Inquiry
    from healthd.core.checkpoint.verification import SaveId, fitted

    place = str(args.path.absolute())
    doubted = tuple(SaveId(*map(int, each.split(":"))) for each in args.doubted)
    inquiry = Inquiry(location=place, format=args.format, quick=args.quick, newer_than=args.newer_than, doubted=doubted)
    args.to.write_bytes(fitted(Processes(idle=0).ask(inquiry, _LONGEST)))
    return 0
