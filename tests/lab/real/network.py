"""
The network of one lab: a switch in a namespace of its own, the nodes on it, and the address of the API server.

One link joins it to this machine, so that the API server reaches kubelets and people reach pods. All else is inside, so
labs side by side do not meet, and everything goes when the namespace goes. The addresses are from the range that is
set aside for tests of networks (RFC 2544), where nothing else should be.

There is no kube-proxy, which would need modules of the kernel. The one service that every pod expects, the API
server's, has its address on the switch, and `gateway` passes on to the API server what arrives there.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from tests.lab.programs import LabError, Program, wait_until
from tests.lab.real.machine import Machine

MOST_NODES = 15

_LABS = list(IPv4Network("198.18.0.0/15").subnets(new_prefix=20))
_GATEWAY = Path(__file__).with_name("gateway.py")
_SWITCH = "02:00:00:00:00:01"
"""
Said once and for all: else the switch takes the lowest hardware address of its links, another one whenever a node comes
or goes, and nodes that know the old one talk to no other node for the better part of a minute.
"""
_FORWARD = "echo 1 > /proc/sys/net/ipv4/ip_forward"


class Network:
    """Down until `start`. *service* is the API server's address in the cluster, *port* its own on this machine."""

    def __init__(self, directory: Path, *, service: str, port: int, stays: bool = False) -> None:
        self._directory, self._service, self._port, self._stays = directory, service, port, stays
        self._switch = self._program("switch", "unshare", "--net", "sleep", "infinity")
        self._gateway = self._program("gateway", "true")
        self._subnets: list[IPv4Network] = []
        self.link = ""
        """The one trace of the lab in the network of this machine."""

    @property
    def programs(self) -> list[Program]:
        """What runs for as long as the network is there."""
        return [self._switch, self._gateway]

    def start(self) -> None:
        """Build it. Raises LabError."""
        self._switch.start()
        self._switch.wait_until("in a network of its own", self._is_apart, limit=10)
        lab, self.link = self._take_addresses()
        self._subnets = list(lab.subnets(new_prefix=24))
        _ip(
            f"addr add {self._subnets[0][2]}/24 dev {self.link}",
            f"link set {self.link} up",
        )
        self._at_switch(
            "link set lo up",
            f"addr add {self._service}/32 dev lo",
            f"link add lab0 address {_SWITCH} type bridge",
            f"addr add {self._subnets[0][1]}/24 dev lab0",
            "link set lab0 up",
            "link set uplink master lab0 up",
        )
        _run("nsenter", f"--target={self._pid}", "--net", "sh", "-c", _FORWARD)
        _ip(f"route add {lab} via {self._subnets[0][1]}")
        arguments = (str(self._pid), self._service, str(self._port))
        self._gateway = self._program("gateway", sys.executable, "-S", str(_GATEWAY), *arguments)
        self._gateway.start()
        self._gateway.wait_until("listening", lambda: "listening" in self._gateway.log.read_text(), limit=10)

    def stop(self) -> None:
        """
        Take it down; returns when its link and its route are gone from this machine, too.

        The link is removed by name: connections to a node that went silent keep a network for minutes when nobody else
        is in it any more.
        """
        self._gateway.stop()
        self._switch.stop()
        if self.link and self._is_linked():
            with suppress(LabError):  # it went by itself in this moment
                _ip(f"link delete {self.link}")
        wait_until(f"{self.link} is gone", lambda: not (self.link and self._is_linked()), limit=20)

    def _is_linked(self) -> bool:
        return (Path("/sys/class/net") / self.link).exists()

    def address(self, number: int) -> IPv4Address:
        """Of node *number*, from 1."""
        return self._subnets[0][10 + number]

    def pods(self, number: int) -> IPv4Network:
        """The addresses of the pods on node *number*."""
        return self._subnets[number]

    def join(self, machine: Machine, number: int) -> None:
        """Give a machine that was switched on its link to the switch. Raises LabError."""
        self._at_switch(
            f"link add node{number} type veth peer name eth0 netns {machine.pid}",
            f"link set node{number} master lab0 up",
            f"route replace {self.pods(number)} via {self.address(number)}",
        )
        for words in (
            f"addr add {self.address(number)}/24 dev eth0",
            "link set eth0 up",
            f"route add default via {self._subnets[0][1]}",
        ):
            machine.run("ip", *words.split())
        machine.run("sh", "-c", _FORWARD)

    def cut(self, number: int) -> None:
        """Pull the cable of node *number*."""
        self._at_switch(f"link set node{number} down")

    def mend(self, number: int) -> None:
        """Plug the cable in again."""
        self._at_switch(f"link set node{number} up", f"route replace {self.pods(number)} via {self.address(number)}")

    @property
    def _pid(self) -> int:
        if self._switch.pid is None:
            raise LabError("the network of the lab is down")
        return self._switch.pid

    def _is_apart(self) -> bool:
        return Path(f"/proc/{self._pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()

    def _take_addresses(self) -> tuple[IPv4Network, str]:
        """The first range that no other lab has: a link of its name can be made only once."""
        for number, lab in enumerate(_LABS):
            try:
                _ip(f"link add hlab{number} type veth peer name uplink netns {self._pid}")
            except LabError as error:
                if "File exists" not in str(error):
                    raise
            else:
                return lab, f"hlab{number}"
        raise LabError(f"{len(_LABS)} labs run on this machine already")

    def _at_switch(self, *commands: str) -> None:
        _ip(*commands, before=("nsenter", f"--target={self._pid}", "--net"))

    def _program(self, name: str, *command: str) -> Program:
        return Program(name, command, log=self._directory / f"{name}.log", stays=self._stays)


def _ip(*commands: str, before: tuple[str, ...] = ()) -> None:
    _run(*before, "ip", "-batch", "-", text="\n".join(commands))


def _run(*command: str, text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip()}\n{text}")
