"""`healthd config`: check a configuration file, or print the reference of all keys."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from healthd.cli.configuration.reading import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`healthd config --check FILE` or `healthd config --reference`."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--check", metavar="FILE", type=Path, help="say what is wrong in a configuration file, if anything"
    )
    what.add_argument(
        "--reference", action="store_true", help="print every key, its default and its meaning (Markdown)"
    )


def run(args: argparse.Namespace) -> int:
    """Exit code 0 when the file is good; a bad one is a UserError."""
    if args.reference:
        from healthd.cli.configuration.reference import reference  # imported here: only this option needs it

        sys.stdout.write(reference())
        return 0
    load(args.check)
    print(f"{args.check}: good")
    return 0
