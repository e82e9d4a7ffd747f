"""Pods for tests on real nodes: few words to make one, and what it became."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import LabError, wait_until
from tests.lab.real import image

_LIMIT = 40
"""Seconds for anything that a pod does; a second or two, but this machine may be busy."""


def container(*command: str, name: str = "main", **fields: Any) -> Json:
    """One container of the image of healthd."""
    return {"name": name, "image": image.NAME, "imagePullPolicy": "Never", "command": list(command), **fields}


def python(*lines: str) -> tuple[str, ...]:
    """The command that runs *lines*."""
    return ("python3", "-u", "-c", "\n".join(lines))


def spec(*containers: Json, **fields: Any) -> Json:
    """The spec of a pod that runs once and has three seconds to end."""
    return {"restartPolicy": "Never", "terminationGracePeriodSeconds": 3, "containers": list(containers), **fields}


class Pods:
    """The pods of one namespace."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._control_plane = control_plane
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._namespace = namespace

    def start(self, name: str, pod: Mapping[str, Any]) -> str:
        """Make a pod with this spec; answers its UID."""
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": dict(pod)}
        return str(self._control_plane.api.create(self._path, body)["metadata"]["uid"])

    def run(self, name: str, pod: Mapping[str, Any]) -> str:
        """What a pod with this spec printed until it ended. Raises LabError when it failed."""
        self.start(name, pod)
        ended = self.await_phase(name, "Succeeded", "Failed")
        if ended != "Succeeded":
            raise LabError(f"the pod {name} failed: {self.logs(name)}")
        return self.logs(name)

    def logs(self, name: str, *options: str) -> str:
        """What its container printed so far."""
        return self._control_plane.kubectl("logs", "--namespace", self._namespace, name, *options)

    def get(self, name: str) -> Json:
        """The pod as the API server has it."""
        return self._control_plane.api.get(f"{self._path}/{name}")

    def list(self) -> Sequence[Json]:
        """All pods as the API server has them."""
        found: list[Json] = self._control_plane.api.get(self._path)["items"]
        return found

    def await_phase(self, name: str, *phases: str) -> str:
        """Return when a pod is in one of *phases*; answers which. Raises LabError."""
        try:
            wait_until(f"{name} is {' or '.join(phases)}", lambda: self._phase(name) in phases, limit=_LIMIT)
        except LabError as error:
            raise LabError(f"{error}; its status: {json.dumps(self.get(name)['status'])}") from None
        return self._phase(name)

    def await_line(self, name: str, line: str) -> None:
        """Return when a pod has printed *line*. Raises LabError."""
        wait_until(f"printed by {name}: {line}", lambda: line in self.logs(name).splitlines(), limit=_LIMIT)

    def _phase(self, name: str) -> str:
        return str(self.get(name)["status"]["phase"])
