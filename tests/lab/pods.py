"""
Pods and gangs for tests in the lab, and what a watch showed of them.
"""

from __future__ import annotations

import json

import yaml

from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until
from tests.lab.simulated import GPUS

_LIMIT = 30


def a_pod(node: str = "") -> Json:
    """A pod that wants all GPUs of its node."""
    main = {"name": "main", "image": "none", "resources": {"limits": {GPUS: "8"}}}
    return {"restartPolicy": "Never", "containers": [main], **({"nodeName": node} if node else {})}


def a_gang(namespace: str, size: int) -> str:
    """An Indexed Job, one pod to a node."""
    spec = {"completions": size, "parallelism": size, "completionMode": "Indexed", "template": {"spec": a_pod()}}
    metadata = {"name": "train", "namespace": namespace}
    return yaml.safe_dump({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})


class Pods:
    """The pods of one namespace, and what was to be seen of them since it was made."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self._api = control_plane.api
        self._since = self._api.get(self.path)["metadata"]["resourceVersion"]

    def create(self, name: str, node: str = "", *, restart_policy: str = "Never", **annotations: str) -> None:
        """A pod that stays on *node*; annotations of the lab by the last part of their names."""
        notes = {f"lab.healthd.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        spec = {**a_pod(node), "restartPolicy": restart_policy}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}, "spec": spec}
        self._api.create(self.path, pod)
        self.await_phase(name, "Running")

    def delete(self, name: str) -> None:
        """Ask for its end."""
        self._api.delete(f"{self.path}/{name}")

    def get(self, name: str) -> Json:
        """As it is now."""
        return self._api.get(f"{self.path}/{name}")

    def names(self) -> list[str]:
        """All that are there."""
        return [pod["metadata"]["name"] for pod in self._api.get(self.path)["items"]]

    def await_phase(self, name: str, phase: str) -> None:
        """Return when it is reached."""
        wait_until(f"{name} {phase}", lambda: self.get(name)["status"]["phase"] == phase, limit=_LIMIT)

    def await_count(self, count: int, phase: str) -> None:
        """Return when so many pods have this phase."""
        wait_until(f"{count} pods {phase}", lambda: len(self._with(phase)) == count, limit=_LIMIT)

    def _with(self, phase: str) -> list[Json]:
        return [pod for pod in self._api.get(self.path)["items"] if pod["status"]["phase"] == phase]

    def seen(self) -> dict[str, list[str]]:
        """What a watch showed, by name: each phase with the state of the container, and at last "gone"."""
        raw = self._api.raw("GET", f"{self.path}?watch=1&timeoutSeconds=1&resourceVersion={self._since}")[1]
        states: dict[str, dict[str, None]] = {}
        for event in map(json.loads, raw.splitlines()):
            states.setdefault(event["object"]["metadata"]["name"], {})[_state(event)] = None
        return {name: list(each) for name, each in states.items()}


def _state(event: Json) -> str:
    if event["type"] == "DELETED":
        return "gone"
    status = event["object"]["status"]
    kind, state = next(iter(status.get("containerStatuses", [{"state": {"waiting": {}}}])[0]["state"].items()))
    return " ".join([status["phase"], kind, *(str(state[key]) for key in ("exitCode",) if key in state)])
