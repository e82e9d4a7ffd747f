"""
A training script that tells on its supervisor: `python training.py FOLDER [--deaf] [--orphan]` for each RANK.

Each rank holds a lock of its own while it lives, and so does its orphan: a second living writer of the same rank
finds it taken, writes `double` into the journal, and fails. It trains `STAGE` steps further in every attempt, then
waits at the gate until the test opens it, and ends at step `LAST`. Every step goes into the journal.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import sys
from pathlib import Path

STAGE = 4
"""Steps that an attempt makes before it waits at the gate."""
LAST = 40
"""The step at which training is done."""


def main() -> None:
    """One rank."""
    folder = Path(sys.argv[1])
    rank, attempt = int(os.environ["RANK"]), int(os.environ["HEALTHD_ATTEMPT"])
    step = int(os.environ.get("HEALTHD_RESUME_STEP", "0"))
    witness = os.open(folder / "witness", os.O_WRONLY)
    if not is_alone(folder / f"lock-{rank}"):
        note(folder, rank, attempt, "double")
        sys.exit(99)
    if "--deaf" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "--orphan" in sys.argv:
        leave_an_orphan()
    note(folder, rank, attempt, "from", step)
    for number in range(step + 1, step + STAGE + 1):
        train(folder, rank, attempt, number)
    os.write(witness, f"waits {rank} {attempt}\n".encode())
    os.close(os.open(folder / "gate", os.O_RDONLY))  # opens when the test has opened its end
    for number in range(step + STAGE + 1, LAST + 1):
        train(folder, rank, attempt, number)


def is_alone(path: Path) -> bool:
    """Take the lock of this rank, for as long as any process of it lives."""
    lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    os.set_inheritable(lock, True)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def leave_an_orphan() -> None:
    """A grandchild in a session of its own, which holds the lock and the witness and hears no SIGTERM."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            while True:
                signal.pause()
        os._exit(0)
    os.wait()


def train(folder: Path, rank: int, attempt: int, step: int) -> None:
    """One step; rank 0 saves it."""
    note(folder, rank, attempt, "step", step)
    if rank == 0:
        header = json.dumps({"w": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}).encode()
        aside = folder / "checkpoints" / f".step-{step}.tmp"
        aside.parent.mkdir(exist_ok=True)
        aside.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<d", step))
        aside.rename(aside.with_name(f"step-{step:06}.safetensors"))


def note(folder: Path, rank: int, attempt: int, what: str, step: int = 0) -> None:
    """One line in the journal, in one write."""
    journal = os.open(folder / "journal", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    line = json.dumps({"rank": rank, "attempt": attempt, "pid": os.getpid(), "what": what, "step": step})
    os.write(journal, line.encode() + b"\n")
    os.close(journal)


if __name__ == "__main__":
    main()
