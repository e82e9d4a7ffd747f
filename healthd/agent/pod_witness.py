"""
Asks the component `hang-evidence` on this node about the processes of pods: what those of a quiet pod do, and how long
the ranks of one that works ran. Without the component nothing is known.

The answer comes from another container and holds text of users' programs: it is bounded when it is decoded.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Mapping

import msgspec
import structlog

from healthd.core.api.health import PodProcess
from healthd.core.hang.work.rank_time import RankTimes

log = structlog.get_logger(__name__)

SOCKET = "/run/healthd-evidence/socket"
DEADLINE_S = 2.0
"""Seconds that the component takes for all pods of one question."""
PATIENCE_S = 0.5
"""Seconds that the agent waits beyond that, and that the component waits for a question."""
TIMES_S = 0.5
"""Seconds that the agent waits for the times of ranks: pods are sampled each second."""
ASKED_AGAIN_S = 300.0
"""A component that did not answer that may be of an older version, and has more to do when a gang hangs."""
LONGEST_ANSWER = 1 << 20
NOT_READABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What a decoder raises for text that is not what it should be."""
_PROCESSES = msgspec.json.Decoder(dict[str, PodProcess])
_TIMES = msgspec.json.Decoder(dict[str, RankTimes])


class TimesQuestion(msgspec.Struct, frozen=True):
    """Asks how long the ranks of the pods with these uids ran. A mere list of uids asks what their processes do."""

    times: list[str]


def ask_processes(
    uids: Collection[str], path: str = SOCKET, *, wait_s: float = DEADLINE_S + PATIENCE_S
) -> Mapping[str, PodProcess]:
    """What the processes of these pods do, by uid. A pod of which nothing is known is left out."""
    try:
        return _PROCESSES.decode(_answer(list(uids), path, wait_s))
    except FileNotFoundError:
        return {}  # this site does without it
    except (OSError, *NOT_READABLE) as error:
        _warn(path, error)
        return {}


class AskRankTimes:
    """Asks how long the ranks of pods ran, of a component that may be there or not."""

    def __init__(self, path: str = SOCKET, now: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._now = now
        self._not_before = now()

    def __call__(self, uids: Collection[str]) -> Mapping[str, RankTimes]:
        """By uid. A pod of which no rank is known is left out."""
        if self._now() < self._not_before:
            return {}
        try:
            return _TIMES.decode(_answer(TimesQuestion(list(uids)), self._path, TIMES_S))
        except FileNotFoundError:
            return {}
        except (OSError, *NOT_READABLE) as error:
            self._not_before = self._now() + ASKED_AGAIN_S
            _warn(self._path, error)
            return {}


def _answer(question: object, path: str, wait_s: float) -> bytes:
    """Raises OSError, of which FileNotFoundError says that there is no component."""
    with socket.socket(socket.AF_UNIX) as asked:
        until = time.monotonic() + wait_s
        asked.settimeout(PATIENCE_S)
        asked.connect(path)
        asked.sendall(msgspec.json.encode(question) + b"\n")
        return received(asked, until, LONGEST_ANSWER)


def _warn(path: str, error: Exception) -> None:
    log.warning("hang_evidence.no_answer", path=path, error=str(error) or type(error).__name__)


def received(peer: socket.socket, until: float, most: int, *, end: bytes = b"") -> bytes:
    """All that *peer* sends, up to *end*. Raises TimeoutError, and OSError where it sends too much."""
    received = b""
    while (left := until - time.monotonic()) > 0:
        peer.settimeout(left)
        piece = peer.recv(1 << 16)
        received += piece
        if len(received) > most:
            raise OSError("too much is sent")
        if not piece or (end and received.endswith(end)):
            return received
    raise TimeoutError
