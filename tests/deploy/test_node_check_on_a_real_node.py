"""
The pod by which healthd checks a node, on a real kubelet: the shipped controller makes it, under the shipped policies.

The driver of a GPU asks for the end of all work, and is dead then. healthd checks the node at once; the check does not
pass, and a reboot is asked for. The node really boots, and has its driver again. The next check passes, and the node is
back. The driver's libraries are stand-ins; all else of the check is what is shipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
import yaml

from healthd.core.api import ANNOTATION_QUARANTINE, ANNOTATION_REPAIRED, TAINT_QUARANTINED
from healthd.core.api.names import LABEL_PROBATION
from healthd.core.node.check_pods import NAMESPACE
from healthd.core.remediation.check_summary import CheckSummary
from tests import quick_yaml
from tests.deploy.accounts import SYSTEM
from tests.deploy.gpu_runtime import HANDLER, RUNTIME_CLASS, GpuRuntime
from tests.deploy.manifests import DEPLOY, ROOT
from tests.deploy.test_on_a_real_node import rights_of
from tests.kernel_log import Unwritable, kernel_log
from tests.kubernetes.real.installation import Installation
from tests.lab.api import ApiError, Json
from tests.lab.control_plane import ControlPlane
from tests.lab.fixtures import CANNOT
from tests.lab.programs import LabError, wait_until
from tests.lab.real import image
from tests.lab.real.node import Hardware, RealNode
from tests.lab.real.nodes import RealNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.kmsg]

PATIENCE = 120
GPUS = 2
USER = 65532
PRODUCT, COUNT = "nvidia.com/gpu.product", "nvidia.com/gpu.count"
ASKED = "example.com/reboot"
ADVICE = "NVRM: Xid ({}): 154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)"
"""After it nothing has to be done to the node but a check."""
WAITS = f"the check waits for {GPUS} nvidia.com/gpu; the Node offers 0"
"""After a boot, until its device plugin has registered."""
HAND: Json = {
    "name": "lab-reboot",
    "rung": "reboot",
    "verb": "patch",
    "body": {"metadata": {"annotations": {ASKED: "${attempt}"}}},
}
CONFIGURATION: Json = {
    "quarantine": {"give_back": "repaired"},
    "remediation": {
        "at_once": 1,
        "hands": [HAND["name"]],
        "hands_file": "/etc/healthd/hands.yaml",
        "check_by_pod": True,
        "check_runtime_class": HANDLER,
    },
}
_INSTALLATION = ROOT / "tests" / "kubernetes" / "real" / "deploy"


@pytest.fixture(scope="module")
def real_node_count() -> int:
    """The node with the GPUs, and one for the controllers: nothing may run on a node that is checked."""
    return 2


@pytest.fixture(scope="module")
def real_hardware() -> Hardware:
    """As GPU feature discovery labels it."""
    return Hardware(gpus=GPUS, labels={PRODUCT: "NVIDIA-H100-80GB-HBM3", COUNT: str(GPUS)})


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What the cluster shows at a time."""

    node: Json
    record: Json


@dataclass(frozen=True, kw_only=True)
class Inside:
    """A process of a check, as the kernel of its node shows it."""

    rights: Mapping[str, int]
    mounts: Mapping[str, str]
    """The options of each mount, by its place."""


@dataclass
class Story:
    """What happens to one node, and what is seen of its checks meanwhile."""

    control_plane: ControlPlane
    installation: Installation
    node: RealNode
    pods: dict[str, Json] = field(default_factory=dict)
    """The checks by their names, in the order in which they came, each as it was seen last."""
    processes: dict[str, list[Inside]] = field(default_factory=dict)
    """By the name of the pod."""
    said: list[str] = field(default_factory=list)
    """What stood in the record, in this order."""
    out: Moment = field(init=False)
    """After the check that the node did not pass."""
    back: Moment = field(init=False)

    def until(self, what: str, holds: Callable[[], object]) -> None:
        """Return when it is seen. Raises LabError."""

        def seen() -> object:
            self._look()
            return holds()

        try:
            wait_until(what, seen, limit=PATIENCE)
        except LabError as error:
            ends = {name: pod["status"] for name, pod in self.pods.items()}
            raise LabError(f"{error}; its record said {self.said}; its checks: {ends}") from None

    def now(self) -> Moment:
        """The node and its record."""
        return Moment(node=self._get(f"/api/v1/nodes/{self.node.name}"), record=self._get(self._record))

    def notes(self) -> Json:
        """The annotations of the node."""
        notes: Json = self.now().node["metadata"].get("annotations", {})
        return notes

    def checks(self) -> list[Json]:
        """The pods that check nodes now."""
        found: list[Json] = self._get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return found

    def slots(self) -> list[str]:
        """The slots of quarantine and repair that are taken."""
        leases = self._get(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases")["items"]
        names = [str(lease["metadata"]["name"]) for lease in leases]
        return [name for name in names if name.startswith(("healthd-quarantine-", "healthd-remediation-"))]

    @property
    def first(self) -> Json:
        """The check of the node without its driver."""
        return next(iter(self.pods.values()))

    @property
    def second(self) -> Json:
        """The check after the reboot."""
        return list(self.pods.values())[1]

    @property
    def _record(self) -> str:
        return f"/apis/healthd.dev/v1alpha1/namespaces/{SYSTEM}/noderemediations/{self.node.name}"

    def _look(self) -> None:
        for pod in self.checks():
            name = pod["metadata"]["name"]
            self.pods[name] = pod
            for pid in self.node.processes(pod["metadata"]["uid"]):
                with suppress(OSError):  # it ended meanwhile
                    if b"healthd" in Path(f"/proc/{pid}/cmdline").read_bytes():  # else it is runc, which becomes it
                        self.processes.setdefault(name, []).append(Inside(rights=rights_of(pid), mounts=mounts_of(pid)))
        message = self.now().record.get("status", {}).get("message", "")
        if message and self.said[-1:] != [message]:
            self.said.append(message)

    def _get(self, path: str) -> Json:
        try:
            return self.control_plane.api.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            return {}


@pytest.fixture(scope="module")
def story(control_plane: ControlPlane, real_nodes: RealNodes, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The whole story, once."""
    node = real_nodes[0]
    runtime = GpuRuntime(node, at=real_nodes.shared / "driver", folder=tmp_path_factory.mktemp("driver"))
    runtime.install()
    control_plane.api.create("/apis/node.k8s.io/v1/runtimeclasses", RUNTIME_CLASS)
    labels = {"nvidia.com/gpu.present": "true"}  # keeps the controllers on the other node
    control_plane.api.patch(f"/api/v1/nodes/{node.name}", {"metadata": {"labels": labels}})
    installation = Installation(control_plane, real_nodes, overlay=overlay(tmp_path_factory.mktemp("overlay")))
    installation.roll_out()
    story = Story(control_plane, installation, node)

    advise(installation.devices[node.name])
    story.until("a quarantine", lambda: ANNOTATION_QUARANTINE in story.notes())
    story.until("a reboot asked for", lambda: ASKED in story.notes())
    story.out = story.now()

    runtime.load_driver(GPUS)
    runtime.offer(control_plane, 0)
    node.reboot()
    story.until("a check that waits for the GPUs", lambda: WAITS in story.said)
    node.wait_until_ready()
    story.until("the end of the quarantine", lambda: ANNOTATION_QUARANTINE not in story.notes())
    story.until("its return on record", lambda: "returnedAt" in story.now().record["status"])
    story.until("all taken away", lambda: not story.checks() and not story.slots() and ASKED not in story.notes())
    story.back = story.now()
    return story


def overlay(folder: Path) -> Path:
    """The installation of the lab with the components, a hand of the site, and the right that this hand needs."""
    (folder / "ours").symlink_to(_INSTALLATION)
    (folder / "components").symlink_to(DEPLOY / "components")
    own = folder / "own"
    own.mkdir()
    usual = quick_yaml.load((_INSTALLATION / "healthd.yaml").read_text())
    rule = {"apiGroups": ["healthd.dev"], "resources": ["nodemarks"], "resourceNames": [ASKED], "verbs": ["write"]}
    api, kind = "rbac.authorization.k8s.io", "ClusterRole"
    account = {"kind": "ServiceAccount", "name": "healthd-controller", "namespace": SYSTEM}
    meta = {"apiVersion": f"{api}/v1", "metadata": {"name": HAND["name"]}}
    role = {**meta, "kind": kind, "rules": [rule]}
    binding = {
        **meta,
        "kind": f"{kind}Binding",
        "roleRef": {"apiGroup": api, "kind": kind, "name": HAND["name"]},
        "subjects": [account],
    }
    files = {"healthd.yaml": usual | CONFIGURATION, "hands.yaml": [HAND]}
    config = {"name": "healthd-config", "namespace": SYSTEM, "behavior": "replace", "files": list(files)}
    lines = {
        "resources": ["../ours", "rights.yaml"],
        "components": ["../components/remediation", "../components/node-check"],
        "configMapGenerator": [config],
    }
    for name, content in {**files, "kustomization.yaml": lines}.items():
        (own / name).write_text(yaml.safe_dump(content))
    (own / "rights.yaml").write_text(quick_yaml.dump_all([role, binding]))
    return own


def advise(device: str) -> None:
    """The driver of *device* says what it wants, in the kernel log of this machine."""
    try:
        with kernel_log() as log:
            log.write(ADVICE.format(device))
    except Unwritable as why:
        pytest.skip(f"{CANNOT}: {why}")


def mounts_of(pid: int) -> dict[str, str]:
    """The options of each mount that a process has, by its place."""
    lines = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    return {words[4]: words[5] for words in lines}


def time_of(text: str) -> datetime:
    """A time as the API server has it."""
    return datetime.fromisoformat(text)


def left_by(pod: Json) -> tuple[int, CheckSummary]:
    """The exit code of a check, and its result, as the kubelet has read it."""
    (container,) = pod["status"]["containerStatuses"]
    end = container["state"]["terminated"]
    return end["exitCode"], msgspec.json.decode(end["message"], type=CheckSummary)


def test_without_the_driver_the_check_says_that_no_gpu_answers(story: Story) -> None:
    code, result = left_by(story.first)

    assert (code, result.result, result.gpus, result.expected_gpus) == (3, "fail", 0, GPUS)
    assert result.failed["inventory"].startswith(f"0 GPUs answer, and {GPUS} are expected; NVML cannot be asked: ")


def test_a_node_that_does_not_pass_stays_out_and_its_record_says_why(story: Story) -> None:
    status = story.out.record["status"]

    assert story.out.node["spec"]["unschedulable"]
    assert TAINT_QUARANTINED in taints(story.out.node)
    assert status["phase"] == "Remediating"
    checked, reboot = status["attempts"]
    assert (checked["rung"], checked["outcome"]) == ("none", "no_help")
    assert checked["message"].startswith("the check did not pass: inventory: 0 GPUs answer")
    assert (reboot["rung"], reboot.get("outcome")) == ("reboot", None)
    assert reboot["why"].startswith("none did not help: the check did not pass: inventory: 0 GPUs answer")


def test_after_its_reboot_the_check_waits_for_the_gpus(story: Story) -> None:
    assert story.said.index(WAITS) > story.said.index("waits for lab-reboot to do reboot")


def test_with_the_driver_the_check_passes_in_the_new_boot(story: Story) -> None:
    code, result = left_by(story.second)

    assert (code, result.result, result.gpus, result.expected_gpus) == (0, "pass", GPUS, GPUS)
    assert {"inventory", "pcie-bandwidth", "gpu-memory"} <= set(result.passed)
    assert result.boot_id == story.node.boot_id


def test_a_node_that_passes_is_back_in_service_and_watched(story: Story) -> None:
    node, status = story.back.node, story.back.record["status"]

    assert "unschedulable" not in node["spec"]
    assert TAINT_QUARANTINED not in taints(node)
    assert node["metadata"]["labels"][LABEL_PROBATION] == "true"
    assert time_of(node["metadata"]["annotations"][ANNOTATION_REPAIRED]) == time_of(status["checkedAt"])
    assert (status["phase"], status["message"]) == ("Probation", "it is back in service")
    assert status["attempts"][-1]["outcome"] == "helped"
    assert status["attempts"][-1]["proof"].startswith("it booted since (")


def test_each_check_is_a_pod_of_its_own_by_the_controllers_image_and_asks_for_all_gpus(story: Story) -> None:
    assert len(story.pods) == 2
    for pod in (story.first, story.second):
        (container,) = pod["spec"]["containers"]
        assert (container["image"], pod["spec"]["runtimeClassName"]) == (image.NAME, HANDLER)
        assert container["resources"]["limits"]["nvidia.com/gpu"] == str(GPUS)


def test_its_processes_have_no_right_at_all(story: Story) -> None:
    found = [one.rights for name in story.pods for one in story.processes[name]]

    assert set(story.processes) == set(story.pods)
    for each in found:
        assert (each["Uid"], each["Gid"], each["NoNewPrivs"], each["Seccomp"]) == (USER, USER, 1, 2)
        assert [each[right] for right in ("CapPrm", "CapEff", "CapBnd", "CapAmb", "CapInh")] == [0] * 5


def test_it_has_no_token_and_its_root_is_read_only(story: Story) -> None:
    found = [one.mounts for name in story.pods for one in story.processes[name]]

    assert set(story.processes) == set(story.pods)
    for each in found:
        assert "ro" in each["/"].split(",")
        assert "rw" in each["/dev/termination-log"].split(",")
        assert not [place for place in each if "secrets" in place]


def taints(node: Json) -> set[str]:
    return {taint["key"] for taint in node["spec"].get("taints", [])}
