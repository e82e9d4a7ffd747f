"""The shipped manifests as they are, from inside their real pods: what a broken-into agent could do, and its weight."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy.manifests import ROOT
from tests.kubernetes.real.installation import SYSTEM, Installation
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until
from tests.lab.real.nodes import RealNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

AGENT = 65532
TOKEN = "var/run/secrets/kubernetes.io/serviceaccount/token"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
HEALTHS = "/apis/healthd.dev/v1alpha1/nodehealths"
GROUPS = "/host/sys/fs/cgroup/"
SLOT = "healthd-quarantine-cluster-0"
LIGHT = 45.0
"""MB that the whole pod of an agent may weigh, but for the child that asks NVML."""
_MAPPING = (
    r"^[0-9a-f]+-[0-9a-f]+ \S+ (?P<offset>\S+) \S+ \d+ *(?P<file>[^\n]*)\n"
    r".*?^Rss: +(?P<rss>\d+) kB.*?^Anonymous: +(?P<anonymous>\d+) kB"
)
"""In /proc/…/smaps."""


@dataclass(frozen=True)
class Inside:
    """The pod of an agent, from within its machine."""

    control_plane: ControlPlane
    node: str
    other: str
    pid: int
    """Of the agent's process."""
    opener: int

    @property
    def root(self) -> Path:
        """What the agent sees as its root."""
        return Path(f"/proc/{self.pid}/root")

    def tries(self, method: str, path: str, body: Json | None = None) -> tuple[int, str]:
        """What the API server answers to the token that the kubelet mounted into the agent."""
        api = self.control_plane.api_as((self.root / TOKEN).read_text())
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        status, raw = api.raw(method, path, _text(body), {"Content-Type": kind})
        return status, raw.decode(errors="replace")


@pytest.fixture(scope="module")
def real_node_count() -> int:
    """The agent's own, and another one."""
    return 2


@pytest.fixture(scope="module")
def inside(control_plane: ControlPlane, real_nodes: RealNodes) -> Inside:
    """The agent of the first node."""
    installation = Installation(control_plane, real_nodes, overlay=ROOT / "tests" / "lab" / "deploy")
    installation.roll_out()
    node, other = real_nodes.nodes
    (pod,) = installation.pods("agent", node.name)
    users = {pid: status(pid)["Uid"] for pid in node.processes(pod["metadata"]["uid"])}
    (agent,) = [pid for pid, user in users.items() if user == AGENT]
    (opener,) = [pid for pid, user in users.items() if user != AGENT]
    taint = {"spec": {"taints": [{"key": "example.com/theirs", "effect": "NoSchedule"}]}}
    control_plane.api.patch(f"/api/v1/nodes/{node.name}", taint)
    control_plane.api.create(LEASES, a_slot(other.name))
    found = Inside(control_plane, node.name, other.name, agent, opener)
    wait_until("the policies at work", lambda: found.tries("DELETE", f"{LEASES}/{SLOT}?dryRun=All")[0] == 403, limit=30)
    return found


def a_slot(node: str) -> Json:
    """A slot of the budget that *node* holds."""
    meta = {"name": SLOT, "labels": {"healthd.dev/node": node}}
    spec = {"holderIdentity": node}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


REFUSED: dict[str, tuple[str, str, Json | None, str]] = {
    "another node's cordon": (
        "PATCH",
        "/api/v1/nodes/{other}",
        {"spec": {"unschedulable": True}},
        "the agent on node '{node}' may change that node alone",
    ),
    "another node's report": (
        "PATCH",
        HEALTHS + "/{other}/status",
        {"status": {"verdict": "unhealthy"}},
        "the agent on node '{node}' may write the NodeHealth of that node alone",
    ),
    "a foreign taint taken off": (
        "PATCH",
        "/api/v1/nodes/{node}",
        {"spec": {"taints": None}},
        "of the taints of its node an agent may change healthd.dev/quarantined alone",
    ),
    "another node's slot given back": (
        "DELETE",
        f"{LEASES}/{SLOT}",
        None,
        "the agent on node '{node}' may take and give back slots of the budget for that node alone",
    ),
    "a secret": ("GET", f"/api/v1/namespaces/{SYSTEM}/secrets/any", None, "cannot get resource"),
    "a pod deleted": ("DELETE", f"/api/v1/namespaces/{SYSTEM}/pods/any", None, "cannot delete resource"),
}
"""For each a request, and words of the refusal."""


@pytest.mark.parametrize("what", REFUSED)
def test_the_token_in_the_pod_of_an_agent_is_refused(inside: Inside, what: str) -> None:
    method, path, body, words = REFUSED[what]
    places = {"node": inside.node, "other": inside.other}

    code, said = inside.tries(method, path.format_map(places), body)

    assert code == 403
    assert words.format_map(places) in said


def test_the_same_token_may_cordon_its_own_node(inside: Inside) -> None:
    path = f"/api/v1/nodes/{inside.node}?dryRun=All"

    assert inside.tries("PATCH", path, {"spec": {"unschedulable": True}})[0] == 200


def test_the_agent_has_no_right_left_that_it_could_lose(inside: Inside) -> None:
    found = status(inside.pid)

    assert [found[right] for right in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")] == [0] * 5
    assert (found["Uid"], found["NoNewPrivs"], found["Seccomp"]) == (AGENT, 1, 2)


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
    command = [
        "nsenter",
        f"--target={inside.pid}",
        "--mount",
        f"--setuid={AGENT}",
        f"--setgid={AGENT}",
        "python3",
        "-c",
    ]

    found = subprocess.run([*command, tried], capture_output=True, text=True, check=True).stdout

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


def weight(*pids: int) -> float:
    """
    MB of memory that processes keep, each page of a file counted once.

    This is their PSS on a machine where nobody else has the same files open, as other pods of healthd have here.
    """
    own = 0
    of_files: dict[str, int] = {}
    for pid in pids:
        for where, rss, anonymous in mappings(pid):
            own += anonymous
            of_files[where] = max(of_files.get(where, 0), rss - anonymous)
    return (own + sum(of_files.values())) / 1024


def mappings(pid: int) -> Iterator[tuple[str, int, int]]:
    """Of each mapping of a process: the place in a file that it shows, and its kilobytes: all, and those of no file."""
    smaps = Path(f"/proc/{pid}/smaps").read_text()
    for found in re.finditer(_MAPPING, smaps, re.MULTILINE | re.DOTALL):
        yield f"{found['file']} {found['offset']}", int(found["rss"]), int(found["anonymous"])


def _text(body: Json | None) -> str | None:
    return None if body is None else json.dumps(body)
