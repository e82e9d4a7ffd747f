"""
What dcgm-exporter, kube-state-metrics, node-exporter, the kubelet and healthd's own processes show of a stage.

Names and labels are those of dcgm-exporter 4 (dcp-metrics-included.csv), kube-state-metrics 2 and node-exporter 1.8.
Prometheus scrapes dcgm-exporter without `honorLabels`, as the GPU operator has it: the pod that uses a GPU is
`exported_pod`. What they say follows from the stage, and a little noise from the time of day.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterator

from healthd.core.api import Job, Node, Pod
from healthd.gangs.job import LABEL_JOB_NAME
from tests.fakes import START
from tests.grafana.history.agents import COUNTERS, GPUS, MODEL, NICS
from tests.grafana.history.scrapes import Exposed
from tests.grafana.history.stage import Stage
from tests.grafana.history.stores import GIB

BUSES = ("3b", "4c", "5d", "6e", "9a", "ab", "bc", "cd")
_KSM = {"job": "kube-state-metrics", "instance": "kube-state-metrics:8080"}
_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
_LINE_RATE = 400e9 / 8


class Exporters:
    """All of them. Counters go on from one scrape to the next."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._totals: Counter[tuple[str, ...]] = Counter()
        self._down: set[tuple[str, str]] = set()
        """Node and port whose link was down at the last scrape."""

    def scrape(self, seconds: float) -> Iterator[Exposed]:
        """As of now, so many *seconds* after the last time."""
        stage = self._stage
        yield from _kube_state(stage)
        yield from _processes(stage)
        yield from _volumes(stage)
        running = {pod.spec.node_name: pod for pod in stage.objects(Pod) if pod.status.phase == "Running"}
        for name in stage.machines.all:
            pod = running.get(name)
            is_working = pod is not None and stage.is_training(pod.metadata.labels[LABEL_JOB_NAME])
            yield from _gpus(stage, name, pod, is_working)
            yield from self._node(name, is_working, seconds)

    def _node(self, node: str, is_working: bool, seconds: float) -> Iterator[Exposed]:
        labels = {"job": "node-exporter", "instance": f"{node}:9100"}
        yield Exposed("node_uname_info", {**labels, "nodename": node, "sysname": "Linux", "machine": "x86_64"}, 1)
        for rail, nic in enumerate(NICS):
            yield from self._port(node, nic, {**labels, "device": f"mlx5_{rail}", "port": "1"}, is_working, seconds)
        disk = {**labels, "device": "nvme0n1"}
        read = self._count("reads", node, seconds * (2.1e9 + 2e8 * _noise(self._stage, node) if is_working else 2e5))
        yield Exposed("node_disk_read_bytes_total", disk, read)
        yield Exposed("node_disk_written_bytes_total", disk, round(read / 30))

    def _port(self, node: str, nic: str, labels: dict[str, str], is_working: bool, seconds: float) -> Iterator[Exposed]:
        agent = self._stage.agents[node]
        loss = agent.growing[nic, COUNTERS[0]] / 3600
        is_down = agent.readings["ib"]["ib.rail_link", nic, "port 1"].value == "down"
        was_down = (node, nic) in self._down
        (self._down.add if is_down else self._down.discard)((node, nic))
        share = (0.62 + 0.05 * _noise(self._stage, node)) * (0.8 if loss > 100 else 1) if is_working else 0.0
        sent = self._count("sent", f"{node} {nic}", seconds * _LINE_RATE * share)
        yield Exposed("node_infiniband_port_data_transmitted_bytes_total", labels, sent)
        yield Exposed("node_infiniband_port_data_received_bytes_total", labels, round(sent * 0.99))
        errors = self._count("errors", f"{node} {nic}", seconds * loss)
        yield Exposed("node_infiniband_port_errors_received_total", labels, errors)
        yield Exposed("node_infiniband_port_discards_transmitted_total", labels, round(errors / 4))
        yield Exposed(
            "node_infiniband_link_downed_total", labels, self._count("downs", f"{node} {nic}", is_down and not was_down)
        )

    def _count(self, what: str, of: str, more: float) -> int:
        self._totals[what, of] += round(more)
        return self._totals[what, of]


def _kube_state(stage: Stage) -> Iterator[Exposed]:
    for node in stage.objects(Node):
        labels = {f"label_{_sanitized(key)}": value for key, value in node.metadata.labels.items()}
        yield Exposed("kube_node_labels", {**_KSM, "node": node.metadata.name, **labels}, 1)
    for job in stage.objects(Job):
        meta = job.metadata
        owner = {"owner_kind": "", "owner_name": "", "owner_is_controller": ""}
        yield Exposed("kube_job_owner", {**_KSM, "namespace": meta.namespace, "job_name": meta.name, **owner}, 1)
    for pod in stage.objects(Pod):
        yield from _pod(pod)


def _pod(pod: Pod) -> Iterator[Exposed]:
    meta = pod.metadata
    named = {**_KSM, "namespace": meta.namespace, "pod": meta.name, "uid": meta.uid}
    (owner,) = meta.owner_references
    owned = {"owner_kind": "Job", "owner_name": owner.name, "owner_is_controller": "true"}
    yield Exposed("kube_pod_owner", {**named, **owned}, 1)
    yield Exposed("kube_pod_info", {**named, "node": pod.spec.node_name, "created_by_kind": "Job"}, 1)
    for phase in _PHASES:
        yield Exposed("kube_pod_status_phase", {**named, "phase": phase}, float(pod.status.phase == phase))
    claim = {"volume": "checkpoints", "persistentvolumeclaim": f"{owner.name}-checkpoints"}
    yield Exposed("kube_pod_spec_volumes_persistentvolumeclaims_info", {**named, **claim}, 1)


def _gpus(stage: Stage, node: str, pod: Pod | None, is_working: bool) -> Iterator[Exposed]:
    is_broken = stage.machines.all[node].broken
    for gpu in range(GPUS):
        if is_broken and gpu == 0:
            continue  # DCGM does not see a GPU that is off the bus
        labels = {
            "job": "nvidia-dcgm-exporter",
            "instance": f"{node}:9400",
            "namespace": "gpu-operator",
            "pod": f"nvidia-dcgm-exporter-{node}",
            "container": "nvidia-dcgm-exporter",
            "gpu": str(gpu),
            "UUID": f"GPU-{node}-{gpu}",
            "pci_bus_id": f"00000000:{BUSES[gpu].upper()}:00.0",
            "device": f"nvidia{gpu}",
            "modelName": MODEL,
            "Hostname": node,
            "DCGM_FI_DRIVER_VERSION": "570.172.08",
        }
        if pod is not None:
            labels |= {"exported_namespace": pod.metadata.namespace, "exported_pod": pod.metadata.name}
            labels |= {"exported_container": "main"}
        for name, value in _of_gpu(stage, f"{node}/{gpu}", is_working, pod is not None).items():
            yield Exposed(name, labels, value)


def _of_gpu(stage: Stage, name: str, is_working: bool, is_used: bool) -> dict[str, float]:
    noise = _noise(stage, name)
    busy = (0.94 + 0.04 * noise) if is_working else 0.0
    first_of_four = name.startswith("gpu-04/0")
    return {
        "DCGM_FI_DEV_GPU_UTIL": round(100 * busy),
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": round(busy, 3),
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": round(0.48 * busy + 0.02 * noise * busy, 3),
        "DCGM_FI_PROF_DRAM_ACTIVE": round(0.4 * busy, 3),
        "DCGM_FI_DEV_POWER_USAGE": round(72 + 560 * busy + 8 * noise, 1),
        "DCGM_FI_DEV_GPU_TEMP": round(33 + 34 * busy + 2 * noise),
        "DCGM_FI_DEV_MEMORY_TEMP": round(38 + 40 * busy + 2 * noise),
        "DCGM_FI_DEV_FB_USED": round(71_000 + 300 * noise) if is_used else 4,
        "DCGM_FI_PROF_PCIE_TX_BYTES": round((3.1 + 0.3 * noise) * 1e9 * busy + 2e6),
        "DCGM_FI_PROF_PCIE_RX_BYTES": round((4.6 + 0.4 * noise) * 1e9 * busy + 2e6),
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": round(_minutes(stage) / 20) if first_of_four else 0,
        "DCGM_FI_DEV_XID_ERRORS": 63 if first_of_four and _minutes(stage) > 52 else 0,
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 1 if first_of_four and _minutes(stage) > 52 else 0,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
    }


def _volumes(stage: Stage) -> Iterator[Exposed]:
    for gang, store in stage.stores.items():
        (namespace,) = {job.metadata.namespace for job in stage.objects(Job) if job.metadata.name == gang}
        labels = {"job": "kubelet", "namespace": namespace, "persistentvolumeclaim": f"{gang}-checkpoints"}
        capacity = 24_000 * GIB
        yield Exposed("kubelet_volume_stats_capacity_bytes", labels, capacity)
        yield Exposed("kubelet_volume_stats_used_bytes", labels, capacity - store.free)


def _processes(stage: Stage) -> Iterator[Exposed]:
    """Of healthd: the true ones would be those of the test."""
    for job, name, _ in stage.exposed():
        labels = {"job": job, "instance": f"{name}:9400", "namespace": "healthd-system"}
        usual = 45e6 if job == "healthd-agent" else 92e6
        yield Exposed("process_resident_memory_bytes", labels, round(usual + 2e6 * _noise(stage, name)))


def _noise(stage: Stage, name: str) -> float:
    """Between -1 and 1, the same in each run."""
    phase = zlib.crc32(name.encode()) % 1000
    return round(math.sin(_minutes(stage) * 0.9 + phase) * math.cos(_minutes(stage) * 0.37 + phase / 7), 4)


def _minutes(stage: Stage) -> float:
    return (stage.clock.now() - START).total_seconds() / 60


def _sanitized(key: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in key)
