"""The component `hang-evidence` on a real kubelet: its rights are enough for its answers, and it has no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.deploy.accounts import SYSTEM
from tests.deploy.kustomized import rendered
from tests.deploy.manifests import DEPLOY, ROOT
from tests.deploy.test_on_a_real_node import PATIENCE, controllers, processes, run_in
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until
from tests.lab.real.nodes import RealNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE = 1 << 2, 1 << 19
ASK = (
    "import json; from healthd.agent.pod_witness import ask_processes; "
    "peers = lambda one: [each.remote for each in one.network.connections] if one.network else []; "
    "answers = ask_processes(%r).items(); "
    "print(json.dumps({uid: [one.state, one.name, peers(one)] for uid, one in answers}))"
)


ASK_TIMES = (
    "import json; from healthd.agent.pod_witness import AskRankTimes; "
    "print(json.dumps([[one.number, one.ran] for one in AskRankTimes()([%r]).get(%r, [])]))"
)
LAUNCHER = """
import os, subprocess, sys
rank = "import time\\nwhile True: sum(range(10_000)); time.sleep(0.01)"
ranks = [subprocess.Popen([sys.executable, "-c", rank], env={**os.environ, "RANK": str(n)}) for n in (8, 9, 10)]
ranks[0].wait()
"""
"""It starts three ranks, as torchrun does."""


@pytest.fixture(scope="module")
def real_node_count() -> int:
    """What is shown here, one node shows."""
    return 1


@pytest.fixture(scope="module")
def pods(
    control_plane: ControlPlane, real_nodes: RealNodes, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Json]:
    """The pods of agent and component, by the name of their container, once both and the controllers are ready."""
    del real_nodes
    control_plane.apply(rendered(control_plane, overlay(tmp_path_factory.mktemp("overlay"))))
    apps = f"/apis/apps/v1/namespaces/{SYSTEM}"

    def are_ready() -> bool:
        sets = [control_plane.api.get(f"{apps}/daemonsets/healthd-{name}") for name in ("agent", "hang-evidence")]
        made = control_plane.api.get(f"{apps}/deployments/healthd-controller")
        return all(one["status"].get("numberReady") == 1 for one in sets) and bool(
            made["status"].get("availableReplicas") == 2
        )

    wait_until("ready pods", are_ready, limit=PATIENCE)
    return {
        "agent": pod_of(control_plane, "app.kubernetes.io/component=agent"),
        "hang-evidence": pod_of(control_plane, "app.kubernetes.io/name=healthd-hang-evidence"),
    }


def overlay(folder: Path) -> Path:
    """The manifests with the image of the lab, and the component with the same image."""
    (folder / "ours").symlink_to(ROOT / "tests" / "lab" / "deploy")
    (folder / "components").symlink_to(DEPLOY / "components")
    own = folder / "own"
    own.mkdir()
    lines = {
        "resources": ["../ours"],
        "components": ["../components/hang-evidence"],
        "images": [{"name": "healthd", "newName": "localhost/healthd", "newTag": "lab"}],
    }
    (own / "kustomization.yaml").write_text(yaml.safe_dump(lines))
    return own


@contextmanager
def a_running_pod(control_plane: ControlPlane, spec: Json) -> Iterator[Json]:
    """
    A new pod of a user, once its container runs; deleted at the end. Its name is the API server's, so a second try may
    make another one at once.
    """
    all_pods = "/api/v1/namespaces/default/pods"
    made = control_plane.api.create(all_pods, {"metadata": {"generateName": "ranks-"}, "spec": spec})
    path = f"{all_pods}/{made['metadata']['name']}"
    try:
        wait_until(
            "a running pod",
            lambda: control_plane.api.get(path)["status"]["phase"] == "Running",
            limit=PATIENCE,
        )
        yield made
    finally:
        control_plane.api.delete(path)


def pod_of(control_plane: ControlPlane, labels: str) -> Json:
    (pod,) = control_plane.api.get(f"/api/v1/namespaces/{SYSTEM}/pods?labelSelector={labels}")["items"]
    found: Json = pod
    return found


def test_the_agent_learns_what_the_processes_of_other_pods_do(
    control_plane: ControlPlane, pods: dict[str, Json]
) -> None:
    uids = sorted(pod["metadata"]["uid"] for pod in controllers(control_plane))
    found = json.loads(run_in(control_plane, pods["agent"], "agent", ASK % uids))

    assert sorted(found) == uids
    assert {state for state, _, _ in found.values()} <= {"sleeping", "running"}
    assert all(name for _, name, _ in found.values())
    assert all(peers for _, _, peers in found.values()), "each is connected with the API server"


def test_the_agent_learns_how_long_the_ranks_of_a_users_pod_ran(
    control_plane: ControlPlane, pods: dict[str, Json]
) -> None:
    container = {
        "name": "ranks",
        "image": "localhost/healthd:lab",
        "command": ["python3", "-c", LAUNCHER],
        "securityContext": {"runAsUser": 12345},
    }
    found: list[tuple[int, float]] = []

    with a_running_pod(control_plane, {"containers": [container]}) as pod:
        uid = pod["metadata"]["uid"]

        def are_known() -> bool:
            answered = run_in(control_plane, pods["agent"], "agent", ASK_TIMES % (uid, uid))
            found[:] = json.loads(answered.splitlines()[-1])  # on a busy machine it says first that none came in time
            return len(found) == 3

        wait_until("the times of three ranks", are_known, limit=PATIENCE)

    assert [number for number, _ in found] == [8, 9, 10]
    assert all(ran > 0 for _, ran in found)


def test_root_in_its_own_container_gets_no_answer(control_plane: ControlPlane, pods: dict[str, Json]) -> None:
    uids = [pod["metadata"]["uid"] for pod in controllers(control_plane)]
    *logged, answer = run_in(control_plane, pods["hang-evidence"], "hang-evidence", ASK % uids).splitlines()

    assert answer == "{}"
    assert ["hang_evidence.no_answer" in line for line in logged] == [True]


def test_it_has_two_capabilities_and_no_others(real_nodes: RealNodes, pods: dict[str, Json]) -> None:
    found = processes(real_nodes, pods["hang-evidence"])

    assert found
    for each in found:
        assert each["CapEff"] == each["CapBnd"] == CAP_DAC_READ_SEARCH | CAP_SYS_PTRACE
        assert (each["CapAmb"], each["NoNewPrivs"], each["Seccomp"]) == (0, 1, 2)


def test_it_has_no_token(control_plane: ControlPlane, pods: dict[str, Json]) -> None:
    asked = "import os; print(os.path.exists('/var/run/secrets/kubernetes.io/serviceaccount/token'))"

    assert run_in(control_plane, pods["hang-evidence"], "hang-evidence", asked) == "False"


def test_the_agent_gets_no_right_by_it(real_nodes: RealNodes, pods: dict[str, Json]) -> None:
    found = [one for one in processes(real_nodes, pods["agent"]) if one["Uid"] == 65532]

    assert found
    assert all(one["CapEff"] == one["CapPrm"] == one["CapBnd"] == 0 for one in found)
