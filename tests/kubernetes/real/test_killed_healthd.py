"""Parts of healthd are killed while they are needed most: there is one restart all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.core.api import ANNOTATION_QUARANTINE, LABEL_NODE
from healthd.local.demo.script import Script
from tests import quick_yaml
from tests.kubernetes.real.installation import SYSTEM
from tests.kubernetes.real.scenario import RANKS, RealStage
from tests.lab.api import Json

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.kmsg]

SCRIPT = Script(ranks=RANKS, steps=100_000, every=5, pace=0.1)
AGENT = "65532"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
NO_CORDON = [
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-cordon"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"], "operations": ["UPDATE"]}
                ]
            },
            "validations": [{"expression": "!object.spec.?unschedulable.orValue(false)", "message": "not now"}],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-cordon"},
        "spec": {"policyName": "no-cordon", "validationActions": ["Deny"]},
    },
]
"""While this stands no node can be cordoned, by anybody."""


@pytest.fixture
def bad(real_stage: RealStage) -> Iterator[str]:
    """The node that breaks in the scenario. It is repaired afterwards."""
    name = real_stage.installation.names[0]
    yield name
    repair = [sys.executable, "-m", "healthd.cli.main", "repair", name]
    subprocess.run([*repair, "--kubeconfig", str(real_stage.control_plane.kubeconfig)], check=True)
    real_stage.until("back in service", lambda: not real_stage.node(name)["spec"].get("unschedulable"))


def test_gang_is_restarted_once_though_the_opener_was_killed(real_stage: RealStage, bad: str) -> None:
    real_stage.play(SCRIPT)

    (opener,) = [pid for pid in agent_pod(real_stage, bad) if user_of(pid) != AGENT]
    os.kill(opener, signal.SIGKILL)
    real_stage.installation.break_gpu(bad)

    assert_restarted_once(real_stage, bad)


def test_gang_is_restarted_once_though_the_agent_was_killed_before_it_could_cordon(
    real_stage: RealStage, bad: str
) -> None:
    real_stage.play(SCRIPT)
    real_stage.control_plane.apply(quick_yaml.dump_all(NO_CORDON))
    real_stage.until("no cordon possible", lambda: not may_cordon(real_stage, bad))

    real_stage.installation.break_gpu(bad)
    real_stage.until("a slot of the budget taken", lambda: slots_of(real_stage, bad))
    (agent,) = [pid for pid in agent_pod(real_stage, bad) if user_of(pid) == AGENT]
    os.kill(agent, signal.SIGKILL)
    assert ANNOTATION_QUARANTINE not in real_stage.node(bad)["metadata"].get("annotations", {})
    real_stage.control_plane.kubectl(
        "delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "no-cordon"
    )

    assert_restarted_once(real_stage, bad)
    assert len(slots_of(real_stage, bad)) == 1


def test_gang_is_restarted_once_though_the_leader_was_killed_while_it_stopped_the_gang(
    real_stage: RealStage, bad: str
) -> None:
    real_stage.play(SCRIPT, deaf=True)

    real_stage.installation.break_gpu(bad)
    real_stage.until_phase("Stopping")
    leader = pod_of_leader(real_stage)
    processes = real_stage.real_node(leader["spec"]["nodeName"]).processes(leader["metadata"]["uid"])
    (controller,) = [process for process in processes if parent_of(process) not in processes]
    os.kill(controller, signal.SIGKILL)

    assert real_stage.recoveries()[0]["status"]["phase"] == "Stopping"
    assert_restarted_once(real_stage, bad)
    assert pod_of_leader(real_stage)["metadata"]["name"] != leader["metadata"]["name"]


def parent_of(process: int) -> int:
    """The pid of its parent: a controller has children that read checkpoints."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def assert_restarted_once(real_stage: RealStage, bad: str) -> None:
    """One recovery, one new attempt, every rank started once, and no two of them at a time."""
    recovery = real_stage.until_phase("Recovered")
    assert len(real_stage.recoveries()) == 1
    assert [attempt["number"] for attempt in recovery["status"]["attempts"]] == [1]
    assert real_stage.nodes_of(1) == set(real_stage.installation.names) - {bad}
    assert len(real_stage.lives()) == 2 * RANKS
    assert real_stage.overlaps == []


def agent_pod(real_stage: RealStage, node: str) -> set[int]:
    """The processes of the agent's pod."""
    (pod,) = real_stage.installation.pods("agent", node)
    return real_stage.real_node(node).processes(pod["metadata"]["uid"])


def user_of(pid: int) -> str:
    """The user of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Uid:"))


def pod_of_leader(real_stage: RealStage) -> Json:
    """The controller that holds the lease."""
    holder = real_stage.control_plane.api.get(f"{LEASES}/healthd-controller")["spec"]["holderIdentity"]
    pods = real_stage.installation.pods("controller")
    return next(pod for pod in pods if holder.startswith(pod["metadata"]["name"]))


def slots_of(real_stage: RealStage, node: str) -> list[Json]:
    """The slots of the budget that *node* holds."""
    found: list[Json] = real_stage.control_plane.api.get(f"{LEASES}?labelSelector={LABEL_NODE}={node}")["items"]
    return found


def may_cordon(real_stage: RealStage, node: str) -> bool:
    """Whether the API server would take it."""
    path = f"/api/v1/nodes/{node}?dryRun=All"
    kind = {"Content-Type": "application/merge-patch+json"}
    return real_stage.control_plane.api.raw("PATCH", path, '{"spec": {"unschedulable": true}}', kind)[0] == 200
