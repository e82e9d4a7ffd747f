"""Fleets to look at: a cluster state of any size, with gangs, a recovery that waits, and a node in quarantine."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from healthd.controller.cache.cluster_state import ClusterState
from healthd.core.api import (
    ANNOTATION_CHECKPOINT,
    ANNOTATION_PROGRESS,
    ANNOTATION_RESTART,
    ANNOTATION_SAVES,
    Job,
    JobStatus,
    Node,
    NodeHealthStatus,
    PodStatus,
    Recovery,
    RecoveryStatus,
    TimelineEntry,
)
from healthd.core.api.model import CauseKind, Evidence, Phase, Verdict
from healthd.core.api.save_stats import Save, Saves
from healthd.core.config import Config, QuarantinePolicy
from healthd.core.node.quarantine import Record, cordon_patch
from healthd.core.recovery.progress import Progress
from healthd.gangs import ADAPTERS
from tests.builders import a_cause, a_finding, a_job, a_node, a_nodehealth, a_pod, a_recovery
from tests.fakes import START

DOMAIN = "topology.kubernetes.io/rack"
CONFIG = Config(quarantine=QuarantinePolicy(domain_label=DOMAIN))
LINE = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
PER_RACK = 64


class FleetOf:
    """A cluster state of *nodes* nodes and *gangs* gangs, which changes on request."""

    def __init__(self, nodes: int, gangs: int, at: datetime = START) -> None:
        self.state = ClusterState(ADAPTERS)
        self.at = at
        self.nodes = [f"gpu-{number:04}" for number in range(nodes)]
        self._versions = itertools.count(1)
        self._jobs: list[Job] = []
        spares = max(1, nodes // 50) if nodes > 2 else 0
        for number, name in enumerate(self.nodes):
            rack = {DOMAIN: f"rack-{number // PER_RACK}"}
            self.upsert(a_node(name, labels=rack, spare=number >= nodes - spares))
            self.report(name, Verdict.HEALTHY)
        for number in range(gangs):
            self._add_gang(
                number, self.nodes[number * (nodes - spares) // gangs :][: max(1, (nodes - spares) // gangs)]
            )

    def upsert(self, obj: Any) -> None:
        """*obj* as its next version."""
        meta = replace(obj.metadata, resource_version=str(next(self._versions)))
        self.state.upsert(replace(obj, metadata=meta))

    def report(self, name: str, verdict: Verdict, message: str = "", findings: tuple[Any, ...] = ()) -> None:
        """What the agent of a node says."""
        status = NodeHealthStatus(
            verdict=verdict, message=message, findings=list(findings), seen_at=self.at, sources=["kmsg", "nvml"]
        )
        self.upsert(a_nodehealth(name, status=status))

    def break_node(self, name: str, text: str = LINE) -> None:
        """The GPU of a node falls off the bus, and the node is taken out of service."""
        seen = Evidence(source="kmsg", at=self.at, text=text, sequence=4711)
        lost = a_finding(at=self.at, message="GPU 0000:3b:00.0 has fallen off the bus", evidence=[seen])
        self.report(name, Verdict.UNHEALTHY, lost.message, (lost,))
        node = self.state.get(Node, ("", name))  # type: ignore[arg-type]
        assert node is not None
        record = Record(finding=lost.id, message=lost.message, since=self.at)
        notes = cordon_patch(node, record)["metadata"]["annotations"]
        annotations = {**node.metadata.annotations, **{key: each for key, each in notes.items() if each}}
        self.upsert(replace(node, metadata=replace(node.metadata, annotations=annotations)))

    def recover(self, gang: int, *phases: Phase, message: str = "", name: str = "") -> Recovery:
        """A recovery of that gang which has gone through *phases*, ten seconds each."""
        job = self._jobs[gang]
        bad = name or self.nodes[0]
        began = self.at - timedelta(seconds=10 * len(phases))
        times = [began + timedelta(seconds=10 * number) for number in range(len(phases))]
        cause = a_cause(
            CauseKind.HARDWARE,
            node=bad,
            at=began,
            finding="0000:3b:00.0/xid-79",
            message=f"{bad}: GPU 0000:3b:00.0 has fallen off the bus",
        )
        entries = [TimelineEntry(phase=phase, at=at) for phase, at in zip(phases, times, strict=True)]
        entries[-1] = replace(entries[-1], message=message)
        status = RecoveryStatus(
            phase=phases[-1], message=message, causes=[cause], timeline=entries, attempt=1, phase_since=times[-1]
        )
        made = a_recovery(
            f"{job.metadata.name}-1", namespace=job.metadata.namespace, gang=job, cause=cause, status=status
        )
        self.upsert(made)
        return made

    def _add_gang(self, number: int, nodes: list[str]) -> None:
        space, name = f"team-{'abcdefgh'[number % 8]}", f"llama-{number:03}"
        step = 500 * (number % 37 + 3)
        saves = Saves(watched_since=self.at, good=[Save(step=step, at=self.at - timedelta(seconds=40 + 7 * number))])
        progress = Progress(step=step, at=self.at)
        notes = {
            ANNOTATION_RESTART: "enabled",
            ANNOTATION_CHECKPOINT: f"file:///ckpt/{name}",
            ANNOTATION_SAVES: msgspec.json.encode(saves).decode(),
            ANNOTATION_PROGRESS: msgspec.json.encode(progress).decode(),
        }
        status = JobStatus(active=len(nodes), start_time=self.at - timedelta(hours=3))
        job = a_job(name, namespace=space, ranks=len(nodes), annotations=notes, uid=f"uid-{name}", status=status)
        self._jobs.append(job)
        self.upsert(job)
        for rank, node in enumerate(nodes):
            labels = {"batch.kubernetes.io/job-name": name}
            pod = a_pod(
                f"{name}-{rank}", namespace=space, node=node, index=rank, owner=job, labels=labels,
                status=PodStatus(phase="Running"), uid=f"uid-{name}-{rank}",
            )  # fmt: skip
            self.upsert(pod)
