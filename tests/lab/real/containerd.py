"""
containerd on a machine of the lab, and its store with the base images already in it.

A store is filled once, kept, and then copied by hard links: its layers are never written to. So a node starts with
100 MB of images in a tenth of a second, and only the thin layer of healthd is imported each time.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Collection
from pathlib import Path

from tests.lab import build
from tests.lab.programs import LabError
from tests.lab.real import image, packages
from tests.lab.real.cgroups import cgroup
from tests.lab.real.machine import Machine, Service
from tests.lab.real.oci import Image, Layer

STORE = "/var/lib/containerd"

_KEPT = 2
"""Stores of this machine; a new one is made when the pins change."""

_SOCKET = "/run/containerd/containerd.sock"
_SPEC = "/etc/containerd/spec.json"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_HOOK = {"path": "/usr/bin/mount", "args": ["mount", "--bind", _BOOT_ID, _BOOT_ID.lstrip("/")]}
"""
Runs in the root of each new container: what a container reads is the boot id of its machine, as on a real one. (The
kernel would tell it its own, which is the same for all machines of the lab.)
"""
_CONFIG = f"""
version = 2
root = "{STORE}"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt"]

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image.PAUSE}"
  restrict_oom_score_adj = true  # to lower it needs a capability that this machine may not give
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "{_SPEC}"
"""


def system() -> Path:
    """The operating system of every machine: containerd, runc, the network plugins, and a shell. Raises NotHere."""
    return packages.tree("containerd", "runc", "containernetworking-plugins", "mount", "iproute2", "coreutils", "dash")


def configure(machine_directory: Path) -> None:
    """Write the configuration of containerd to the disk of a machine."""
    write(machine_directory, "etc/containerd/config.toml", _CONFIG)


def write(machine_directory: Path, name: str, content: str) -> None:
    """Put a file on the disk of a machine that is off."""
    path = machine_directory / "upper" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def start(machine: Machine) -> Service:
    """Run containerd; returns when it answers. Raises LabError."""
    spec = json.loads(machine.run("ctr", "oci", "spec"))
    machine.run("sh", "-c", f"cat > {_SPEC}", text=json.dumps({**spec, "hooks": {"createContainer": [_HOOK]}}))
    service = machine.program("containerd", "containerd")
    service.wait_until("answering", lambda: _answers(machine), limit=30)
    return service


def load(machine: Machine, loaded: Image, *, without: Collection[Layer] = ()) -> None:
    """Import an image, of which the store has the layers *without* already. Raises LabError."""
    command = machine.inside("ctr", "--namespace=k8s.io", "images", "import", "-")
    done = subprocess.run(command, input=loaded.archive(without=without), capture_output=True, check=False)
    if done.returncode:
        raise LabError(f"{machine.name} does not take the image {loaded.name}: {done.stderr.decode().strip()}")


def copy_store(base: Image, into: Path) -> None:
    """A store with *base* and the pause image in the new directory *into*. Raises LabError, NotHere."""
    kept = _kept_store(base)
    subprocess.run(["cp", "-a", "--link", kept, into], check=True)
    for database in kept.rglob("*.db"):  # these are written to
        copy = into / database.relative_to(kept)
        copy.unlink()
        shutil.copy2(database, copy)


def _kept_store(base: Image) -> Path:
    pause = image.pause()
    parts = (system().name, *(layer.digest for layer in (*pause.layers, *base.layers)))
    kept = build.cache() / "stores" / hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]
    kept.parent.mkdir(exist_ok=True)
    with build.locked(build.cache() / "stores.lock"):
        if not kept.exists():
            _fill(kept, pause, base)
            for older in sorted(kept.parent.iterdir(), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
                shutil.rmtree(older)
    return kept


def _fill(kept: Path, *images: Image) -> None:
    place = Path(tempfile.mkdtemp(prefix="store.", dir=kept.parent))
    (place / "store").mkdir()
    configure(place)
    machine = Machine(
        "store",
        directory=place,
        system=system(),
        visible={STORE: place / "store"},
        cgroup=cgroup(f"healthd-lab-{place.name}"),
    )
    try:
        machine.start()
        service = start(machine)
        for each in images:
            load(machine, each)
        service.stop(grace=10)
        machine.stop()
        (place / "store").rename(kept)
    finally:
        machine.stop()
        shutil.rmtree(place)


def _answers(machine: Machine) -> bool:
    try:
        machine.run("ctr", "version")
    except LabError:
        return False
    return True
