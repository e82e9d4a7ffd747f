"""
Asks NCCL's RAS subsystem once, over its text protocol, in JSON: one process answers for the whole job.

A question has crashed jobs with some versions of NCCL, so a job with such a version, or an unknown one, is not asked.
Ask only when the gang makes no progress, once, and never as a heartbeat.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable

from healthd.core.hang.suspects.evidence import bounded
from healthd.core.hang.suspects.ras import (
    FIRST_SAFE,
    LARGEST_ANSWER,
    NoAnswer,
    RasRank,
    Version,
    find_version,
    read_answer,
    refusal,
)
from healthd.probes.errors import CannotRead

PORT = 28028
DEADLINE_S = 10.0
_RAS_TIMEOUT_S = 5
"""How long RAS waits for ranks that do not answer."""
_LONGEST_LINE = 256
_LARGEST_LIBRARY = 2 << 30
_PIECE = 1 << 20
_LONGEST_VERSION = 32
_TEXT = re.compile(rb"NCCL version \d{1,2}\.\d{1,3}\.\d{1,3}(?=\D)")
_REMEDY = "ask by hand: echo 'verbose status' | nc localhost 28028"


class RasRefused(CannotRead):
    """The job must not be asked."""


def ask_ras(
    ranks: int,
    version: Version | None,
    *,
    host: str = "localhost",
    port: int = PORT,
    deadline_s: float = DEADLINE_S,
    first_safe: Version = FIRST_SAFE,
    now: Callable[[], float] = time.monotonic,
) -> dict[int, RasRank]:
    """
    What RAS says of the ranks of a gang of *ranks* ranks that uses NCCL *version*. Takes at most *deadline_s*.

    Raises RasRefused before anything is sent where the version may crash, and CannotRead.
    """
    where = f"NCCL RAS at {host}:{port}"
    if why := refusal(version, first_safe):
        raise RasRefused(where, why, "set another limit for the version, if your job has been seen to survive it")
    try:
        return read_answer(_asked(host, port, now() + deadline_s, now), ranks)
    except NoAnswer as error:
        raise CannotRead(where, str(error), _REMEDY) from error
    except OSError as error:
        raise CannotRead(where, error.strerror or str(error) or "it does not answer in time", _REMEDY) from error


def version_of_library(path: str) -> Version | None:
    """
    The version of the library libnccl in *path*, which has it as text. None where there is none. Raises OSError.

    The file is read and not mapped: a mapped file that is cut short, or whose server is gone, kills the reader.
    """
    before = b""
    with open(path, "rb") as file:
        for _ in range(_LARGEST_LIBRARY // _PIECE):
            if not (piece := file.read(_PIECE)):
                break
            if found := _TEXT.search(before + piece):
                return find_version(found[0].decode())
            before = piece[-_LONGEST_VERSION:]
    return None


def _asked(host: str, port: int, until: float, now: Callable[[], float]) -> bytes:
    with socket.create_connection((host, port), timeout=_left(until, now)) as connection:
        conversation = _Conversation(connection, until, now)
        conversation.ask("CLIENT PROTOCOL 2", "SERVER PROTOCOL ")
        conversation.ask(f"TIMEOUT {_RAS_TIMEOUT_S}", "OK")
        conversation.ask("SET FORMAT json", "OK")
        conversation.send("VERBOSE STATUS")
        return conversation.rest()


class _Conversation:
    """Lines to and from one server. Raises NoAnswer, and OSError at the deadline."""

    def __init__(self, connection: socket.socket, until: float, now: Callable[[], float]) -> None:
        self._connection = connection
        self._until = until
        self._now = now
        self._read = bytearray()

    def send(self, line: str) -> None:
        self._connection.settimeout(_left(self._until, self._now))
        self._connection.sendall(line.encode() + b"\n")

    def ask(self, line: str, expected: str) -> None:
        """Send *line*, and receive a line that begins with *expected*."""
        self.send(line)
        while (end := self._read.find(b"\n")) < 0:
            if len(self._read) > _LONGEST_LINE:
                raise NoAnswer("it does not speak the protocol of RAS")
            if not self._receive(_LONGEST_LINE):
                raise NoAnswer("it ended the connection")
        answer = self._read[:end].decode(errors="replace")
        del self._read[: end + 1]
        if not answer.startswith(expected):
            raise NoAnswer(f"it answers {bounded(answer)!r} to {line}")

    def rest(self) -> bytes:
        """All until the server ends the connection, which it does after a report."""
        while self._receive(1 << 16):
            if len(self._read) > LARGEST_ANSWER:
                raise NoAnswer(f"its answer has more than {LARGEST_ANSWER:,} bytes")
        return bytes(self._read)

    def _receive(self, most: int) -> int:
        self._connection.settimeout(_left(self._until, self._now))
        piece = self._connection.recv(most)
        self._read += piece
        return len(piece)


def _left(until: float, now: Callable[[], float]) -> float:
    left = until - now()
    if left <= 0:
        raise TimeoutError("it does not answer in time")
    return left
