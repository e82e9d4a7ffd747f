"""
Checkpoints that no program wrote: `python -m tests.fuzz.checkpoints --cases 100000 --seed 1`.

One file of a real checkpoint, or of one made here, is cut, spliced, repeated and soiled, and its lengths are set to the
absurd; where a checksum would hide that, beneath the checksum. Each is verified at both levels by a process that has
little memory and time. Whatever it says is good, as long as it says it: a fault, a crash or a bound that is passed is
a failure. The same seed gives the same files; `--only N` does one case again, and keeps it.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from healthd.checkpoints.formats import VerifyLevel
from tests.checkpoints.judge import FAULT, Judge, Verdict
from tests.fuzz.checkpoint_seeds import Seed, seeds

SHOWN = 10
"""Failures that are printed."""
LARGEST = 4 << 20
"""Bytes that a file may grow to."""
NUMBERS = [0, 1, 127, 128, 255, 256, (1 << 15) - 1, (1 << 16) - 1, (1 << 31) - 1, (1 << 32) - 1]
NUMBERS += [1 << 40, 1 << 62, (1 << 63) - 1, (1 << 64) - 1]
WORDS = [
    b"9" * 20,
    b"9" * 5000,
    b"-1",
    b"NaN",
    b"1e999",
    b"../",
    b"\0",
    b"null",
    b"[" * 2000,
    b"{}",
    b"\xf0\x9f\x94\xa5",
]


class Case(NamedTuple):
    """One damaged checkpoint."""

    seed: Seed
    file: str
    content: bytes


class Verifier(Protocol):
    """What is tried; the `Judge` is one."""

    def verify(self, path: Path, level: VerifyLevel = ..., beside: Sequence[str] = ...) -> Verdict:
        """The word on one checkpoint."""


@dataclass
class Report:
    """What came of it."""

    cases: int = 0
    words: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: Verdict = field(default_factory=lambda: Verdict(""))
    largest: Verdict = field(default_factory=lambda: Verdict(""))
    digest: str = ""
    """Of all files that were made: the same for the same seed."""


def fuzz(numbers: Sequence[int], seed: int, judge: Verifier, folder: Path) -> Report:
    """Verify the cases with these numbers, made from *seed*, in *folder*."""
    report, digest, corpus = Report(), hashlib.sha256(), seeds()
    for place, each in enumerate(corpus):
        _write(each, folder / str(place))
    for number in numbers:
        case = made(number, seed, corpus)
        digest.update(case.content)
        home = folder / str(corpus.index(case.seed))
        (home / case.file).write_bytes(case.content)
        for level in VerifyLevel:
            verdict = judge.verify(home / case.seed.path, level, case.seed.beside)
            _note(report, verdict, f"{number} ({case.seed.name}, {case.file}, {level})")
        (home / case.file).write_bytes(case.seed.files[case.file])
        report.cases += 1
    report.digest = digest.hexdigest()
    return report


def _write(each: Seed, home: Path) -> None:
    for name, content in each.files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(content)


def _note(report: Report, verdict: Verdict, case: str) -> None:
    level = case.rpartition(" ")[2].rstrip(")")
    report.words[f"{level} {'refused' if verdict.reason else 'good'}"] += 1
    if FAULT in verdict.reason:
        report.failures.append(f"case {case}: {verdict.reason}")
    if verdict.seconds > report.slowest.seconds:
        report.slowest = verdict._replace(reason=f"case {case}: {verdict.reason}")
    if verdict.peak > report.largest.peak:
        report.largest = verdict._replace(reason=f"case {case}: {verdict.reason}")


def made(number: int, seed: int, corpus: Sequence[Seed]) -> Case:
    """The case *number* of *seed*."""
    dice = random.Random(f"{seed}:{number}")
    chosen = dice.choice(corpus)
    file = dice.choice(sorted(chosen.files))
    core, wrap = chosen.cores.get(file, (chosen.files[file], None))
    content = mutated(dice, core, corpus)
    return Case(chosen, file, wrap(content) if wrap else content)


def mutated(dice: random.Random, content: bytes, corpus: Sequence[Seed]) -> bytes:
    """What storage, a dying writer or somebody who means harm make of it."""
    for _ in range(dice.choice([1, 1, 1, 2, 3, 8])):
        at = dice.randrange(len(content) + 1)
        until = min(len(content), at + dice.choice([0, 1, 2, 4, 8, 64, 512, 4096]))
        content = dice.choice(MUTATIONS)(dice, content, at, until, corpus)[:LARGEST]
    return content


def _flipped(dice: random.Random, content: bytes, at: int, _until: int, _corpus: Sequence[Seed]) -> bytes:
    return content[:at] + bytes(byte ^ 1 << dice.randrange(8) for byte in content[at : at + 1]) + content[at + 1 :]


def _cut(_dice: random.Random, content: bytes, at: int, _until: int, _corpus: Sequence[Seed]) -> bytes:
    return content[:at]


def _filled(dice: random.Random, content: bytes, at: int, until: int, _corpus: Sequence[Seed]) -> bytes:
    return content[:at] + dice.choice([b"\0", b"\xff", b" ", b"A"]) * (until - at) + content[until:]


def _lost(_dice: random.Random, content: bytes, at: int, until: int, _corpus: Sequence[Seed]) -> bytes:
    return content[:at] + content[until:]


def _strewn(dice: random.Random, content: bytes, at: int, until: int, _corpus: Sequence[Seed]) -> bytes:
    return content[:at] + dice.randbytes(dice.randrange(1, 20)) + content[until:]


def _repeated(dice: random.Random, content: bytes, at: int, until: int, _corpus: Sequence[Seed]) -> bytes:
    return content[:until] + content[at:until] * dice.choice([1, 2, 50, 3000]) + content[until:]


def _moved(dice: random.Random, content: bytes, at: int, until: int, _corpus: Sequence[Seed]) -> bytes:
    rest = content[:at] + content[until:]
    place = dice.randrange(len(rest) + 1)
    return rest[:place] + content[at:until] + rest[place:]


def _spliced(dice: random.Random, content: bytes, at: int, _until: int, corpus: Sequence[Seed]) -> bytes:
    files = dice.choice(corpus).files
    other = files[dice.choice(sorted(files))]
    begin = dice.randrange(len(other) + 1)
    if dice.random() < 0.5:
        return content[:at] + other[begin:]
    return content[:at] + other[begin : begin + 64] + content[at + 64 :]


def _numbered(dice: random.Random, content: bytes, at: int, _until: int, _corpus: Sequence[Seed]) -> bytes:
    """A length, a count or an offset, set to something that it may not be."""
    width = dice.choice([1, 2, 4, 8])
    number = dice.choice([*NUMBERS, len(content), len(content) - 1, at]) & ((1 << 8 * width) - 1)
    return content[:at] + number.to_bytes(width, dice.choice(["little", "big"])) + content[at + width :]


def _worded(dice: random.Random, content: bytes, at: int, until: int, _corpus: Sequence[Seed]) -> bytes:
    """The same for what is text."""
    return content[:at] + dice.choice(WORDS) + content[dice.choice([at, until]) :]


Mutation = Callable[[random.Random, bytes, int, int, Sequence[Seed]], bytes]
MUTATIONS: tuple[Mutation, ...] = (
    _flipped,
    _flipped,
    _cut,
    _filled,
    _lost,
    _strewn,
    _repeated,
    _moved,
    _spliced,
    _numbered,
    _numbered,
    _worded,
)


def main() -> int:
    """Fuzz as the command line says; 1 when anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.checkpoints", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--only", type=int, metavar="N", help="this case alone, which stays in its folder")
    args = parser.parse_args()
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="healthd-fuzz-"))
    with Judge() as judge:
        report = fuzz(range(args.cases) if args.only is None else [args.only], args.seed, judge, folder)
    if args.only is None:
        shutil.rmtree(folder)
    else:
        case = made(args.only, args.seed, corpus := seeds())
        (folder / str(corpus.index(case.seed)) / case.file).write_bytes(case.content)
        print(f"kept: {folder / str(corpus.index(case.seed)) / case.file}")
    for failure in report.failures[:SHOWN]:
        print(f"FAILED  {failure[:400]}")
    words = ", ".join(f"{word} {count}" for word, count in sorted(report.words.items()))
    print(f"{report.cases} cases of seed {args.seed} in {time.monotonic() - began:.0f} s: {words}")
    print(f"slowest: {report.slowest.seconds:.2f} s of processor time, {report.slowest.reason[:200]}")
    print(f"largest: {report.largest.peak / (1 << 20):.0f} MiB, {report.largest.reason[:200]}")
    print(f"made: {report.digest[:16]}; failures: {len(report.failures)}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
