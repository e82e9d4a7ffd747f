"""Builders of gangs that are silent by the reports of their agents, with GPUs and without."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from healthd.core.api import Node, NodeHealth, NodeHealthStatus, Pod, PodStatus
from healthd.core.api.health import GPUS, MemberState, PodActivity, PodRhythm
from healthd.core.api.kubernetes.pods import Container, ContainerResources
from healthd.core.recovery.gang import GangView
from tests.builders import a_node, a_nodehealth, a_pod
from tests.core.gangs import a_root
from tests.fakes import START

NOW = START + timedelta(hours=1)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def a_rank(number: int, *, name: str = "", phase: str = "Running", **fields: Any) -> Pod:
    """A member that has run since the start of time."""
    name = name or f"train-{number}"
    known: dict[str, Any] = {
        "node": f"node-{number}",
        "index": number,
        "uid": f"uid-{name}",
        "creation_timestamp": START,
        "status": PodStatus(phase=phase),
    }
    return a_pod(name, **{**known, **fields})


def a_rhythm(number: int, **fields: Any) -> PodRhythm:
    """A rank that has been silent for a minute."""
    known: dict[str, Any] = {
        "uid": f"uid-train-{number}",
        "state": MemberState.SILENT,
        "since": ago(60),
        "period": 2.0,
        "allowed": 12.0,
        "worked": 36000.0,
    }
    return PodRhythm(**{**known, **fields})


def a_report(number: int, *rhythms: PodRhythm, seen_at: datetime | None = None, boot_id: str = "boot-1") -> NodeHealth:
    """What the agent of node *number* published, half a minute ago if not *seen_at*."""
    status = NodeHealthStatus(rhythms=list(rhythms), seen_at=seen_at or ago(30), boot_id=boot_id)
    return a_nodehealth(f"node-{number}", status=status)


def a_gang(**fields: Any) -> GangView:
    """Two ranks on two nodes, both silent for a minute."""
    known: dict[str, Any] = {
        "root": a_root(),
        "pods": (a_rank(0), a_rank(1)),
        "nodes": {f"node-{number}": a_node(f"node-{number}") for number in range(4)},
        "health": {f"node-{number}": a_report(number, a_rhythm(number)) for number in range(2)},
    }
    return GangView(**{**known, **fields})


def with_gpus(number: str = "8", *, resource: str = "nvidia.com/gpu", **fields: Any) -> Container:
    return Container(image="train", resources=ContainerResources(limits={resource: number}), **fields)


def a_gpu_rank(number: int, held: str = "8") -> Pod:
    rank = a_rank(number)
    return replace(rank, spec=replace(rank.spec, containers=[with_gpus(held)]))


def offering(name: str, capacity: dict[str, str]) -> Node:
    """A node with these resources."""
    node = a_node(name)
    return replace(node, status=replace(node.status, capacity=capacity))


def gpus(state: MemberState = MemberState.SILENT, **fields: Any) -> PodRhythm:
    """Those of a node: silent for a minute, after ten minutes of work; every one of them still runs a kernel."""
    if state is MemberState.WORKING:
        return PodRhythm(uid=GPUS, state=MemberState.WORKING, period=2.0, allowed=12.0)
    known: dict[str, Any] = {"since": ago(60), "period": 2.0, "allowed": 12.0, "worked": 600.0}
    activity = PodActivity(gpu_utilisation=fields.pop("gpu_utilisation", 100))
    return PodRhythm(uid=GPUS, state=state, activity=activity, **{**known, **fields})


def polls_unseen(number: int, **fields: Any) -> PodRhythm:
    """A rank of whose processors nothing else is usual than that they are busy."""
    return PodRhythm(uid=f"uid-train-{number}", state=MemberState.WORKING, period=2.0, allowed=12.0, **fields)


def a_gpu_gang(*rhythms: list[PodRhythm], capacity: str = "8", held: str = "8") -> GangView:
    """Ranks that have all GPUs of their nodes each, and what their agents list."""
    names = [f"node-{number}" for number in range(len(rhythms))]
    return a_gang(
        pods=tuple(a_gpu_rank(number, held) for number in range(len(rhythms))),
        nodes={name: offering(name, {"nvidia.com/gpu": capacity}) for name in names},
        health={
            name: a_report(number, *listed) for number, (name, listed) in enumerate(zip(names, rhythms, strict=True))
        },
    )
