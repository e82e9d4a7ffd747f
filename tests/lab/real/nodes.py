"""
Several real nodes for one control plane, and the removal of what a crash left of others.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.lab import build
from tests.lab.control_plane import STATE, ControlPlane
from tests.lab.programs import LabError, end_remembered, is_abandoned, remember
from tests.lab.real import containerd, image
from tests.lab.real.machine import remove_cgroups
from tests.lab.real.network import MOST_NODES, Network
from tests.lab.real.node import Hardware, Place, RealNode
from tests.lab.real.prerequisites import NotHere, why_not


class RealNodes:
    """
    *count* nodes, from `start` to `stop`; also a context manager.

    They are called as `Options.nodes` of the control plane says, in that order. `shared` is a directory that all of
    them see under its own path: what a cluster has as a shared file system. *at* has to be on the file system of the
    cache, from which layers of images are linked. Raises LabError, NotHere.
    """

    def __init__(
        self, control_plane: ControlPlane, count: int, *, hardware: Hardware | None = None, at: Path | None = None
    ) -> None:
        names = _names(control_plane, count)
        _make_what_is_missing()
        at = at or home()
        sweep(at)
        self.directory = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=at))
        self.directory.chmod(0o755)
        self.shared = self.directory / "shared"
        self.shared.mkdir(mode=0o777)
        self.shared.chmod(0o777)
        self._stays = control_plane.stays
        service = control_plane.api.get("/api/v1/namespaces/default/services/kubernetes")["spec"]["clusterIP"]
        self.network = Network(self.directory, service=service, port=control_plane.port, stays=self._stays)
        place = Place(
            control_plane=control_plane,
            network=self.network,
            directory=self.directory,
            shared=self.shared,
            server=f"https://{service}",
            lab=self.directory.name,
            stays=self._stays,
        )
        self.nodes = [RealNode(name, i, place, hardware or Hardware()) for i, name in enumerate(names, start=1)]
        self._remember()

    def __getitem__(self, number: int) -> RealNode:
        """Node *number*, from 0."""
        return self.nodes[number]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Return when all nodes are Ready and have their GPUs. Raises LabError, NotHere."""
        try:
            self.network.start()
            self._remember()
            for node in self.nodes:
                node.install()
                node.start()
                self._remember()
            for node in self.nodes:
                node.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Leave nothing: no process, mount, cgroup, link, network or directory."""
        for node in self.nodes:
            node.stop()
        self.network.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _remember(self) -> None:
        programs = [*self.network.programs, *(node.machine.keeper for node in self.nodes)]
        remember(self.directory / STATE, programs, owner=None if self._stays else os.getpid())


def _names(control_plane: ControlPlane, count: int) -> Sequence[str]:
    known = control_plane.options.nodes[:MOST_NODES]
    if count > len(known):
        raise LabError(f"{count} real nodes are too many: Options.nodes of the control plane has room for {len(known)}")
    return known[:count]


def _make_what_is_missing() -> None:
    """Whatever a machine may lack shows here, before there is anything to clean up. Raises NotHere."""
    reason = why_not()
    if reason:
        raise NotHere(reason)
    containerd.system()
    image.healthd()


def home() -> Path:
    """Where the nodes of all labs lie: beside the store that their layers are linked from."""
    path = build.cache() / "nodes"
    path.mkdir(exist_ok=True)
    return path


def sweep(at: Path | None = None, *, kept: bool = False) -> list[str]:
    """
    Remove what crashed labs left in *at*: machines, cgroups and directories; answers what still ran.

    Those that were asked to stay are removed only with *kept*.
    """
    ended = []
    for directory in (at or home()).iterdir():
        if is_abandoned(directory / STATE, kept=kept):
            ended += end_remembered(directory / STATE) if (directory / STATE).exists() else []
            for machine in directory.iterdir():
                remove_cgroups(machine)
            shutil.rmtree(directory, ignore_errors=True)
    return ended
