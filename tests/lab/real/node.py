"""
A real Kubernetes node: a machine of the lab with a containerd and a kubelet.

What can happen to a node can be done to it here: its kubelet or its containerd dies and comes back, its cable is
pulled, its power fails, it reboots with another boot id.
"""

from __future__ import annotations

import http
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

from tests.lab.build import binaries
from tests.lab.control_plane import ControlPlane
from tests.lab.flags import TO_KUBELETS
from tests.lab.programs import LabError
from tests.lab.real import containerd, image
from tests.lab.real.cgroups import cgroup
from tests.lab.real.machine import Machine, Service
from tests.lab.real.network import Network

_PROGRAM = "/usr/local/bin/kubernetes"
_READY = 60
"""Seconds until a node is Ready; it takes two or three, but this machine may be busy."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a node stands."""

    control_plane: ControlPlane
    network: Network
    directory: Path
    shared: Path
    """A directory of this machine that every node sees under the same path."""
    server: str
    """The API server as the nodes reach it."""
    lab: str
    """Distinguishes labs on one machine."""
    stays: bool = False


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """What a node says that it has."""

    gpus: int = 1
    labels: Mapping[str, str] = field(default_factory=lambda: {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})


class RealNode:
    """Node *number* of a lab, from 1. Off until `start`; the number says which addresses it has."""

    def __init__(self, name: str, number: int, place: Place, hardware: Hardware) -> None:
        self.name = name
        self._number = number
        self._place = place
        self._hardware = hardware
        self.directory = place.directory / name
        disk = self.directory / "disk"
        visible = {
            containerd.STORE: disk / "containerd",
            "/var/lib/kubelet": disk / "kubelet",
            _PROGRAM: Path(binaries().kubelet[0]),
            str(place.shared): place.shared,
        }
        self.machine = Machine(
            name,
            directory=self.directory,
            system=containerd.system(),
            visible=visible,
            cgroup=cgroup(f"healthd-lab-{place.lab}-{name}"),
            stays=place.stays,
        )
        self._containerd: Service | None = None
        self._kubelet: Service | None = None

    def install(self) -> None:
        """Write its disk: once, before the first start. Raises LabError, NotHere."""
        (self.directory / "disk" / "kubelet").mkdir(parents=True)
        containerd.copy_store(image.base(), self.directory / "disk" / "containerd")
        containerd.configure(self.directory)
        place, pods = self._place, self._place.network.pods(self._number)
        containerd.write(self.directory, "etc/cni/net.d/10-bridge.conflist", json.dumps(_pod_network(pods)))
        kubelet = _KUBELET
        if place.control_plane.options.kubelets_ask:
            authority = (place.control_plane.directory / TO_KUBELETS).read_text()
            containerd.write(self.directory, _AUTHORITY, authority)
            kubelet = _KUBELET | _ASKING
        containerd.write(self.directory, "etc/kubelet.yaml", json.dumps(kubelet))
        (self.directory / "upper/etc").chmod(0o755)
        token = place.control_plane.identity(f"system:node:{self.name}")
        place.control_plane.write_kubeconfig(self.directory / "upper/etc/kubeconfig", token, server=place.server)

    def start(self) -> None:
        """Switch it on; returns when the kubelet runs, which is before the node is Ready. Raises LabError."""
        self.machine.start()
        self._place.network.join(self.machine, self._number)
        self.start_containerd()
        loaded = image.healthd()
        containerd.load(self.machine, loaded, without=loaded.layers[:-1])
        self.start_kubelet()

    def stop(self) -> None:
        """Cut its power: everything in it is gone when this returns. Its disk stays."""
        self.machine.stop()
        for service in (self._kubelet, self._containerd):
            if service:
                service.stop()

    def reboot(self) -> None:
        """Off and on again: no process of before is left, the boot id is another one. Returns as `start` does."""
        self.stop()
        self.start()

    def start_kubelet(self) -> None:
        """Raises LabError."""
        flags = ("--kubeconfig=/etc/kubeconfig", "--config=/etc/kubelet.yaml", f"--node-ip={self.address}", "--v=2")
        self._kubelet = self.machine.program("kubelet", _PROGRAM, "kubelet", f"--hostname-override={self.name}", *flags)

    def kill_kubelet(self) -> None:
        """With SIGKILL. The containers run on."""
        if self._kubelet:
            self._kubelet.stop()

    def start_containerd(self) -> None:
        """Returns when it answers. Raises LabError."""
        self._containerd = containerd.start(self.machine)

    def kill_containerd(self) -> None:
        """With SIGKILL. The containers run on."""
        if self._containerd:
            self._containerd.stop()

    def cut_network(self) -> None:
        """Pull its cable: nothing on it is reached any more, and it reaches nothing. Everything on it runs on."""
        self._place.network.cut(self._number)

    def mend_network(self) -> None:
        """Plug the cable in again."""
        self._place.network.mend(self._number)

    def processes(self, pod_uid: str) -> set[int]:
        """Processes of a pod that live on this node, without the one that only holds the pod together."""
        return {pid for pid in self.machine.cgroup.processes(f"pod{pod_uid}") if not _is_pause(pid)}

    @property
    def address(self) -> str:
        """Where the kubelet listens."""
        return str(self._place.network.address(self._number))

    @property
    def boot_id(self) -> str:
        """Of the machine; another one after each reboot."""
        return self.machine.boot_id

    def wait_until_ready(self) -> None:
        """Return when the node is Ready and has its GPUs. Raises LabError."""
        kubelet = self._kubelet
        if kubelet is None:
            raise LabError(f"{self.name}: the kubelet was not started")
        kubelet.wait_until("Ready", self._is_ready, limit=_READY)
        self._equip()

    def _is_ready(self) -> bool:
        """The kubelet answers, and wrote since the machine was switched on: what it wrote before that still stands."""
        path = f"/api/v1/nodes/{self.name}"
        if not self._place.control_plane.has(path):
            return False
        api = self._place.control_plane.api
        if api.raw("GET", f"{path}/proxy/healthz")[0] != http.HTTPStatus.OK:
            return False
        status = api.get(path)["status"]
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", []))
        return ready and status["nodeInfo"]["bootID"] == self.boot_id

    def _equip(self) -> None:
        """Say that the node has GPUs, as a device plugin would. The kubelet keeps what it did not set itself."""
        api, path = self._place.control_plane.api, f"/api/v1/nodes/{self.name}"
        gpus = {"nvidia.com/gpu": str(self._hardware.gpus)}
        api.patch(f"{path}/status", {"status": {"capacity": gpus, "allocatable": gpus}})
        api.patch(path, {"metadata": {"labels": dict(self._hardware.labels)}})


def _is_pause(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"/busybox\0sleep\0")
    except OSError:
        return True


def _pod_network(addresses: IPv4Network) -> dict[str, object]:
    ranges = [[{"subnet": str(addresses)}]]
    ipam = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "ipam": ipam}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


_KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "failCgroupV1": False,
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "resolvConf": "/etc/resolv.conf",
    "failSwapOn": False,
    "evictionHard": {},  # the disk is this machine's, and may be as full as it likes: nothing is evicted for it,
    "imageGCHighThresholdPercent": 100,  # and no image removed, which could not be had again
    "enforceNodeAllocatable": [],
    "makeIPTablesUtilChains": False,
    "readOnlyPort": 0,
    "nodeStatusUpdateFrequency": "5s",
}
"""As JSON, which is YAML."""
_AUTHORITY = "etc/api-server.crt"
_ASKING = {
    "authentication": {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": True},
        "x509": {"clientCAFile": f"/{_AUTHORITY}"},
    },
    "authorization": {"mode": "Webhook"},
}
"""What a real cluster has: nobody without a name, and of the others those whom the API server allows it."""
