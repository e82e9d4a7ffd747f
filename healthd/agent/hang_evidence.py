"""
The component `hang-evidence`: says what the processes of pods do, to the agent of its node and to nothing else.

    python3 -m healthd.agent.hang_evidence SOCKET UID CGROUPS

Listens on the unix socket SOCKET. A process of user UID that connects writes a line with JSON, a list of uids of pods.
It gets JSON, a `PodProcess` for each pod that is known below CGROUPS, and the connection is closed. For such a list as
`times` of an object it gets how long the main threads of their ranks ran (`RankTime`). Nothing else is served. It reads
`/proc` and asks py-spy; it stops, signals and changes no process, and uses no network and no token.

It is apart from the agent because it needs what the agent must not have: the host's process numbers and CAP_SYS_PTRACE.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from healthd.agent.pod_witness import DEADLINE_S, NOT_READABLE, PATIENCE_S, TimesQuestion, received
from healthd.core.api.health import MOST_RHYTHMS, PodProcess
from healthd.core.hang.suspects.pod_evidence import published_process
from healthd.core.hang.work.rank_time import RankTime
from healthd.probes.errors import CannotRead
from healthd.probes.hang.pods import ranks_of_pods
from healthd.probes.hang.rank_times import PodRankTimes
from healthd.probes.pod_processes import PodProcesses
from healthd.probes.usage.main_thread_waits import MainThreadWaits

LONGEST_QUESTION = 8 << 10
STUCK_AFTER_S = 60
"""What a process has in memory may not be read while it hangs in a driver. Then this program is ended, and its kubelet
starts it again: else it would answer nothing any more."""
_USAGE = "usage: python3 -m healthd.agent.hang_evidence SOCKET UID CGROUPS"
_QUESTION = msgspec.json.Decoder(list[str] | TimesQuestion)


class Witness:
    """What there is to be said of the pods of this node."""

    def __init__(self, pods: PodProcesses) -> None:
        self._pods = pods
        self._times = PodRankTimes()
        self._waits = MainThreadWaits()

    def processes(self, uids: Collection[str]) -> dict[str, PodProcess]:
        """What the processes of these pods do. A pod that is not on this node is left out. Raises CannotRead."""
        until = time.monotonic() + DEADLINE_S
        ranks = ranks_of_pods(self._groups(uids), until=until)
        found = {uid: published_process(mine) for uid, mine in ranks.items()}
        return {uid: process for uid, process in found.items() if process is not None}

    def rank_times(self, uids: Collection[str]) -> dict[str, list[RankTime]]:
        """How long the ranks of these pods ran. A pod without such ranks is left out. Raises CannotRead."""
        times = self._times.read(self._groups(uids))
        waits = self._waits.follow(self._times.pids)

        def with_waits(rank: RankTime) -> RankTime:
            return replace(rank, own_waits=waits.get(rank.pid, 0.0))

        return {uid: [*map(with_waits, mine)] for uid, mine in times.items()}

    def _groups(self, uids: Collection[str]) -> Mapping[str, str]:
        self._pods.read()
        root, is_v2, known = self._pods.groups
        tree = root if is_v2 else f"{root}/pids"
        return {uid: f"{tree}{known[uid].path}" for uid in uids if uid in known}


def serve(caller: socket.socket, uid: int, witness: Witness) -> None:
    """Answer *caller*, if it is of user *uid*."""
    with suppress(OSError, *NOT_READABLE, CannotRead), caller:
        if _uid_of(caller) == uid:
            question = received(caller, time.monotonic() + PATIENCE_S, LONGEST_QUESTION, end=b"\n")
            caller.settimeout(PATIENCE_S)
            caller.sendall(msgspec.json.encode(answer(_QUESTION.decode(question), witness)))


def answer(question: list[str] | TimesQuestion, witness: Witness) -> Mapping[str, PodProcess | list[RankTime]]:
    """What is answered, by uid. Raises CannotRead."""
    if isinstance(question, TimesQuestion):
        return witness.rank_times(question.times[:MOST_RHYTHMS])
    return witness.processes(question[:MOST_RHYTHMS])


def listen(path: str) -> socket.socket:
    """A socket at *path* to which everybody may connect: each caller is asked who it is. Raises OSError."""
    with suppress(FileNotFoundError):
        Path(path).unlink()  # left by an earlier run
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0)
    try:
        listener.bind(path)
        listener.listen(4)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


def main(arguments: list[str]) -> int:
    """Serve until a signal. The exit code is 2 for wrong arguments, 1 when it cannot start."""
    if len(arguments) != 3 or not arguments[1].isdecimal():
        print(_USAGE, file=sys.stderr)
        return 2
    path, uid, cgroups = arguments
    try:
        listener = listen(path)
    except OSError as error:
        print(f"cannot listen on {path}: {error.strerror}", file=sys.stderr)
        return 1
    witness = Witness(PodProcesses(Path(cgroups), own_uid=os.environ.get("POD_UID", "")))
    while True:
        caller, _ = listener.accept()
        signal.alarm(STUCK_AFTER_S)
        serve(caller, int(uid), witness)
        signal.alarm(0)


def _uid_of(caller: socket.socket) -> int:
    """The user of the process that connected, by the kernel."""
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(uid)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
