"""
What a node with GPUs has beside a kubelet, on a real node of the lab: the container runtime, the driver, GPUs to offer.

With the RuntimeClass `nvidia` a container gets the libraries of the driver from its node. They are the stand-ins of
`tests.standin`. A node whose driver is dead has none.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.real.node import RealNode
from tests.standin import cuda, nvml

HANDLER = "nvidia"
RUNTIME_CLASS: Json = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": HANDLER},
    "handler": HANDLER,
}
_INSIDE = "/usr/local/nvidia"
_ENVIRONMENT = (f"LD_LIBRARY_PATH={_INSIDE}/lib64", f"STANDIN_NVML={_INSIDE}/nvml", f"STANDIN_CUDA={_INSIDE}/cuda")
_USUAL_SPEC = "/etc/containerd/spec.json"
_SPEC = f"/etc/containerd/{HANDLER}.json"
_CONFIG = f"""
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{HANDLER}]
    runtime_type = "io.containerd.runc.v2"
    base_runtime_spec = "{_SPEC}"
"""


class GpuRuntime:
    """
    The runtime of *node*. The driver lies in the folder *at*, which the node sees under the same path.

    *folder* is for the libraries until the driver is loaded. Skips where they cannot be compiled.
    """

    def __init__(self, node: RealNode, *, at: Path, folder: Path) -> None:
        self._node = node
        self._at = at
        self._libraries = cuda.build(nvml.build(folder))

    def install(self) -> None:
        """Add the handler. Returns when containerd runs with it. No container may run on the node yet."""
        self._at.mkdir()
        machine = self._node.machine
        spec = json.loads(machine.run("cat", _USUAL_SPEC))
        mount = {"destination": _INSIDE, "type": "bind", "source": str(self._at), "options": ["rbind", "ro"]}
        spec["mounts"].append(mount)
        spec["process"]["env"] = list(_ENVIRONMENT)
        machine.run("sh", "-c", f"cat > {_SPEC}", text=json.dumps(spec))
        machine.run("sh", "-c", "cat >> /etc/containerd/config.toml", text=_CONFIG)
        self._node.kill_containerd()
        self._node.start_containerd()

    def offer(self, control_plane: ControlPlane, gpus: int) -> None:
        """
        What the node says that it offers. 0: as after a boot, until a device plugin has registered.

        The kubelet keeps it, as it keeps all that it did not set itself.
        """
        offered = {"nvidia.com/gpu": str(gpus)}
        status = {"capacity": offered, "allocatable": offered}
        control_plane.api.patch(f"/api/v1/nodes/{self._node.name}/status", {"status": status})

    def load_driver(self, gpus: int) -> None:
        """From now on a container finds the driver, with *gpus* GPUs that are well."""
        (self._at / "lib64").mkdir(mode=0o755)
        for library in self._libraries.iterdir():
            shutil.copy(library, self._at / "lib64")
        # Copies to these GPUs are copies within the memory of this machine: no link promises a speed for them.
        (self._at / "nvml").write_text(f"gpus {gpus}\nvalue nvmlDeviceGetMaxPcieLinkGeneration * 0\n")
        (self._at / "cuda").write_text(f"gpus {gpus}\nmemory 300 0\n")
