"""Every kind works in the lab with its real controller: its user starts, stops and starts a gang of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.control_plane import ControlPlane
from tests.lab.kinds.fixtures import of_kinds
from tests.lab.kinds.gangs import KINDS, NAME
from tests.lab.kinds.kueue import queue
from tests.lab.programs import wait_until
from tests.lab.simulated import SimulatedNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

_LIMIT = 120
"""Seconds. Some controllers wait twice as long after each try that came too soon: 44 s were seen of the MPIJob's."""
_ENDED = ("Succeeded", "Failed")


@pytest.fixture(scope="module", autouse=True)
def _nodes(simulated_nodes: SimulatedNodes) -> None:
    """Room for one gang at a time, and one node more."""
    simulated_nodes.add(5)


@pytest.fixture
def place(control_plane: ControlPlane, namespace: str, kind: str) -> Iterator[str]:
    """A namespace, with a queue where the kind needs one. The gang is deleted before the next one comes."""
    if "kueue" in KINDS[kind].controllers:
        _apply(control_plane, namespace, *queue(NAME, gpus=32, namespace=namespace))
    yield namespace
    control_plane.kubectl("-n", namespace, "delete", KINDS[kind].deleted, "--wait=false", "--ignore-not-found")
    control_plane.kubectl("-n", namespace, "delete", "pods", "--all", "--wait=false")


@pytest.mark.parametrize(
    "kind", of_kinds(name for name, kind in KINDS.items() if kind.patched and kind.start), indirect=True
)
def test_a_gang_runs_and_is_stopped_and_started_by_its_user(control_plane: ControlPlane, place: str, kind: str) -> None:
    this = KINDS[kind]
    _apply(control_plane, place, *this.manifests)
    before = _running(control_plane, place, this.pods)

    _patch(control_plane, place, this.patched, this.stop)
    wait_until("stopped", lambda: not _alive(control_plane, place), limit=_LIMIT)
    _patch(control_plane, place, this.patched, this.start)

    assert before.isdisjoint(_running(control_plane, place, this.pods))


def _apply(control_plane: ControlPlane, namespace: str, *manifests: Any) -> None:
    for each in manifests:
        control_plane.kubectl("-n", namespace, "apply", "--server-side", "-f", "-", input=json.dumps(each))


def _patch(control_plane: ControlPlane, namespace: str, what: str, patch: Any) -> None:
    how = "json" if isinstance(patch, list) else "merge"
    control_plane.kubectl("-n", namespace, "patch", what, f"--type={how}", "-p", json.dumps(patch))


def _running(control_plane: ControlPlane, namespace: str, count: int) -> set[str]:
    """The identities of the pods of a gang, once so many run."""

    def found() -> set[str]:
        alive = _alive(control_plane, namespace)
        return {pod["metadata"]["uid"] for pod in alive if pod["status"]["phase"] == "Running"}

    wait_until(f"{count} pods running", lambda: len(found()) == count, limit=_LIMIT)
    return found()


def _alive(control_plane: ControlPlane, namespace: str) -> list[Any]:
    pods: list[Any] = control_plane.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return [pod for pod in pods if pod["status"]["phase"] not in _ENDED]
