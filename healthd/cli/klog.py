"""
`healthd klog`: what healthd reads in a kernel log, line by line.

Streams: neither a large file nor a long line is ever held as a whole. Every line stands for itself here; what the
agent makes of several together is in `healthd.core.findings`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from healthd.cli.errors import UserError
from healthd.core.klog import CONTRACT, LONGEST_MESSAGE, LONGEST_PREFIX, Kind, parse_line, parse_message
from healthd.core.model import Action, Severity
from healthd.core.xid import judge

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STDIN = "-"
LONGEST_LINE = 4 * (LONGEST_MESSAGE + LONGEST_PREFIX)
"""Bytes of one line that are looked at: a character has four at most."""
ROWS_AT_ONCE = 500
ROOM_FOR_TABLE = 140
"""Columns of a terminal; in a narrower one the text of a message would be a thin ribbon, or cut the rest to pieces."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the log that means something, as `--json` prints it."""

    line: int
    """1-based."""
    kind: Kind
    xid: int | None
    sxid: int | None
    pci: str | None
    pid: int | None
    process: str | None
    severity: Severity
    action: Action
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of `healthd klog`."""
    what = "dmesg, journal, syslog or /dev/kmsg text; default: standard input"
    parser.add_argument("file", nargs="?", default=STDIN, metavar="FILE", help=what)
    parser.add_argument("--json", action="store_true", help="one JSON object per line that means something")
    kinds = ", ".join(kind for kind in Kind if kind not in CONTRACT)
    more = f"with --json, further kinds as well, which scripts must not stumble over unasked: {kinds}"
    parser.add_argument("--all", action="store_true", help=more)


def run(args: argparse.Namespace) -> int:
    """Print what is read; exit 0 whatever it says."""
    with _opened(args.file) as log:
        readings = read_log(log)
        if args.json:
            wanted = (reading for reading in readings if args.all or reading.kind in CONTRACT)
            _print_json(wanted, at_once=args.file == STDIN)
        else:
            _print_for_people(readings)
    return 0


def read_log(log: BinaryIO) -> Iterator[Reading]:
    """Every line of *log* that means something, in order."""
    for number, raw in enumerate(_lines(log), start=1):
        if reading := read_line(number, raw.decode(errors="replace")):
            yield reading


def read_line(number: int, line: str) -> Reading | None:
    """What *line* says; None where the kernel did not write it, or it is nothing to healthd."""
    kernel_line = parse_line(line)
    message = parse_message(kernel_line.text) if kernel_line else None
    if message is None:
        return None
    judgement = judge(message)
    if message.kind not in CONTRACT and not (judgement.raises or judgement.ends):
        return None  # chatter of disks, file systems and the kernel
    is_one_of_many = judgement.needs is not None  # harmless alone, and here every line stands for itself
    return Reading(
        line=number,
        kind=message.kind,
        xid=message.xid,
        sxid=message.sxid,
        pci=message.pci,
        pid=message.pid,
        process=message.process,
        severity=Severity.INFO if is_one_of_many else judgement.severity,
        action=Action.NONE if is_one_of_many else judgement.action,
        text=message.text,
    )


def printable(text: str) -> str:
    """*text* with everything escaped that could drive a terminal: names of processes come from users."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == STDIN:
        yield sys.stdin.buffer
        return
    try:
        log = open(name, "rb")  # noqa: SIM115 - closed below; only opening may turn into this error
    except OSError as error:
        raise UserError(f"cannot read {name}: {error.strerror}; give a file, or - for standard input") from error
    with log:
        yield log


def _lines(log: BinaryIO) -> Iterator[bytes]:
    """The lines of *log*, each cut to what can matter."""
    while line := log.readline(LONGEST_LINE):
        yield line
        while len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            line = log.readline(LONGEST_LINE)


def _print_json(readings: Iterator[Reading], *, at_once: bool) -> None:
    out = sys.stdout.buffer
    for reading in readings:
        out.write(msgspec.json.encode(reading) + b"\n")
        if at_once:
            out.flush()  # a pipe may be live: dmesg --follow
    out.flush()


def _print_for_people(readings: Iterator[Reading]) -> None:
    from rich.console import Console  # here: --json and --help must start at once

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    if not show(readings, console):
        print("healthd: no line means anything to healthd", file=sys.stderr)


def show(readings: Iterator[Reading], console: Console) -> bool:
    """Print *readings* as a table, or one below the other where a table has no room. False: there were none."""
    first = True
    while rows := list(islice(readings, ROWS_AT_ONCE)):
        if console.width >= ROOM_FOR_TABLE:
            console.print(_table(rows, header=first))
        else:
            _print_narrow(rows, console)
        first = False
    return not first


def _print_narrow(rows: list[Reading], console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    for row in rows:
        *cells, text = _cells(row)
        console.print(Text("  ".join(cell for cell in cells if cell), style=_STYLES[row.severity]))
        console.print(Padding(Text(text), (0, 0, 0, 4)))


def _table(rows: list[Reading], *, header: bool) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD if header else None, show_header=header, padding=(0, 1), expand=True)
    for name, width in _COLUMNS.items():
        table.add_column(name, width=width, no_wrap=True)
    table.add_column("text", ratio=1, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in _cells(row)), style=_STYLES[row.severity])
    return table


_COLUMNS = {"line": 8, "kind": 10, "code": 6, "device": 14, "process": 22, "severity": 8, "action": 15}
_STYLES = {Severity.INFO: "dim", Severity.WARNING: "", Severity.ERROR: "yellow", Severity.FATAL: "bold red"}


def _cells(row: Reading) -> list[str]:
    code = row.xid if row.xid is not None else row.sxid
    owner = row.process or ""
    if row.pid is not None:
        owner += f"[{row.pid}]"
    cells = [str(row.line), row.kind, "" if code is None else str(code), row.pci or "", owner]
    return [printable(cell) for cell in [*cells, row.severity, row.action, row.text]]
