"""
A rank of a gang in a real pod: the demo's trainer, and beside it a pulse by which two lives of one rank would be seen.

    python3 rank.py DIRECTORY TRAINER-ARGUMENTS…

From its first moment to its last it appends a line to DIRECTORY/lives/RANK every 50 ms. Where rank 0 listens it writes
to DIRECTORY/meet/ATTEMPT: there is no name service in the lab.

With EVALUATES in the environment the gang evaluates while DIRECTORY/evaluates exists: rank 0 computes on, and the
others wait for it. While DIRECTORY/blocks-ATTEMPT exists, rank 0 sleeps, too.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import threading
import time
import uuid
from pathlib import Path

PULSE = 0.05
TERMINATED = 143
PORT = 29500
ACTIVATIONS = 1 << 20
"""Bytes that each step touches."""


def main() -> int:
    """Train until the end, or until asked to stop."""
    if "DEAF" not in os.environ:  # the first process of a container ignores what it does not handle
        signal.signal(signal.SIGTERM, lambda *_: os._exit(TERMINATED))
    directory = Path(sys.argv.pop(1))
    for name in [name for name, value in os.environ.items() if name.startswith("HEALTHD_") and not value]:
        del os.environ[name]  # at a first start, where the container asks for the hint by itself
    rank, attempt = os.environ["JOB_COMPLETION_INDEX"], os.environ.get("HEALTHD_ATTEMPT", "0")
    live(directory / "lives" / rank, attempt)
    os.environ["RANK"] = rank
    os.environ["MASTER_ADDR"] = meet(directory / "meet" / attempt, is_first=rank == "0")
    from healthd.local.demo import trainer  # here: a rank lives before it has loaded anything

    return train_and_evaluate(directory, attempt) if "EVALUATES" in os.environ else trainer.main()


def train_and_evaluate(directory: Path, attempt: str) -> int:
    """The same training without its lines, in which each step touches new memory, as the steps of a real job do."""
    from healthd.local.demo import trainer

    options = trainer.parse()
    gang = trainer.RankGroup(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["MASTER_ADDR"], PORT)
    resume_from = os.environ.get("HEALTHD_RESUME_FROM", "")
    state = trainer.load(Path(resume_from)) if resume_from else trainer.fresh()

    def computed() -> dict[int, list[float]]:
        with mmap.mmap(-1, ACTIVATIONS) as memory:  # an allocator would give the same pages again
            memory.write(bytes(ACTIVATIONS))
        parts = trainer.parts_of(gang.rank, gang.world)
        return {part: trainer.part_sum(state.weights, state.step + 1, part) for part in parts}

    while state.step < options.steps:
        mine = computed()
        while gang.rank == 0 and (directory / "evaluates").exists():
            computed()
        while gang.rank == 0 and (directory / f"blocks-{attempt}").exists():
            time.sleep(PULSE)
        trainer.advance(state, gang.add(mine))
        if state.step % options.every == 0:
            trainer.save(options.checkpoint, state, gang)
        time.sleep(options.pace)
    return 0


def live(path: Path, attempt: str) -> None:
    """Append `life attempt node moment` now and from now on. Moments are of a clock that all nodes here share."""
    path.parent.mkdir(exist_ok=True)
    out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    life, node = uuid.uuid4().hex[:8], os.environ["NODE_NAME"]

    def pulse() -> None:
        os.write(out, f"{life} {attempt} {node} {time.clock_gettime(time.CLOCK_BOOTTIME):.3f}\n".encode())

    def beat() -> None:
        while True:
            time.sleep(PULSE)
            pulse()

    pulse()
    threading.Thread(target=beat, daemon=True).start()


def meet(path: Path, *, is_first: bool) -> str:
    """The address of rank 0."""
    if is_first:
        path.parent.mkdir(exist_ok=True)
        aside = path.with_suffix(".new")
        aside.write_text(os.environ["POD_IP"])
        aside.replace(path)
    while not path.exists():
        time.sleep(PULSE)
    return path.read_text()


if __name__ == "__main__":
    sys.exit(main())
