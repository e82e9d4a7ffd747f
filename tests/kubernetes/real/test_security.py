"""The shipped manifests as they are, from inside their real pods: what a broken-into agent could do, and its weight."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy.accounts import Request, answer, refuser
from tests.deploy.manifests import ROOT
from tests.kubernetes.real.installation import SYSTEM, Installation
from tests.kubernetes.real.memory_use import weight
from tests.kubernetes.real.stolen_token import AGENT, ATTEMPTS, CONTROLLER, LEASES, OF_KUBELET, SLOT, a_slot
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane, Options
from tests.lab.programs import wait_until
from tests.lab.real.node import RealNode
from tests.lab.real.nodes import RealNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

USER = 65532
TOKEN = "var/run/secrets/kubernetes.io/serviceaccount/token"
GROUPS = "/host/sys/fs/cgroup/"
LIGHT = 46.0
"""MB that the whole pod of an agent may weigh, but for the child that asks NVML."""
_ASKS = """
import ssl, sys, urllib.error, urllib.request
method, url, token = sys.argv[1:]
headers = {"Authorization": "Bearer " + open(token).read()} if token else {}
request = urllib.request.Request(url, method=method, headers=headers, data=b"" if method == "POST" else None)
try:
    with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=20) as answer:
        print(answer.status, answer.read().decode(errors="replace"))
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode(errors="replace"))
"""
_FINDS_TOKENS = """
import os
print(*{os.path.realpath(os.path.join(at, "token")) for at, _, files in os.walk("/") if "token" in files}, sep="\\n")
"""


@dataclass(frozen=True)
class Inside:
    """Pods of healthd, from within: the agent of a node and a controller."""

    control_plane: ControlPlane
    node: str
    other: str
    pids: Mapping[str, int]
    """Of the processes that have a token, by whose pod it is."""
    opener: int
    places: Mapping[str, str]
    """What the names in braces stand for."""
    kubelets: Sequence[str]
    """The addresses of both nodes."""
    api_server: str
    """As pods reach it."""

    @property
    def pid(self) -> int:
        """Of the agent's process."""
        return self.pids[AGENT]

    @property
    def root(self) -> Path:
        """What the agent sees as its root."""
        return Path(f"/proc/{self.pid}/root")

    def tries(self, who: str, request: Request) -> tuple[int, str]:
        """What the API server answers to the token that the kubelet mounted into a pod."""
        token = Path(f"/proc/{self.pids[who]}/root/{TOKEN}").read_text()
        method, path, body = request
        filled = json.loads(self._filled(json.dumps(body)))
        return answer(self.control_plane, token, (method, self._filled(path), filled))

    def asks(self, who: str, method: str, url: str, *, with_token: bool = True) -> tuple[int, str]:
        """What anybody answers who is asked from within a pod, by its user and through its network."""
        token = f"/{TOKEN}" if with_token else ""
        said = in_pod(self.pids[who], "python3", "-c", _ASKS, method, self._filled(url), token)
        code, _, message = said.partition(" ")
        return int(code), message

    def _filled(self, text: str) -> str:
        for name, value in self.places.items():
            text = text.replace(f"{{{name}}}", value)
        return text


def in_pod(pid: int, *command: str) -> str:
    """What a command prints that is run as the user of healthd, and sees what the process *pid* sees."""
    where = ["nsenter", f"--target={pid}", "--mount", "--net", "--pid", f"--setuid={USER}", f"--setgid={USER}"]
    return subprocess.run([*where, *command], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def real_node_count() -> int:
    """The agent's own, and another one."""
    return 2


@pytest.fixture(scope="module")
def control_plane_options() -> Options:
    """With kubelets that ask who may use their own port."""
    return Options(kubelets_ask=True)


@pytest.fixture(scope="module")
def inside(control_plane: ControlPlane, real_nodes: RealNodes) -> Inside:
    """The agent of the first node, and a controller."""
    installation = Installation(control_plane, real_nodes, overlay=ROOT / "tests" / "lab" / "deploy")
    installation.roll_out()
    node, other = real_nodes.nodes
    (agent,) = installation.pods("agent", node.name)
    controller, *_ = installation.pods("controller")
    users = users_in(node, agent)
    pids = {
        AGENT: min(pid for pid, user in users.items() if user == USER),
        CONTROLLER: min(pid for each in real_nodes.nodes for pid in users_in(each, controller)),
    }
    (opener,) = [pid for pid, user in users.items() if user != USER]
    taint = {"spec": {"taints": [{"key": "example.com/theirs", "effect": "NoSchedule"}]}}
    control_plane.api.patch(f"/api/v1/nodes/{node.name}", taint)
    control_plane.api.create(LEASES, a_slot(other.name))
    names = {"agent": agent["metadata"]["name"], "controller": controller["metadata"]["name"]}
    places = {"node": node.name, "other": other.name, **names}
    service = control_plane.api.get("/api/v1/namespaces/default/services/kubernetes")["spec"]["clusterIP"]
    kubelets = [each.address for each in real_nodes.nodes]
    found = Inside(control_plane, node.name, other.name, pids, opener, places, kubelets, service)
    slot: Request = ("DELETE", f"{LEASES}/{SLOT}?dryRun=All", None)
    wait_until("the policies at work", lambda: found.tries(AGENT, slot)[0] == 403, limit=30)
    return found


def users_in(node: RealNode, pod: Json) -> dict[int, int]:
    """The user of each process of a pod on a node."""
    return {pid: status(pid)["Uid"] for pid in node.processes(pod["metadata"]["uid"])}


CASES = [(who, what) for who, table in ATTEMPTS.items() for what in table]


@pytest.mark.parametrize(("who", "what"), CASES, ids=[f"{who}: {what}" for who, what in CASES])
def test_the_token_in_a_pod_of_healthd_is_refused(inside: Inside, who: str, what: str) -> None:
    request, outcome = ATTEMPTS[who][what]

    status, message = inside.tries(who, request)

    assert (status, refuser(message)) == (403, outcome), message


@pytest.mark.parametrize("what", OF_KUBELET)
@pytest.mark.parametrize("who", ATTEMPTS)
def test_no_kubelet_answers_to_the_token_in_a_pod_of_healthd(inside: Inside, who: str, what: str) -> None:
    method, path = OF_KUBELET[what]
    accounts = {AGENT: "healthd-agent", CONTROLLER: "healthd-controller"}
    asked = [f"https://{address}:10250{path}" for address in inside.kubelets]

    answers = [inside.asks(who, method, url) for url in asked]
    without = [inside.asks(who, method, url, with_token=False) for url in asked]

    assert [status for status, _ in answers] == [403, 403], answers
    assert all(f"user=system:serviceaccount:{SYSTEM}:{accounts[who]}," in said for _, said in answers), answers
    assert [status for status, _ in without] == [401, 401], without


@pytest.mark.parametrize("who", ATTEMPTS)
def test_a_pod_of_healthd_reaches_the_api_server_with_its_token_and_not_without(inside: Inside, who: str) -> None:
    url = f"https://{inside.api_server}/api/v1/nodes/{inside.node}"

    assert inside.asks(who, "GET", url)[0] == 200
    assert inside.asks(who, "GET", url, with_token=False)[0] in (401, 403)


@pytest.mark.parametrize("who", ATTEMPTS)
def test_a_pod_of_healthd_finds_no_token_but_its_own(inside: Inside, who: str) -> None:
    found = in_pod(inside.pids[who], "python3", "-c", _FINDS_TOKENS).split()
    own = in_pod(inside.pids[who], "readlink", "-f", f"/{TOKEN}").split()

    assert found == own


def test_the_agents_token_may_cordon_its_own_node(inside: Inside) -> None:
    cordon: Request = ("PATCH", "/api/v1/nodes/{node}?dryRun=All", {"spec": {"unschedulable": True}})

    assert inside.tries(AGENT, cordon)[0] == 200


def test_the_agent_has_no_right_left_that_it_could_lose(inside: Inside) -> None:
    found = status(inside.pid)

    assert [found[right] for right in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")] == [0] * 5
    assert (found["Uid"], found["NoNewPrivs"], found["Seccomp"]) == (USER, 1, 2)


def test_the_agent_has_no_kernel_log_of_its_own_and_reads_it_all_the_same(inside: Inside) -> None:
    opened = [str(link.readlink()) for link in Path(f"/proc/{inside.pid}/fd").iterdir()]

    assert not (inside.root / "dev/kmsg").exists()
    assert "/dev/kmsg" in opened


def test_nothing_but_the_socket_of_the_opener_is_mounted_for_the_agent_to_write(inside: Inside) -> None:
    written = {place for place, options in mounts(inside.pid) if "ro" not in options.split(",")}
    from_the_runtime = re.compile(r"/(dev|proc|sys)(/|$)|/etc/(hosts|hostname|resolv.conf)$")

    assert {place for place in written if not from_the_runtime.match(place) and not place.startswith(GROUPS)} == {
        "/run/healthd"
    }


def test_the_agent_can_move_nothing_between_the_control_groups_of_its_host(inside: Inside) -> None:
    # Their mount is read-only; the mounts below it only where the runtime can do that. Then their modes must do.
    tried = (
        f"import glob, os; print([p for p in glob.glob('{GROUPS}**/cgroup.procs', recursive=True) if os.access(p, 2)])"
    )

    found = in_pod(inside.pid, "python3", "-c", tried)

    assert found == "[]\n"
    assert dict(mounts(inside.pid))[GROUPS.rstrip("/")].startswith("ro")


def test_the_opener_sees_no_token(inside: Inside) -> None:
    assert (inside.root / TOKEN).exists()
    assert not Path(f"/proc/{inside.opener}/root/{TOKEN}").exists()
    assert "token" not in " ".join(place for place, _ in mounts(inside.opener))


def test_the_whole_pod_is_light(inside: Inside) -> None:
    assert weight(inside.pid, inside.opener) < LIGHT


def status(pid: int) -> dict[str, int]:
    """What the kernel says of a process: its user, its capabilities as bits, its confinement."""
    lines = [line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    values = {words[0].rstrip(":"): words[1] for words in lines if len(words) > 1}
    numbers = {name: int(values[name]) for name in ("Uid", "NoNewPrivs", "Seccomp")}
    return numbers | {name: int(value, 16) for name, value in values.items() if name.startswith("Cap")}


def mounts(pid: int) -> Iterator[tuple[str, str]]:
    """What is mounted for a process: where, and how."""
    for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
        words = line.split()
        yield words[4], words[5]
