"""
Kernel lines that no test lists: `python -m tests.fuzz.klog --lines 1000000 --seed 1`.

Real messages under all kinds of prefixes are cut, spliced, repeated and soiled; others are made of random words, and
others the kernel writes about a process that chose its name and its file's. For each line: nothing is raised, no Xid is
read that is not there or that a program or a process wrote, the reader's prefilter lets through what the grammar
understands, and reading takes no longer than LIMIT. The same seed gives the same lines.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from healthd.cli.commands.klog import KlogLine, read_text
from healthd.core.diagnosis.klog import MessageKind, parse_line
from healthd.probes.klog.record import may_matter
from tests.core.diagnosis.klog.forged import COMMS, FILES, FORMATS
from tests.core.diagnosis.xid.messages import ENDED, HARMLESS, RAISED

LIMIT = 0.005
"""Seconds of processor time that reading one line may take, the best of three tries."""
SHOWN = 5
"""Failures that are printed."""

CODED = [
    "NVRM: Xid (PCI:0000:c1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:c1:00 GPU-I:05 GPU-CI:01): 43, pid=9, name=a b, Ch 00000011",
    "NVRM: Xid (0000:c1:00): 14, Channel 00000001",
    "NVRM: Xid (00c1:00): 31, Ch 00000011, engmask 00000101, intr 10000000",
    "NVRM: Xid (PCI:0009:01:00): 149, pid=5, name=ray::Actor, NETIR_LINK_EVT  Fatal   XC0 i0 Link 07 (0x021425c6 0x1)",
    "NVRM: Xid (PCI:0000:c1:00): 74, NVLink: fatal error detected on link 11(0x10000, 0x0, 0x4, 0x0, 0x0, 0x0, 0x0)",
    "NVRM: Xid (PCI:0000:c1:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    "nvidia-nvswitch5: SXid (PCI:0000:b8:00.0): 20009, Non-fatal, Link 12 route buffer overflow (First)",
    "NVRM: GPU 0000:c1:00.0: GPU has fallen off the bus.",
]
MESSAGES = [*CODED * 8, *(text for text, _ in (*RAISED, *ENDED)), *HARMLESS]
KERNEL = [
    "",
    "[ 12.500123] ",
    "[Tue Apr  7 03:14:15 2026] ",
    "3,12,99,-;",
    "<3>[   12.500123] ",
    "kern  :err   : 2026-04-07T03:14:15,004512+00:00 ",
    "Apr  7 03:14:15 node17 kernel: ",
    "Apr  7 03:14:15 node17 kernel: [ 12.500123] ",
    "2026-04-07T03:14:15.004512+00:00 node17 kernel: ",
    "<3>1 2026-04-07T03:14:15.004512Z node17 kernel - - - ",
]
PROGRAMS = [
    "Apr  7 03:14:15 node17 trainer[77]: ",
    "Apr  7 03:14:15 node17 sudo:  user : TTY=pts/0 ; COMMAND=/bin/echo ",
    "2026-04-07T03:14:15.004512+00:00 node17 kubelet[811]: ",
    '{"level":"info","msg":"',
    "user  :err   : 2026-04-07T03:14:15,004512+00:00 ",
    "11,12,99,-;",
    "<11>Apr  7 03:14:15 node17 logger: ",
    "see what it said: ",
]
"""Before a message: somebody else quotes it."""
DIRT = [
    "\x00",
    "\n",
    "\t",
    " ",
    "  ",
    "\ufffd",
    "é",
    "٣",
    "\U0001f525",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    ":",
    ",",
    ";",
    "'",
]
DIRT += ["0", "x", "-", "=", "\\x0a", "\x1b[31m", "PCI:", "pid=", "name=", "NVRM: ", "kernel: ", "0000:c1:00.0"]
_XID = re.compile(r"NVRM:[ \t]{1,8}Xid")
_COLOUR = re.compile(r"(?:\x1b|\^\[)\[[0-9;]*[mK]")
"""Taken off before a line is read, and so here."""


class Author(Enum):
    """Who chose the words of a line."""

    KERNEL = "the kernel"
    PROGRAM = "a program, in a log of its own"
    PROCESS = "a process, in the kernel's words about it"


@dataclass
class Report:
    """What came of it."""

    lines: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0
    slowest_line: str = ""
    digest: str = ""
    """Of all that was read: the same for the same seed."""


Read = Callable[[int, str], KlogLine | None]


def read_line(number: int, line: str) -> KlogLine | None:
    """What `healthd klog` reads in a log of this line alone."""
    kernel_line = parse_line(line)
    return read_text(number, kernel_line.text) if kernel_line else None


def fuzz(lines: int, seed: int, *, read: Read = read_line) -> Report:
    """Read *lines* lines made from *seed*."""
    report, digest = Report(), hashlib.sha256()
    for number, (line, author) in enumerate(made_lines(lines, seed), start=1):
        try:
            began = time.thread_time()
            reading = read(number, line)
            took = time.thread_time() - began
        except Exception as error:  # whatever it is, it is what we are looking for
            report.failures.append(f"{type(error).__name__} {error}: {line[:400]!r}")
            continue
        report.lines += 1
        report.kinds[reading.kind if reading else "nothing"] += 1
        digest.update(repr(reading).encode(errors="replace"))
        if wrong := fault_in(reading, line, author):
            report.failures.append(f"{wrong}: {line[:400]!r}")
        if took > report.slowest:
            _note_slow(report, line, min(took, _again(read, line), _again(read, line)))
    report.digest = digest.hexdigest()
    return report


def fault_in(reading: KlogLine | None, line: str, author: Author) -> str:
    """What is wrong with *reading* of *line*; empty where nothing is."""
    if reading is None:
        return ""
    line = _COLOUR.sub("", line)
    if author is Author.PROGRAM:
        return f"{reading.kind} in the words of a program"
    if author is Author.PROCESS and reading.kind not in {MessageKind.OOM, MessageKind.CRASH}:
        return f"{reading.kind} in the name of a process"
    if reading.kind is MessageKind.XID and not (_XID.search(line) and str(reading.xid) in line):
        return f"an Xid {reading.xid} that is not there"
    if reading.kind is MessageKind.SXID and "SXid" not in line:
        return "an SXid that is not there"
    if reading.text == reading.text.strip("\r\n\x00 ") and not may_matter(f"3,1,1,-;{reading.text}".encode()):
        return "the agent would not have looked at it"
    return ""


def made_lines(count: int, seed: int) -> Iterator[tuple[str, Author]]:
    """*count* lines, each with who chose its words."""
    dice = random.Random(seed)
    for _ in range(count):
        roll = dice.random()
        if roll < 0.1:
            yield _babble(dice), Author.KERNEL
        elif roll < 0.2:
            yield _forged(dice), Author.PROCESS
        elif roll < 0.35:
            yield dice.choice(PROGRAMS) + _mutated(dice, dice.choice(MESSAGES)), Author.PROGRAM
        else:
            yield _mutated(dice, dice.choice(KERNEL) + dice.choice(MESSAGES)), Author.KERNEL


def _babble(dice: random.Random) -> str:
    words = [dice.choice(DIRT) if dice.random() < 0.5 else dice.choice(MESSAGES)[: dice.randrange(1, 24)]]
    while dice.random() < 0.9:
        words.append(dice.choice(DIRT) if dice.random() < 0.7 else chr(dice.randrange(0x20, 0x2FFF)))
    return "".join(words)


def _forged(dice: random.Random) -> str:
    """What the kernel says of a process that wants to be taken for a driver: 15 bytes of a name, 255 of a file's."""
    names = (_mutated(dice, dice.choice([*MESSAGES, *COMMS])), _mutated(dice, dice.choice([*MESSAGES, *FILES])))
    comm, file = ("".join(char for char in name if 0 < ord(char) < 128) for name in names)
    return dice.choice(KERNEL) + dice.choice(FORMATS).format(comm=comm[:15], file=file[:255].replace("/", ""))


def _mutated(dice: random.Random, line: str) -> str:
    for _ in range(dice.choice([0, 1, 1, 2, 3, 6])):
        at = dice.randrange(len(line) + 1)
        until = min(len(line), at + dice.choice([0, 1, 2, 8, 40]))
        line = dice.choice(MUTATIONS)(dice, line, at, until)
    return line


def _soiled(dice: random.Random, line: str, at: int, until: int) -> str:
    return line[:at] + dice.choice(DIRT) * dice.choice([1, 1, 1, 1, 9, 900]) + line[until:]


def _repeated(dice: random.Random, line: str, at: int, until: int) -> str:
    return line[:until] + line[at:until] * dice.choice([1, 3, 200]) + line[until:]


def _spliced(dice: random.Random, line: str, at: int, _until: int) -> str:
    other = dice.choice(MESSAGES)
    return line[:at] + other[dice.randrange(len(other)) :]


def _cut(_dice: random.Random, line: str, at: int, _until: int) -> str:
    return line[:at]


def _renumbered(dice: random.Random, line: str, at: int, _until: int) -> str:
    return line[:at] + re.sub(r"\d", lambda _: str(dice.randrange(10)), line[at:], count=6)


def _recased(_dice: random.Random, line: str, at: int, until: int) -> str:
    return line[:at] + line[at:until].swapcase() + line[until:]


MUTATIONS = (_soiled, _soiled, _repeated, _spliced, _cut, _renumbered, _recased)


def _again(read: Read, line: str) -> float:
    began = time.thread_time()
    read(1, line)
    return time.thread_time() - began


def _note_slow(report: Report, line: str, took: float) -> None:
    if took > report.slowest:
        report.slowest, report.slowest_line = took, line
    if took > LIMIT:
        report.failures.append(f"took {took * 1000:.1f} ms: {line[:400]!r}")


def main() -> int:
    """Fuzz as the command line says; 1 when anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.klog", description=__doc__)
    parser.add_argument("--lines", type=int, default=100_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    args = parser.parse_args()
    began = time.monotonic()
    report = fuzz(args.lines, args.seed)
    for failure in report.failures[:SHOWN]:
        print(f"FAILED  {failure}")
    kinds = ", ".join(f"{kind} {count}" for kind, count in report.kinds.most_common())
    print(f"{report.lines} lines of seed {args.seed} in {time.monotonic() - began:.0f} s: {kinds}")
    slow = f"{report.slowest * 1e6:.0f} us for {len(report.slowest_line)} characters"
    print(f"slowest: {slow}: {report.slowest_line[:120]!r}")
    print(f"read: {report.digest[:16]}; failures: {len(report.failures)}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
