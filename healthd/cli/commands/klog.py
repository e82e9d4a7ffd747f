"""
`healthd klog`: what healthd reads in a kernel log, line by line.

Streams: neither a large file nor a long line is ever held as a whole, and a row is printed as soon as its line is read.
Every message stands for itself here; what the agent makes of several together is in `healthd.core.diagnosis.findings`.
With `--config` the rules and tiers of the site count, too: each of its rules that fits a line makes a row of its own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from healthd.cli.errors import UserError
from healthd.cli.terminal.output import complain, console
from healthd.core.api.model import RepairAction, Severity
from healthd.core.config import JudgePolicy
from healthd.core.diagnosis.judgement import Judgement, in_tier
from healthd.core.diagnosis.klog import (
    CONTRACT,
    LONGEST_MESSAGE,
    LONGEST_PREFIX,
    MessageKind,
    Partial,
    names_its_writer,
    parse_line,
    parse_message,
    stitch,
)
from healthd.core.diagnosis.readings import NODE
from healthd.core.diagnosis.site_rules import judge_line, tier_chosen
from healthd.core.diagnosis.tiers import tier
from healthd.core.diagnosis.xid import judge

if TYPE_CHECKING:
    from rich.console import Console

STDIN = "-"
LONGEST_LINE = 4 * (LONGEST_MESSAGE + LONGEST_PREFIX)
"""Bytes of one line that are read. A character has at most four bytes."""
_COMPRESSED = {b"\x1f\x8b": "zcat", b"\xfd7zXZ\x00": "xzcat", b"BZh": "bzcat", b"\x28\xb5\x2f\xfd": "zstdcat"}
"""What writes a file out, by how the file begins. Old logs are compressed when they are rotated."""
ROOM_FOR_TABLE = 140
"""The minimum of terminal columns for one row. A narrower row would squeeze or cut the text of a message."""


AS_BUILT = JudgePolicy()
"""Without a rule or tier of the site."""


class OfSite(StrEnum):
    """The kind of a line that a rule of the site's own is about; printed with `--config` alone."""

    SITE = "site"


class KlogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the log that means something, as `--json` prints it."""

    line: int
    """Counted from 1."""
    kind: MessageKind | OfSite
    xid: int | None
    sxid: int | None
    pci: str | None
    pid: int | None
    process: str | None
    severity: Severity
    action: RepairAction
    text: str
    rule: str | msgspec.UnsetType = msgspec.UNSET
    """The site's own rule for the line. Left out when there is none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of `healthd klog`."""
    what = "dmesg, journal, syslog or /dev/kmsg text; default: standard input"
    parser.add_argument("file", nargs="?", default=STDIN, metavar="FILE", help=what)
    parser.add_argument("--json", action="store_true", help="one JSON object per line that means something")
    kinds = ", ".join(kind for kind in MessageKind if kind not in CONTRACT)
    more = f"with --json, further kinds as well, which scripts must not stumble over unasked: {kinds}"
    parser.add_argument("--all", action="store_true", help=more)
    own = "an agent's configuration: read the log with its rules and tiers, too (judge.rules, judge.tiers)"
    parser.add_argument("--config", type=Path, metavar="FILE", help=own)


def run(args: argparse.Namespace) -> int:
    """Print what is read; exit 0 whatever it says."""
    policy = _policy(args.config)
    with _opened(args.file) as log:
        readings = read_log(log, policy, _warn_of_unsigned)
        if args.json:
            wanted = (each for each in readings if args.all or each.kind in CONTRACT or each.rule)
            _print_json(wanted, at_once=args.file == STDIN)
        else:
            _print_for_people(readings)
    return 0


def _policy(config: Path | None) -> JudgePolicy:
    if config is None:
        return AS_BUILT
    from healthd.cli.configuration.reading import load  # imported here: without --config no YAML is needed

    return load(config).judge


def _warn_of_unsigned(number: int) -> None:
    complain(
        f"healthd: line {number} does not say who wrote it, as any of its form: dmesg shows what processes wrote to "
        "/dev/kmsg beside what the kernel wrote. `dmesg -x | healthd klog` leaves out what processes wrote"
    )


def read_log(
    log: BinaryIO, policy: JudgePolicy = AS_BUILT, unsigned: Callable[[int], None] = lambda _: None
) -> Iterator[KlogLine]:
    """
    Every message in *log* that means something, in order; one that several rules are about comes several times.

    *unsigned* is called once, with the number of the first such line that does not say whether the kernel wrote it.
    """
    partial, is_noted = Partial(), False
    for number, raw in enumerate(_lines(log), start=1):
        line_text = raw.decode(errors="replace")
        if line := parse_line(line_text):
            partial, text = stitch(partial, line.text)
            readings = list(_all_of(number, text, policy))
            if readings and not is_noted and not names_its_writer(line_text):
                is_noted = True
                unsigned(number)
            yield from readings


def _all_of(number: int, text: str, policy: JudgePolicy) -> Iterator[KlogLine]:
    if reading := read_text(number, text, policy):
        yield reading
    for judgement in judge_line(policy.rules, text):
        yield _of_site(number, text, judgement)


def read_text(number: int, text: str, policy: JudgePolicy = AS_BUILT) -> KlogLine | None:
    """What *text*, a message of the kernel, says; None where that is nothing to healthd's own rules."""
    message = parse_message(text)
    if message is None:
        return None
    judgement = _in_its_tier(judge(message), policy)
    if message.kind not in CONTRACT and not (judgement.raises or judgement.ends):
        return None  # messages of disks, file systems and the kernel
    severity, action = _alone(judgement)
    return KlogLine(
        line=number,
        kind=message.kind,
        xid=message.xid,
        sxid=message.sxid,
        pci=message.pci,
        pid=message.pid,
        process=message.process,
        severity=severity,
        action=action,
        text=message.text,
    )


def _in_its_tier(judgement: Judgement, policy: JudgePolicy) -> Judgement:
    chosen = tier_chosen(policy.tiers, judgement.rule) if judgement.raises else None
    return in_tier(judgement, tier(chosen)) if chosen else judgement


def _alone(judgement: Judgement) -> tuple[Severity, RepairAction]:
    """Severity and action of a single line: each line is judged by itself here, and one of many is harmless alone."""
    return (judgement.severity, judgement.action) if judgement.needs is None else (Severity.INFO, RepairAction.NONE)


def _of_site(number: int, text: str, judgement: Judgement) -> KlogLine:
    severity, action = _alone(judgement)
    return KlogLine(
        line=number,
        kind=OfSite.SITE,
        xid=None,
        sxid=None,
        pci=judgement.device if judgement.device != NODE else None,
        pid=None,
        process=None,
        severity=severity,
        action=action,
        text=text[:LONGEST_MESSAGE].strip("\r\n\x00 "),
        rule=judgement.rule,
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
    """The lines of *log*, each cut to the part that can matter. Raises UserError where it is compressed."""
    first = log.readline(LONGEST_LINE)
    if tool := next((tool for magic, tool in _COMPRESSED.items() if first.startswith(magic)), ""):
        raise UserError(f"the log is compressed; `{tool} FILE | healthd klog` reads it")
    yield from _all_lines(first, log)


def _all_lines(line: bytes, log: BinaryIO) -> Iterator[bytes]:
    while line:
        yield line
        while len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            line = log.readline(LONGEST_LINE)
        line = log.readline(LONGEST_LINE)


def _print_json(readings: Iterator[KlogLine], *, at_once: bool) -> None:
    out = sys.stdout.buffer
    for reading in readings:
        out.write(msgspec.json.encode(reading) + b"\n")
        if at_once:
            out.flush()  # the input may be a live pipe: dmesg --follow
    out.flush()


def _print_for_people(readings: Iterator[KlogLine]) -> None:
    if not show(readings, console(width=None if sys.stdout.isatty() else 200)):
        complain("healthd: no line means anything to healthd")


def show(readings: Iterator[KlogLine], console: Console) -> bool:
    """Print each of *readings* in a row, or in two where a row has no room. False: there were none."""
    from rich.text import Text

    form = _wide if console.width >= ROOM_FOR_TABLE else _narrow
    empty = True
    for reading in readings:
        if empty and form is _wide:
            console.print(Text(_in_columns(list(_COLUMNS)) + "text", style="bold"), soft_wrap=True)
        console.print(Text(form(_cells(reading), console.width), style=_STYLES[reading.severity]), soft_wrap=True)
        empty = False
    return not empty


def _wide(cells: list[str], width: int) -> str:
    *cells, text = cells
    row = _in_columns(cells)
    return fill(text, width, initial_indent=row, subsequent_indent=" " * len(row))


def _narrow(cells: list[str], width: int) -> str:
    *cells, text = cells
    row = "  ".join(cell for cell in cells if cell)
    return f"{row}\n{fill(text, width, initial_indent=_INDENT, subsequent_indent=_INDENT)}"


def _in_columns(cells: list[str]) -> str:
    """The row of *cells*. A cell wider than its column moves the next cells to the right. No cell is cut."""
    return "".join(f"{cell:<{width}}  " for cell, width in zip(cells, _COLUMNS.values(), strict=True))


_INDENT = " " * 4
_COLUMNS = {"line": 8, "kind": 10, "code": 6, "device": 14, "process": 22, "severity": 8, "action": 15}
_STYLES = {Severity.INFO: "dim", Severity.WARNING: "", Severity.ERROR: "yellow", Severity.FATAL: "bold red"}


def _cells(row: KlogLine) -> list[str]:
    code = row.xid if row.xid is not None else row.sxid
    owner = row.process or ""
    if row.pid is not None:
        owner += f"[{row.pid}]"
    kind = row.rule or row.kind
    cells = [str(row.line), kind, "" if code is None else str(code), row.pci or "", owner]
    return [printable(cell) for cell in [*cells, row.severity, row.action, row.text]]
