"""Whether this machine can have real nodes, and if not, why."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.lab import build
from tests.lab.programs import LabError
from tests.lab.real import cgroups

_TOOLS = ("unshare", "nsenter", "setpriv", "ip", "mount", "pivot_root", "tar", "apt-get", "dpkg-deb")
_TRIAL = """
mount -t overlay overlay -o "lowerdir=$0/lower,upperdir=$0/upper,workdir=$0/work" "$0/root" &&
mknod "$0/null" c 1 3 && ip link add trial type veth && ip link add trial0 type bridge
"""


class NotHere(LabError):
    """This machine cannot have what was asked for; says why, and what would help."""


@functools.cache
def why_not() -> str | None:
    """None when real nodes can be had here; else the reason, and what would help."""
    if sys.platform != "linux":
        return "real nodes need Linux"
    if os.geteuid() != 0:
        return "real nodes need root: they have namespaces, mounts and cgroups of their own"
    missing = [tool for tool in _TOOLS if not shutil.which(tool)]
    if missing:
        return f"real nodes need these programs: {', '.join(missing)}"
    if not cgroups.are_legacy():
        return "real nodes need cgroup v1 controllers; with cgroup v2 alone they were never tried"
    return _no_cgroups() or _what_fails()


def _no_cgroups() -> str | None:
    trial = cgroups.cgroup(f"healthd-lab-trial-{os.getpid()}")
    try:
        trial.create()
        trial.remove()
    except OSError as error:
        return f"real nodes need cgroups of their own, and none can be made here: {error}"
    return None


def _what_fails() -> str | None:
    with tempfile.TemporaryDirectory(dir=build.cache()) as place:
        for name in ("lower", "upper", "work", "root"):
            (Path(place) / name).mkdir()
        command = [
            "unshare",
            "--mount",
            "--net",
            "--pid",
            "--uts",
            "--ipc",
            "--cgroup",
            "--fork",
            "sh",
            "-c",
            _TRIAL,
            place,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"namespaces, overlay mounts, devices or links are not allowed here: {done.stderr.strip()}"
    return None
