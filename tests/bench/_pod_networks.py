"""
Networks as pods have them, on this machine: a namespace and an address for each, and a port of a bridge. Needs root.

A port can be lost as a cable or a switch port is: what is sent through it is gone, and no connection is closed.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from itertools import count
from typing import IO

_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET, from <linux/sched.h>."""
_JOIN = 'read -r address; ip link set lo up; ip address add "$address/16" dev eth0; ip link set eth0 up; exec "$@"'
_NUMBERS = count(1)
LOSSES = ("disabled", "down")
"""The port forwards nothing any more; the pod also sees that it has no carrier."""


def leave_own_network() -> None:
    """Go on in a network namespace of this process's own: nothing that is made here is left. Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "a network namespace needs root")


class PodNetwork:
    """A bridge, and pods that are connected to it. The addresses are known before."""

    def __init__(self, pods: int) -> None:
        self._number = next(_NUMBERS)
        self.addresses = [f"10.77.{self._number}.{pod + 1}" for pod in range(pods)]
        _ip("link", "add", "name", self._bridge, "type", "bridge")
        _ip("link", "set", self._bridge, "up")

    def start(
        self, pod: int, command: Sequence[str], env: Mapping[str, str], output: IO[str]
    ) -> subprocess.Popen[bytes]:
        """Run *command* in the namespace of *pod*."""
        process = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", _JOIN, "sh", *command],
            env=env,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        while os.readlink(f"/proc/{process.pid}/ns/net") == os.readlink("/proc/self/ns/net"):  # noqa: PTH115
            time.sleep(0.005)
        port = self._port(pod)
        _ip("link", "add", "name", port, "type", "veth", "peer", "name", "eth0", "netns", str(process.pid))
        _ip("link", "set", port, "master", self._bridge)
        _ip("link", "set", port, "up")
        assert process.stdin is not None
        process.stdin.write(f"{self.addresses[pod]}\n".encode())
        process.stdin.close()
        return process

    def lose(self, pod: int, way: str) -> None:
        """The port of *pod*, in one of `LOSSES`."""
        if way == "down":
            _ip("link", "set", self._port(pod), "down")
        else:
            subprocess.run(["bridge", "link", "set", "dev", self._port(pod), "state", way], check=True)

    def end(self) -> None:
        """When its pods have ended: their ports end with them."""
        _ip("link", "delete", self._bridge)

    @property
    def _bridge(self) -> str:
        return f"bridge{self._number}"

    def _port(self, pod: int) -> str:
        return f"port{self._number}-{pod}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
