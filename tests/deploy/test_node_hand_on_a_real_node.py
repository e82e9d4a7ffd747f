"""
healthd's own hand on a real kubelet: the shipped controller makes its pods, under the shipped policies.

The driver of a GPU asks for a reset, which does not help, so a reboot follows, and the node really boots. The pods run
with the rights that they ship with; `nvidia-smi`, `systemctl` and the PCI functions of the GPUs are stand-ins on the
node, where the pods find them as those of a machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from healthd.clock import SystemClock
from healthd.core.api import ANNOTATION_QUARANTINE
from healthd.core.api.names import LABEL_NODE_HAND
from healthd.probes.klog.record import DRIFT
from tests import quick_yaml
from tests.deploy.accounts import SYSTEM
from tests.deploy.manifests import DEPLOY, ROOT
from tests.kernel_log import Unwritable, kernel_log
from tests.kubernetes.real.installation import Installation
from tests.lab.api import ApiError, Json
from tests.lab.control_plane import ControlPlane
from tests.lab.fixtures import CANNOT
from tests.lab.programs import LabError, wait_until
from tests.lab.real.node import Hardware, RealNode
from tests.lab.real.nodes import RealNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.kmsg]

PATIENCE = 120
NAMESPACE = "healthd-node-hands"
PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
GPUS = ("0000:3b:00.0", "0000:af:00.0")
ADVICE = "NVRM: Xid ({}): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
CONFIGURATION: Json = {
    "quarantine": {"give_back": "repaired"},
    "remediation": {"at_once": 1, "hands": ["healthd-gpu-reset", "healthd-reboot"]},
}
NVIDIA_SMI = f"""#!/bin/sh
echo "nvidia-smi $*" >> /var/lib/asked
case "$*" in
*--query-gpu*) for gpu in {" ".join(GPUS)}; do echo "0000$gpu, $(cat /var/lib/mode)"; done ;;
*--persistence-mode=0) echo Disabled > /var/lib/mode ;;
*--persistence-mode=1) echo Enabled > /var/lib/mode ;;
esac
"""
SYSTEMCTL = """#!/bin/sh
echo "systemctl $*" >> /var/lib/asked
"""
"""It takes the request. The lab boots the node then."""
_INSTALLATION = ROOT / "tests" / "kubernetes" / "real" / "deploy"


@pytest.fixture(scope="module")
def real_node_count() -> int:
    """The node with the GPUs, and one for the controllers: nothing may run on a node that is rebooted."""
    return 2


@pytest.fixture(scope="module")
def real_hardware() -> Hardware:
    """As the GPU operator labels it."""
    return Hardware(gpus=len(GPUS), labels={PLUGIN: "true"})


@dataclass
class Story:
    """What happens to one node, and what is seen of the pods of hands meanwhile."""

    control_plane: ControlPlane
    installation: Installation
    node: RealNode
    pods: dict[str, Json] = field(default_factory=dict)
    """By their names, in the order in which they came, each as it was seen last."""
    labels: list[Json] = field(default_factory=list)
    """Of the node, those of a hand, in the order in which they changed."""
    boots: list[str] = field(default_factory=list)

    def until(self, what: str, holds: Callable[[], object]) -> None:
        """Return when it is seen. Raises LabError."""

        def seen() -> object:
            self._look()
            return holds()

        try:
            wait_until(what, seen, limit=PATIENCE)
        except LabError as error:
            ends = {name: pod.get("status") for name, pod in self.pods.items()}
            raise LabError(
                f"{error}; on record: {self.status()}; found: {self.findings()}; pods: {ends}; asked: {self.asked()}"
            ) from None

    def status(self) -> Json:
        """What is on record."""
        path = f"/apis/healthd.dev/v1alpha1/namespaces/{SYSTEM}/noderemediations/{self.node.name}"
        found: Json = self._get(path).get("status", {})
        return found

    def is_later_than_its_proof(self) -> bool:
        """Whether it is being checked, by the clock of the kernel log too, which may be behind others by `DRIFT`."""
        proven_at = self.last().get("provenAt")
        if self.status().get("phase") != "Checking" or proven_at is None:
            return False
        return SystemClock().now() > datetime.fromisoformat(proven_at) + 2 * DRIFT

    def findings(self) -> list[Json]:
        """What the agent has published of the node."""
        found: list[Json] = self._get(f"/apis/healthd.dev/v1alpha1/nodehealths/{self.node.name}")["status"]["findings"]
        return found

    def last(self) -> Json:
        """The last attempt."""
        attempts = self.status().get("attempts") or [{}]
        found: Json = attempts[-1]
        return found

    def notes(self) -> Json:
        """The annotations of the node."""
        found: Json = self._get(f"/api/v1/nodes/{self.node.name}")["metadata"].get("annotations", {})
        return found

    def asked(self) -> list[str]:
        """What the programs of the node were asked for, without questions."""
        lines = self.node.machine.run("cat", "/var/lib/asked").splitlines()
        return [line for line in lines if "--query" not in line]

    def _look(self) -> None:
        for pod in self._get(f"/api/v1/namespaces/{NAMESPACE}/pods").get("items", []):
            self.pods[pod["metadata"]["name"]] = pod
        all_labels = self._get(f"/api/v1/nodes/{self.node.name}")["metadata"]["labels"]
        labels = {key: value for key, value in all_labels.items() if key in (LABEL_NODE_HAND, PLUGIN)}
        if self.labels[-1:] != [labels]:
            self.labels.append(labels)

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
    equip(node)
    present = {"metadata": {"labels": {"nvidia.com/gpu.present": "true"}}}  # keeps the controllers on the other node
    control_plane.api.patch(f"/api/v1/nodes/{node.name}", present)
    installation = Installation(control_plane, real_nodes, overlay=overlay(tmp_path_factory.mktemp("overlay")))
    installation.roll_out()
    show_gpus(node)  # no agent that runs sees them
    story = Story(control_plane, installation, node)

    story.boots.append(node.boot_id)
    advise(installation.devices[node.name])
    story.until("a quarantine", lambda: ANNOTATION_QUARANTINE in story.notes())
    story.until("a reset, and a time after it", story.is_later_than_its_proof)
    advise(installation.devices[node.name])
    story.until("a reboot asked for", lambda: "systemctl reboot" in story.asked())
    story.until("its pod at its end", lambda: list(story.pods.values())[-1]["status"]["phase"] == "Succeeded")
    node.reboot()
    story.boots.append(node.boot_id)
    node.wait_until_ready()
    story.until("the new boot on record", lambda: "it booted since" in story.last().get("proof", ""))
    return story


def equip(node: RealNode) -> None:
    """Put the programs of the machine on its disk, where a chroot finds them."""
    machine = node.machine
    for name, text in (("nvidia-smi", NVIDIA_SMI), ("systemctl", SYSTEMCTL)):
        machine.run("sh", "-c", f"cat > /usr/bin/{name} && chmod 755 /usr/bin/{name}", text=text)
    machine.run("sh", "-c", "mkdir -p /var/lib && echo Enabled > /var/lib/mode && : > /var/lib/asked")


def show_gpus(node: RealNode) -> None:
    """The PCI functions of the GPUs, in place of those of the machine on which the lab runs, until the node boots."""
    lines = ["mkdir -p /tmp/pci /tmp/nvidia"]
    for pci in GPUS:
        lines += [
            f"mkdir -p /tmp/pci/{pci}",
            f"echo 0x030200 > /tmp/pci/{pci}/class",
            f"echo 0x10de > /tmp/pci/{pci}/vendor",
            f"ln -sfn /bus/pci/drivers/nvidia /tmp/pci/{pci}/driver",
        ]
    node.machine.run("sh", "-c", " && ".join([*lines, "mount --bind /tmp/pci /sys/bus/pci/devices"]))


def overlay(folder: Path) -> Path:
    """The installation of the lab with the components, and with the hands named."""
    (folder / "ours").symlink_to(_INSTALLATION)
    (folder / "components").symlink_to(DEPLOY / "components")
    own = folder / "own"
    own.mkdir()
    usual = quick_yaml.load((_INSTALLATION / "healthd.yaml").read_text())
    lines = {
        "resources": ["../ours"],
        "components": ["../components/remediation", "../components/node-hands"],
        "configMapGenerator": [
            {"name": "healthd-config", "namespace": SYSTEM, "behavior": "replace", "files": ["healthd.yaml"]}
        ],
    }
    for name, content in {"healthd.yaml": usual | CONFIGURATION, "kustomization.yaml": lines}.items():
        (own / name).write_text(yaml.safe_dump(content))
    return own


def advise(device: str) -> None:
    """The driver of *device* says what it wants, in the kernel log of this machine."""
    try:
        with kernel_log() as log:
            log.write(ADVICE.format(device))
    except Unwritable as why:
        pytest.skip(f"{CANNOT}: {why}")


def end_of(pod: Json) -> tuple[int, str]:
    """The exit code and the last words, as the kubelet has read them."""
    (container,) = pod["status"]["containerStatuses"]
    end = container["state"]["terminated"]
    return end["exitCode"], end.get("message", "")


def test_the_gpus_are_reset_once_between_persistence_mode_off_and_on(story: Story) -> None:
    reset = next(pod for name, pod in story.pods.items() if name.startswith("gpu-reset-"))

    assert end_of(reset) == (0, "2 GPUs were reset, and nvidia-smi lists all of them")
    assert story.asked()[:3] == [
        "nvidia-smi --persistence-mode=0",
        "nvidia-smi --gpu-reset",
        "nvidia-smi --persistence-mode=1",
    ]


def test_a_reset_that_did_not_help_is_followed_by_one_reboot(story: Story) -> None:
    attempts = story.status()["attempts"]
    reboot = next(pod for name, pod in story.pods.items() if name.startswith("reboot-"))

    assert [(each["rung"], each["hand"]) for each in attempts] == [
        ("reset_gpu", "healthd-gpu-reset"),
        ("reboot", "healthd-reboot"),
    ]
    assert attempts[0]["outcome"] == "no_help"
    assert end_of(reboot) == (0, "systemd was asked to reboot the machine")
    assert story.asked()[3:] == ["systemctl reboot"]
    assert len(story.pods) == 2


def test_the_labels_let_each_pod_in_and_the_device_plugin_is_back_before_the_check(story: Story) -> None:
    first = story.boots[0]

    assert story.labels[:4] == [
        {PLUGIN: "true"},
        {PLUGIN: "paused-for-gpu-reset", LABEL_NODE_HAND: f"gpu-reset.{first}"},
        {PLUGIN: "true"},
        {PLUGIN: "true", LABEL_NODE_HAND: f"reboot.{first}"},
    ]


def run_again(story: Story, name: str, **spec: object) -> Json:
    """The status of a further pod like that of the reboot, once it ended. A cluster administrator makes it."""
    reboot = next(pod for name, pod in story.pods.items() if name.startswith("reboot-"))
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    story.control_plane.api.create(pods, {"metadata": {"name": name}, "spec": {**reboot["spec"], **spec}})

    def status() -> Json:
        found: Json = story.control_plane.api.get(f"{pods}/{name}")["status"]
        return found

    wait_until(f"the end of {name}", lambda: status().get("phase") in ("Succeeded", "Failed"), limit=PATIENCE)
    return status()


def container_for(story: Story, boot: str) -> Json:
    """The container of the reboot, for another boot."""
    reboot = next(pod for name, pod in story.pods.items() if name.startswith("reboot-"))
    (container,) = reboot["spec"]["containers"]
    words = [f"--boot-id={boot}" if word.startswith("--boot-id=") else word for word in container["command"]]
    return {**container, "command": words}


def test_the_same_pod_started_again_after_the_boot_does_nothing(story: Story) -> None:
    """Were its kubelet to start it once more: by the command that it had, in the node as it is now."""
    status = run_again(story, "again", nodeSelector={})

    assert end_of({"status": status}) == (0, f"nothing was done: it booted since ({story.boots[1]})")
    assert story.asked().count("systemctl reboot") == 1


def test_a_process_of_the_machine_that_computes_keeps_it_from_a_reboot(story: Story) -> None:
    uses = "mknod -m 666 /dev/nvidia-uvm c 1 3; (exec 3</dev/nvidia-uvm; exec sleep 600) >/dev/null 2>&1 &"
    story.node.machine.run("sh", "-c", uses)

    code, why = end_of(
        {"status": run_again(story, "in-use", nodeSelector={}, containers=[container_for(story, story.boots[1])])}
    )

    assert code == 3
    assert why.startswith("the reboot was refused: the GPUs are used by sleep (process ")
    assert story.asked().count("systemctl reboot") == 1


def test_a_pod_for_a_node_without_the_label_is_refused_by_its_kubelet(story: Story) -> None:
    """So a stolen token of the controller boots no node that is in service."""
    status = run_again(story, "uninvited", nodeSelector={LABEL_NODE_HAND: f"gpu-reset.{story.boots[1]}"})

    assert (status["phase"], status["reason"]) == ("Failed", "NodeAffinity")
