"""
A real node of the lab does what a node does: runs pods, loses its kubelet, reboots; and two of them are apart.
"""

from __future__ import annotations

import json
import socket

import pytest

from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import LabError, wait_until
from tests.lab.real.nodes import RealNodes
from tests.lab.real.pods import Pods, container, python, spec

pytestmark = [pytest.mark.lab, pytest.mark.slow]

_LIMIT = 40
_KUBELET = 10250
"""The port of every kubelet."""
_FOR_EVER = ("sleep", "1000")
_ASK_THE_API_SERVER = python(
    "import os, ssl, urllib.request",
    "at = '/var/run/secrets/kubernetes.io/serviceaccount/'",
    "host, port = os.environ['KUBERNETES_SERVICE_HOST'], os.environ['KUBERNETES_SERVICE_PORT']",
    "headers = {'Authorization': 'Bearer ' + open(at + 'token').read()}",
    "request = urllib.request.Request(f'https://{host}:{port}/api', headers=headers)",
    "answer = urllib.request.urlopen(request, context=ssl.create_default_context(cafile=at + 'ca.crt'))",
    "print(answer.status)",
)
_OPENER = python(
    "import os, signal, socket",
    "signal.signal(signal.SIGTERM, lambda *_: os._exit(0))",
    "listener = socket.socket(socket.AF_UNIX)",
    "listener.bind('/ipc/socket')",
    "os.chmod('/ipc/socket', 0o666)",
    "listener.listen()",
    "caller = listener.accept()[0]",
    "socket.send_fds(caller, [b'.'], [os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK)])",
    "signal.pause()",
)
_READER = python(
    "import os, socket",
    "try: os.open('/dev/kmsg', os.O_RDONLY)",
    "except OSError: print('not by myself')",
    "caller = socket.socket(socket.AF_UNIX)",
    "caller.connect('/ipc/socket')",
    "descriptor = socket.recv_fds(caller, 1, 1)[1][0]",
    "print(os.getuid(), os.readlink(f'/proc/self/fd/{descriptor}'), len(os.read(descriptor, 8192)) > 0)",
)
_UNPRIVILEGED = {
    "capabilities": {"drop": ["ALL"]},
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture
def pods(control_plane: ControlPlane, real_nodes: RealNodes, namespace: str) -> Pods:
    """The pods of one test, on real nodes."""
    return Pods(control_plane, namespace)


def on(real_nodes: RealNodes, number: int, *command: str) -> Json:
    """The spec of a pod that runs *command* on node *number*."""
    return spec(container(*command), nodeName=real_nodes[number].name)


def a_job(name: str, pod: Json, *, count: int) -> Json:
    """An Indexed Job of *count* pods."""
    template = {"metadata": {"labels": {"job": name}}, "spec": pod}
    counts = {"completions": count, "parallelism": count, "completionMode": "Indexed", "backoffLimit": 0}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {**counts, "template": template},
    }


def deleted_since(version: str, control_plane: ControlPlane, namespace: str) -> list[Json]:
    """The last status of each pod that went, as a watch from *version* tells it."""
    path = f"/api/v1/namespaces/{namespace}/pods?watch=1&resourceVersion={version}&timeoutSeconds=1"
    events = [json.loads(line) for line in control_plane.api.raw("GET", path)[1].splitlines()]
    return [event["object"]["status"] for event in events if event["type"] == "DELETED"]


def test_more_nodes_than_the_control_plane_knows_are_refused(
    control_plane: ControlPlane, real_nodes: RealNodes
) -> None:
    with pytest.raises(LabError, match=r"^4 real nodes are too many: .* has room for 3$"):
        RealNodes(control_plane, 4)


def test_commands_run_in_a_container(
    control_plane: ControlPlane, pods: Pods, real_nodes: RealNodes, namespace: str
) -> None:
    pods.start("it", on(real_nodes, 0, *_FOR_EVER))
    pods.await_phase("it", "Running")

    assert control_plane.kubectl("exec", "--namespace", namespace, "it", "--", "echo", "there") == "there\n"


def test_the_image_runs_healthd_as_the_shipped_one_does(pods: Pods) -> None:
    code = python(
        "import os, healthd.core.recovery.decide", "print(os.getuid(), os.system('healthd --help > /dev/null'))"
    )

    assert pods.run("it", spec(container(*code))) == "65532 0\n"


def test_a_pod_reaches_the_api_server_and_knows_that_it_is_the_right_one(pods: Pods) -> None:
    assert pods.run("it", spec(container(*_ASK_THE_API_SERVER))) == "200\n"


def test_pods_of_different_nodes_reach_each_other(pods: Pods, real_nodes: RealNodes) -> None:
    pods.start("server", on(real_nodes, 0, "python3", "-m", "http.server", "8000"))
    pods.await_phase("server", "Running")
    address = pods.get("server")["status"]["podIP"]
    code = python(
        "import urllib.request, time",
        "for _ in range(50):",
        f"    try: print(urllib.request.urlopen('http://{address}:8000/etc/hostname').status); break",
        "    except OSError: time.sleep(0.2)",
    )

    assert pods.run("client", on(real_nodes, 1, *code)) == "200\n"


def test_nodes_have_gpus_for_the_scheduler(control_plane: ControlPlane, pods: Pods, real_nodes: RealNodes) -> None:
    pod = spec(container(*_FOR_EVER, resources={"limits": {"nvidia.com/gpu": 1}}))
    for name in ("a", "b"):
        pods.start(name, pod)
        pods.await_phase(name, "Running")

    assert {pods.get(name)["spec"]["nodeName"] for name in ("a", "b")} == {node.name for node in real_nodes.nodes}


def test_every_node_sees_the_shared_directory(pods: Pods, real_nodes: RealNodes) -> None:
    mount: Json = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    volume = {"volumes": [{"name": "shared", "hostPath": {"path": str(real_nodes.shared), "type": "Directory"}}]}
    for number, node in enumerate(real_nodes.nodes):
        script = f"echo written > /shared/{node.name}; cat /shared/*"
        seen = pods.run(node.name, spec(container("sh", "-c", script, **mount), nodeName=node.name, **volume))

        assert seen == "written\n" * (number + 1)


def test_a_suspended_job_shows_its_containers_terminated_before_its_pods_go(
    control_plane: ControlPlane, pods: Pods, real_nodes: RealNodes, namespace: str
) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    training = container("sh", "-c", "trap 'exit 143' TERM; sleep 1000 & wait")
    control_plane.api.create(jobs, a_job("it", spec(training), count=2))
    wait_until(
        "two pods run", lambda: [each["status"]["phase"] for each in pods.list()] == ["Running"] * 2, limit=_LIMIT
    )
    version = control_plane.api.get(f"/api/v1/namespaces/{namespace}/pods")["metadata"]["resourceVersion"]

    control_plane.api.patch(f"{jobs}/it", {"spec": {"suspend": True}})
    wait_until("the pods are gone", lambda: not pods.list(), limit=_LIMIT)

    ends = [pod["containerStatuses"][0]["state"] for pod in deleted_since(version, control_plane, namespace)]
    assert [end["terminated"]["exitCode"] for end in ends] == [143, 143]


def test_a_killed_kubelet_leaves_its_containers_running_and_finds_them_again(pods: Pods, real_nodes: RealNodes) -> None:
    node = real_nodes[0]
    uid = pods.start("it", on(real_nodes, 0, *_FOR_EVER))
    pods.await_phase("it", "Running")
    before = pods.get("it")["status"]["containerStatuses"][0]
    processes = node.processes(uid)

    node.kill_kubelet()

    assert len(processes) == 1
    assert node.processes(uid) == processes

    node.start_kubelet()
    node.wait_until_ready()
    after = pods.get("it")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)


def test_containers_outlive_containerd(pods: Pods, real_nodes: RealNodes) -> None:
    node = real_nodes[0]
    uid = pods.start("it", on(real_nodes, 0, *_FOR_EVER))
    pods.await_phase("it", "Running")
    processes = node.processes(uid)

    node.kill_containerd()
    node.start_containerd()

    assert len(processes) == 1
    assert node.processes(uid) == processes
    assert pods.run("another", on(real_nodes, 0, "true")) == ""


def test_a_reboot_ends_every_process_and_changes_the_boot_id(
    control_plane: ControlPlane, pods: Pods, real_nodes: RealNodes
) -> None:
    node = real_nodes[1]
    uid = pods.start("it", on(real_nodes, 1, *_FOR_EVER))
    pods.await_phase("it", "Running")
    before = node.boot_id

    node.stop()
    assert node.processes(uid) == set()
    node.start()
    node.wait_until_ready()

    reported = control_plane.api.get(f"/api/v1/nodes/{node.name}")["status"]["nodeInfo"]["bootID"]
    read = pods.run("another", on(real_nodes, 1, "cat", "/proc/sys/kernel/random/boot_id")).strip()
    assert reported == read == node.boot_id != before
    pods.await_phase("it", "Failed")


def test_a_node_whose_cable_is_pulled_is_not_reached_and_its_pods_run_on(pods: Pods, real_nodes: RealNodes) -> None:
    node = real_nodes[1]
    uid = pods.start("it", on(real_nodes, 1, *_FOR_EVER))
    pods.await_phase("it", "Running")
    processes = node.processes(uid)

    node.cut_network()
    try:
        with pytest.raises(TimeoutError):
            socket.create_connection((node.address, _KUBELET), timeout=1).close()
        assert node.processes(uid) == processes
    finally:
        node.mend_network()

    socket.create_connection((node.address, _KUBELET), timeout=_LIMIT).close()


def test_a_privileged_container_can_hand_the_kernel_log_to_one_without_privileges(pods: Pods) -> None:
    mounts = [{"name": "ipc", "mountPath": "/ipc"}]
    probe = {"exec": {"command": ["test", "-S", "/ipc/socket"]}, "periodSeconds": 1, "failureThreshold": 30}
    opener = container(
        *_OPENER,
        name="opener",
        restartPolicy="Always",
        startupProbe=probe,
        securityContext={"privileged": True, "runAsUser": 0},
        volumeMounts=mounts,
    )
    reader = container(*_READER, securityContext=_UNPRIVILEGED, volumeMounts=mounts)
    volumes = [{"name": "ipc", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]

    printed = pods.run("it", spec(reader, initContainers=[opener], volumes=volumes))

    assert printed == "not by myself\n65532 /dev/kmsg True\n"
