"""
Asks the component `hang-evidence` on this node what the processes of pods do. Without the component nothing is known.

The answer comes from another container and holds text of users' programs: it is bounded when it is decoded.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Mapping

import msgspec
import structlog

from healthd.core.api.health import PodProcess

log = structlog.get_logger(__name__)

SOCKET = "/run/healthd-evidence/socket"
DEADLINE_S = 2.0
"""Seconds that the component takes for all pods of one question."""
PATIENCE_S = 0.5
"""Seconds that the agent waits beyond that, and that the component waits for a question."""
LONGEST_ANSWER = 1 << 20
NOT_READABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What a decoder raises for text that is not what it should be."""
_ANSWER = msgspec.json.Decoder(dict[str, PodProcess])


def ask_processes(
    uids: Collection[str], path: str = SOCKET, *, wait_s: float = DEADLINE_S + PATIENCE_S
) -> Mapping[str, PodProcess]:
    """What the processes of these pods do, by uid. A pod of which nothing is known is left out."""
    try:
        with socket.socket(socket.AF_UNIX) as asked:
            until = time.monotonic() + wait_s
            asked.settimeout(PATIENCE_S)
            asked.connect(path)
            asked.sendall(msgspec.json.encode(list(uids)) + b"\n")
            return _ANSWER.decode(received(asked, until, LONGEST_ANSWER))
    except FileNotFoundError:
        return {}  # this site does without it
    except (OSError, *NOT_READABLE) as error:
        log.warning("hang_evidence.no_answer", path=path, error=str(error) or type(error).__name__)
        return {}


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
