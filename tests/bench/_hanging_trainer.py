"""
The script that `tests.bench.hangs` starts: the demo's trainer, with one rank that hangs, or with pauses that are none.

`python _hanging_trainer.py KIND AFTER VICTIM -- …` takes the trainer's own arguments after `--`. A hang begins AFTER so
many seconds in rank VICTIM; pauses begin every AFTER seconds.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from healthd.local.demo import trainer

KIND, AFTER, VICTIM = (sys.argv[1], float(sys.argv[2]), int(sys.argv[3])) if __name__ == "__main__" else ("", 0.0, 0)
PAUSE = 20.0
"""Seconds of a pause of a healthy run."""


def sleep() -> None:
    """A loader that waits for data that never come."""
    time.sleep(10**6)


def stop() -> None:
    """SIGSTOP."""
    os.kill(os.getpid(), signal.SIGSTOP)


def spin() -> None:
    """A loop without end."""
    while True:
        pass


def deadlock() -> None:
    """Two threads that wait for each other's lock."""
    ours, theirs, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def other() -> None:
        with theirs:
            both.wait()
            ours.acquire()

    threading.Thread(target=other, daemon=True).start()
    with ours:
        both.wait()
        theirs.acquire()


def enter_another_collective(group: trainer.RankGroup) -> None:
    """It takes what the others send for something else, and waits for more."""
    while True:
        trainer._receive(group._links[-1])


def read_a_pipe() -> None:
    """A file system that no longer answers: a read that never ends."""
    reads, _ = os.pipe()
    os.read(reads, 1)


def drop_packets(group: trainer.RankGroup) -> None:
    """A link that is lost in silence: what arrives is dropped and never acknowledged, and no connection is closed."""
    drop_all = struct.pack("HBBI", _BPF_RETURN, 0, 0, 0)
    in_memory = ctypes.create_string_buffer(drop_all)
    program = struct.pack("HP", 1, ctypes.addressof(in_memory))
    for link in group._links:
        link.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)


def block_in_the_kernel() -> None:
    """
    State D, as when a device does not answer: a parent waits so for a child that shares its memory until it starts its
    program. This child first opens a pipe that has no writer.
    """
    pipe = Path(sys.argv[-1]).with_name("pipe")
    os.mkfifo(pipe)
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, str(pipe), os.O_RDONLY, 0)])


def evaluate() -> None:
    """Rank 0 reads and computes for a while; the others wait for it."""
    if trainer_rank():
        return
    until, data = time.monotonic() + PAUSE, Path(trainer.__file__)
    while time.monotonic() < until:
        text = data.read_text()
        sorted(text.split())


def save_slowly() -> None:
    """Rank 0 writes a large checkpoint to a slow disk; the others wait for it."""
    if trainer_rank():
        return
    part = os.urandom(256 * 1024)
    with (Path(sys.argv[-1]) / "large.partial").open("wb") as file:
        for _ in range(int(PAUSE)):
            file.write(part)
            file.flush()
            time.sleep(1)


def wait_for_data() -> None:
    """Every rank waits a few seconds for data: late, but no hang."""
    time.sleep(6)


def compile_all() -> None:
    """Every rank compiles, as when shapes have changed."""
    until, sources = time.monotonic() + PAUSE, sorted(Path(os.__file__).parent.glob("*.py"))
    while time.monotonic() < until:
        for path in sources:
            compile(path.read_text(), str(path), "exec")
            if time.monotonic() >= until:
                break


def trainer_rank() -> int:
    """The rank of this process."""
    return int(os.environ["RANK"])


def alone(hang: Callable[[], None]) -> Callable[[trainer.RankGroup], None]:
    """One that needs nothing of the other ranks."""
    return lambda _: hang()


HANGS: dict[str, Callable[[trainer.RankGroup], None]] = {
    "stop": alone(stop),
    "loader": alone(sleep),
    "spin": alone(spin),
    "collective": enter_another_collective,
    "blackhole": drop_packets,
    "file": alone(read_a_pipe),
    "deadlock": alone(deadlock),
    "device": alone(block_in_the_kernel),
}
_BPF_RETURN, _ATTACH_FILTER = 0x06, 26
"""From <linux/filter.h> and <asm-generic/socket.h>."""
PAUSES: dict[str, Callable[[], None]] = {
    "evaluate": evaluate,
    "save": save_slowly,
    "data": wait_for_data,
    "compile": compile_all,
}


class Group(trainer.RankGroup):
    """A group in which something happens before a step, in all ranks at the same step."""

    _began = 0.0
    _done = 0

    def add(self, mine: dict[int, list[float]]) -> list[float]:
        """As the trainer's. The time is agreed on: all ranks pause before the same step."""
        if not self._began:
            self._began = time.monotonic()
        passed = time.monotonic() - self._began
        if KIND in HANGS and passed > AFTER and self.rank == VICTIM and mine:
            HANGS[KIND](self)
        if KIND in PAUSES and passed > AFTER * (self._done + 1):
            self._done += 1
            trainer.log_line("pause begins")
            PAUSES[KIND]()
            trainer.log_line("pause ends")
        return super().add(mine)


def main(argv: Sequence[str]) -> int:
    """Train."""
    sys.argv = [sys.argv[0], *argv]
    trainer.RankGroup = Group  # type: ignore[misc]
    return trainer.main()


if __name__ == "__main__":
    sys.exit(main(sys.argv[sys.argv.index("--") + 1 :]))
