"""
A descriptor of the kernel log from the opener: how a process without any privilege reads `/dev/kmsg`.

The other end is `opener.py` beside this file, which documents the protocol.
"""

from __future__ import annotations

import os
import socket
import struct

from healthd.probes.errors import CannotRead, cannot_open_kernel_log

PATIENCE = struct.pack("@ll", 5, 0)
"""Seconds (struct timeval) that the opener may take. A working one answers within a millisecond."""
LONGEST_ANSWER = 16


def receive_kmsg(path: str) -> int:
    """A new descriptor from the opener that listens on *path*. The caller owns it. Raises CannotRead."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as opener:
            # The kernel's own time-outs: with Python's, a connect fails at once while other connections wait to be
            # accepted.
            opener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, PATIENCE)
            opener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, PATIENCE)
            opener.connect(path)
            answer, descriptors, _, _ = socket.recv_fds(opener, LONGEST_ANSWER, 1, socket.MSG_CMSG_CLOEXEC)
    except OSError as error:  # EAGAIN: it took too long
        why = f"the opener cannot be asked: {error.strerror or error}"
        raise CannotRead(path, why, "see that it runs beside this agent and shares the folder of the socket") from error
    if answer == b"k" and len(descriptors) == 1:
        return descriptors[0]
    for descriptor in descriptors:
        os.close(descriptor)
    raise _refusal(path, answer)


def _refusal(path: str, answer: bytes) -> CannotRead:
    if not answer:
        return CannotRead(path, f"the opener does not serve user {os.geteuid()}", "start it with this user's number")
    if answer[:1] == b"e" and answer[1:].isdigit():
        number = int(answer[1:])
        return cannot_open_kernel_log("/dev/kmsg through the opener", OSError(number, os.strerror(number)))
    return CannotRead(path, f"what listens there is no opener: it says {answer!r}", "check kernel_log.socket")
