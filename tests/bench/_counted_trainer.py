"""
The demo's trainer, which also counts: after each step a rank writes the number of the step, the time, and its processor
time into a file that is mapped to memory. It prints nothing for a step.

`python _counted_trainer.py FOLDER -- …` takes the trainer's own arguments after `--`.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from healthd.local.demo import trainer

_RECORD = struct.Struct("<qqqq")
"""The step, nanoseconds of the monotonic clock, nanoseconds of processor time, the step again."""


class Count(NamedTuple):
    """How far a rank is, at the end of its newest step."""

    step: int
    seconds: float
    cpu: float
    """Seconds of processor time that the rank has used so far."""


def read_count(folder: Path, rank: int) -> Count:
    """The newest count of *rank*."""
    while True:
        first, at, cpu, last = _RECORD.unpack((folder / f"rank-{rank}.count").read_bytes())
        if first == last:  # else it was being written
            return Count(first, at / 1e9, cpu / 1e9)


def say_nothing(line: str) -> None:
    """In place of the line of each step."""


def main(folder: Path, argv: Sequence[str]) -> int:
    """Train."""
    file = folder / f"rank-{os.environ.get('RANK', '0')}.count"
    file.write_bytes(bytes(_RECORD.size))
    advance = trainer.advance
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), _RECORD.size) as mapped:

        def counted(state: trainer.TrainingState, total: Sequence[float]) -> float:
            loss = advance(state, total)
            mapped[:] = _RECORD.pack(state.step, time.monotonic_ns(), time.process_time_ns(), state.step)
            return loss

        trainer.advance = counted
        trainer.log_line = say_nothing
        sys.argv = [sys.argv[0], *argv]
        return trainer.main()


if __name__ == "__main__":
    at = sys.argv.index("--")
    sys.exit(main(Path(sys.argv[at - 1]), sys.argv[at + 1 :]))
