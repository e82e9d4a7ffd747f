"""Nodes and their taints."""

from __future__ import annotations

from typing import Any

import msgspec

from healthd.core.api.meta import Condition, ObjectMeta, Slim
from healthd.core.untrusted import Moment


class Taint(Slim, frozen=True, kw_only=True):
    """Keeps pods without a matching toleration off a node."""

    key: str
    value: str = ""
    effect: str = msgspec.field(default_factory=lambda: "NoSchedule")
    """From a factory, so it is never left out on the wire: the API server has no default for it."""
    time_added: Moment | None = None


class Toleration(Slim, frozen=True, kw_only=True):
    """Lets a pod onto a node with a matching taint. An empty key with `Exists` matches every taint."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSpec(Slim, frozen=True, kw_only=True):
    """Whether pods may be scheduled on a node."""

    unschedulable: bool = False
    taints: list[Taint] = []


class NodeSystemInfo(Slim, frozen=True, kw_only=True):
    """Identifies the machine and its boot."""

    boot_id: str = msgspec.field(default="", name="bootID")
    machine_id: str = msgspec.field(default="", name="machineID")
    system_uuid: str = msgspec.field(default="", name="systemUUID")


class NodeStatus(Slim, frozen=True, kw_only=True):
    """What a node reports."""

    conditions: list[Condition] = []
    node_info: NodeSystemInfo = NodeSystemInfo()
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}


class Node(Slim, frozen=True, kw_only=True):
    """A machine, or in `healthd run` a slot of one machine."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NodeManifest(Slim, frozen=True, kw_only=True):
    """A node with its *spec* unparsed, for patches of a list, which a merge patch replaces as a whole."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
