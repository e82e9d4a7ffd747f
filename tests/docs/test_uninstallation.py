"""The uninstallation of `docs/kubernetes/install.md`, played word by word: nothing is left that waits for healthd."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.accounts import as_holder_of, token_of_agent
from tests.deploy.test_installed import a_job, break_gpu, hold_free
from tests.docs.page import ROOT, kubernetes_page
from tests.lab.api import Json
from tests.lab.build import binaries
from tests.lab.control_plane import ControlPlane
from tests.lab.deletions import deleted_soon
from tests.lab.programs import wait_until
from tests.lab.simulated import SimulatedNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

INSTALL = kubernetes_page("install")
PATIENCE = 60
KINDS = (
    "clusterroles,clusterrolebindings,crds,priorityclasses,validatingadmissionpolicies,validatingadmissionpolicybindings,"
    "mutatingadmissionpolicies,mutatingadmissionpolicybindings"
)
"""What has no namespace, of all that is installed."""


class Desk:
    """A person's shell in a copy of this repository, with the commands of the page."""

    def __init__(self, control_plane: ControlPlane, folder: Path) -> None:
        self._folder = folder
        for name in ("deploy", "examples"):
            (folder / name).symlink_to(ROOT / name)
        commands = {"kubectl": binaries().kubectl, "healthd": [sys.executable, "-m", "healthd.cli.main"]}
        (folder / "bin").mkdir()
        for name, command in commands.items():
            (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
            (folder / "bin" / name).chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "KUBECONFIG": str(control_plane.kubeconfig),
        }

    def types(self, script: str) -> str:
        """What comes of it, errors too."""
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout


async def test_nothing_is_left_that_waits_for_healthd(
    control_plane: ControlPlane, simulated_nodes: SimulatedNodes, tmp_path: Path
) -> None:
    desk = Desk(control_plane, tmp_path)
    _, copy, apply = INSTALL.scripts("Install")
    desk.types(copy)
    desk.types(apply.splitlines()[0])
    bad, spare = simulated_nodes.add(2)
    hold_free(control_plane, spare)
    namespace = control_plane.new_namespace()
    for path, body in stopped(namespace):
        control_plane.api.create(path, body)
    async with as_holder_of(control_plane, token_of_agent(control_plane, bad)) as of_agent:
        await break_gpu(of_agent, bad)

    shown, *rest = INSTALL.scripts("Uninstall")
    said = [desk.types(shown.replace("repair NODE", f"repair {bad}"))]
    with deleted_soon(control_plane):
        said += [desk.types(script) for script in rest]

    assert f"{bad}: " in said[0], said
    await_no_trace(control_plane, said)
    core = f"/api/v1/namespaces/{namespace}/pods"
    fenced, gated = (control_plane.api.get(f"{core}/{name}") for name in ("fenced", "gated"))
    assert fenced["metadata"]["finalizers"] == ["example.com/other"]
    assert not gated["spec"].get("schedulingGates")
    job = control_plane.api.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/llama")
    ranks = control_plane.api.get(f"/apis/apps/v1/namespaces/{namespace}/statefulsets/gemma")
    assert (job["spec"]["suspend"], ranks["spec"]["replicas"]) == (False, 3)


def await_no_trace(control_plane: ControlPlane, said: list[str]) -> None:
    """On no node is a mark of healthd's, and nothing of its installation is there."""
    for node in control_plane.api.get("/api/v1/nodes")["items"]:
        conditions = [each["type"] for each in node["status"].get("conditions", [])]
        assert "healthd.dev" not in str([node["metadata"], node["spec"]]).replace("lab.healthd.dev", ""), said
        assert not {"AcceleratorHealthy", "FabricHealthy"} & set(conditions), said
    wait_until("healthd is gone", lambda: not control_plane.has("/api/v1/namespaces/healthd-system"), limit=PATIENCE)
    left = control_plane.kubectl("get", KINDS, "-o", "name")
    assert "healthd" not in left, said


def stopped(namespace: str) -> list[tuple[str, Json]]:
    """Gangs in the middle of a recovery, and pods that only healthd lets go."""
    notes = {"healthd.dev/restart": "enabled", "healthd.dev/stopped-by": "a-recovery"}
    job = a_job(namespace)
    job["metadata"]["annotations"] = notes
    job["spec"]["suspend"] = True
    template = {"metadata": {"labels": {"app": "gemma"}}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    ranks = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "gemma", "annotations": {**notes, "healthd.dev/replicas": "3"}},
        "spec": {
            "replicas": 0,
            "serviceName": "gemma",
            "selector": {"matchLabels": {"app": "gemma"}},
            "template": template,
        },
    }
    pod: Json = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
    fenced = {"name": "fenced", "finalizers": ["healthd.dev/fence", "example.com/other"]}
    gate = {"schedulingGates": [{"name": "healthd.dev/gang"}]}
    return [
        (f"/apis/batch/v1/namespaces/{namespace}/jobs", job),
        (f"/apis/apps/v1/namespaces/{namespace}/statefulsets", ranks),
        (f"/api/v1/namespaces/{namespace}/pods", {**pod, "metadata": fenced}),
        (
            f"/api/v1/namespaces/{namespace}/pods",
            {**pod, "metadata": {"name": "gated"}, "spec": {**pod["spec"], **gate}},
        ),
    ]
