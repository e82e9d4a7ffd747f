"""The shipped manifests on a real kubelet: everything comes up, and every process has the rights that it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from healthd.core.api.model import Verdict
from tests.deploy.accounts import SYSTEM
from tests.deploy.kustomized import rendered
from tests.deploy.manifests import ROOT
from tests.lab.api import ApiError, Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until
from tests.lab.real.nodes import RealNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PATIENCE = 120
AGENT = 65532
NOBODY_UID = 65534
CAP_SYSLOG = 1 << 34


@pytest.fixture(scope="module")
def real_node_count() -> int:
    """What is shown here, one node shows."""
    return 1


@pytest.fixture(scope="module")
def rolled_out(control_plane: ControlPlane, real_nodes: RealNodes) -> Json:
    """The agent's pod, once the agent and both controllers are ready."""
    control_plane.apply(rendered(control_plane, ROOT / "tests" / "lab" / "deploy"))
    apps = f"/apis/apps/v1/namespaces/{SYSTEM}"

    def agent_is_ready() -> bool:
        status = control_plane.api.get(f"{apps}/daemonsets/healthd-agent")["status"]
        return bool(status.get("numberReady") == 1)

    def controllers_are_ready() -> bool:
        status = control_plane.api.get(f"{apps}/deployments/healthd-controller")["status"]
        return bool(status.get("availableReplicas") == 2)

    wait_until("a ready agent", agent_is_ready, limit=PATIENCE)
    wait_until("two ready controllers", controllers_are_ready, limit=PATIENCE)
    path = f"/api/v1/namespaces/{SYSTEM}/pods?labelSelector=app.kubernetes.io/component=agent"
    pod: Json = control_plane.api.get(path)["items"][0]
    return pod


def test_the_agent_runs_as_an_ordinary_user(real_nodes: RealNodes, rolled_out: Json) -> None:
    found = [one for one in processes(real_nodes, rolled_out) if one["Uid"] == AGENT]  # a probe may run beside it

    assert found
    for each in found:
        assert [each[right] for right in ("CapPrm", "CapEff", "CapBnd", "CapAmb", "CapInh")] == [0] * 5
        assert (each["NoNewPrivs"], each["Seccomp"]) == (1, 2)


def test_the_opener_has_given_up_all_but_the_kernel_log(real_nodes: RealNodes, rolled_out: Json) -> None:
    (opener,) = [one for one in processes(real_nodes, rolled_out) if one["Uid"] != AGENT]

    assert opener["Uid"] == NOBODY_UID
    assert opener["CapEff"] | opener["CapPrm"] | opener["CapBnd"] in (0, CAP_SYSLOG)
    assert opener["NoNewPrivs"] == 1


def test_only_the_agent_has_the_token(control_plane: ControlPlane, rolled_out: Json) -> None:
    asked = "import os; print(os.path.exists('/var/run/secrets/kubernetes.io/serviceaccount/token'))"

    answers = {name: run_in(control_plane, rolled_out, name, asked) for name in ("opener", "agent")}

    assert answers == {"opener": "False", "agent": "True"}


def test_the_agent_can_write_nothing_on_its_node(control_plane: ControlPlane, rolled_out: Json) -> None:
    tried = "import os; print([p for p in ('/', '/host/sys/fs/cgroup', '/etc/healthd') if os.access(p, os.W_OK)])"

    assert run_in(control_plane, rolled_out, "agent", tried) == "[]"


def test_the_agent_sees_the_interfaces_of_its_node(control_plane: ControlPlane, rolled_out: Json) -> None:
    """A link from one folder that is mounted into another one works, and nothing there can be written."""
    nets = "import os; own, node = [set(os.listdir(p + '/class/net')) for p in ('/sys', '/host/sys')]"
    links = "print(own != node, all(os.path.isdir(f'/host/sys/class/net/{n}/statistics') for n in node))"
    refused = "import os; print(os.statvfs('/host/sys/devices').f_flag & os.ST_RDONLY)"

    assert run_in(control_plane, rolled_out, "agent", f"{nets}; {links}") == "True True"
    assert run_in(control_plane, rolled_out, "agent", refused) == "1"


def test_the_agent_reports_what_it_cannot_see(
    control_plane: ControlPlane, real_nodes: RealNodes, rolled_out: Json
) -> None:
    """The node offers GPUs, as a device plugin would have it, and has no NVML."""
    name = real_nodes[0].name
    path = f"/apis/healthd.dev/v1alpha1/nodehealths/{name}"

    def verdict() -> str | None:
        try:
            return str(control_plane.api.get(path)["status"]["verdict"])
        except ApiError:
            return None

    wait_until("a report", lambda: verdict() == Verdict.UNKNOWN, limit=PATIENCE)
    node = control_plane.api.get(f"/api/v1/nodes/{name}")
    said = {one["type"]: (one["status"], one["reason"]) for one in node["status"]["conditions"]}

    assert said["AcceleratorHealthy"] == ("Unknown", "NvmlUnreadable")
    assert said["FabricHealthy"][0] == "True"
    assert "unschedulable" not in node["spec"]


def test_checksums_are_computed_by_compiled_code(control_plane: ControlPlane, rolled_out: Json) -> None:
    asked = "import google_crc32c; print(google_crc32c.implementation)"

    assert run_in(control_plane, rolled_out, "agent", asked) == "c"


def test_one_controller_leads(control_plane: ControlPlane, rolled_out: Json) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/healthd-controller"
    pods = controllers(control_plane)

    holder = control_plane.api.get(path)["spec"]["holderIdentity"]

    assert [pod["metadata"]["name"] for pod in pods if holder.startswith(pod["metadata"]["name"])]


def test_the_agent_sees_which_pods_have_processes(
    control_plane: ControlPlane, real_nodes: RealNodes, rolled_out: Json
) -> None:
    uids = {pod["metadata"]["uid"] for pod in controllers(control_plane)}
    path = f"/apis/healthd.dev/v1alpha1/nodehealths/{real_nodes[0].name}"

    def seen() -> set[str]:
        return set(control_plane.api.get(path)["status"].get("livePods", []))

    wait_until("the controllers' pods in the report", lambda: uids <= seen(), limit=PATIENCE)

    assert len(uids) == 2


def controllers(control_plane: ControlPlane) -> list[Json]:
    path = f"/api/v1/namespaces/{SYSTEM}/pods?labelSelector=app.kubernetes.io/component=controller"
    pods: list[Json] = control_plane.api.get(path)["items"]
    return pods


def processes(real_nodes: RealNodes, pod: Json) -> list[dict[str, int]]:
    """What the kernel says of each process of a pod: its user, its capabilities as bits, its confinement."""
    return [rights_of(pid) for pid in real_nodes[0].processes(pod["metadata"]["uid"])]


def rights_of(pid: int) -> dict[str, int]:
    """What the kernel says of one process. Raises OSError."""
    lines = [line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    values = {words[0].rstrip(":"): words[1] for words in lines if len(words) > 1}
    numbers = {name: int(values[name]) for name in ("Uid", "Gid", "NoNewPrivs", "Seccomp")}
    return numbers | {name: int(value, 16) for name, value in values.items() if name.startswith("Cap")}


def run_in(control_plane: ControlPlane, pod: Json, container: str, line: str) -> str:
    """What Python prints for *line* in a container."""
    name = pod["metadata"]["name"]
    words = ("exec", "--namespace", SYSTEM, name, "--container", container, "--", "python3", "-c", line)
    return control_plane.kubectl(*words).strip()
