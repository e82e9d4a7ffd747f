"""Builders of problems and incidents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from healthd.core.alerts.grouping import Tracked
from healthd.core.alerts.incidents import incidents_now
from healthd.core.alerts.problem import Problem, Shared
from healthd.core.alerts.wording import Context
from healthd.core.api import IncidentRecord, IncidentStatus, Node, ObjectMeta
from healthd.core.api.incidents import Incident, Severity
from healthd.core.config import AlertsPolicy
from tests.fakes import START

RACK = "topology.kubernetes.io/rack"


def at(seconds: float) -> datetime:
    """So long after the start of time."""
    return START + timedelta(seconds=seconds)


def a_problem(key: str = "recovery/team-a/llama-1", **fields: Any) -> Problem:
    """A gang whose recovery goes on."""
    known: dict[str, Any] = {
        "since": START,
        "severity": Severity.NOTICE,
        "cause": "hardware",
        "reason": "is being recovered",
        "subject": key,
        "title": f"{key} is being restarted",
        "namespace": key.split("/")[1],
        "gang": f"job/{key.split('/')[-1]}",
    }
    return Problem(key=key, **{**known, **fields})


def a_wait(key: str, *, since: datetime = START, node: str = "", **fields: Any) -> Problem:
    """A gang that waits for a spare: a person must act."""
    known: dict[str, Any] = {
        "severity": Severity.PAGE,
        "shared": Shared.NODES,
        "reason": "no spare",
        "title": f"{key} waits: no spare",
        "todo": "Bring a spare.",
        "nodes": (node,) if node else (),
        "rank": 20,
    }
    return a_problem(key, since=since, **{**known, **fields})


def a_broken_node(name: str, *, since: datetime = START) -> Problem:
    """A node that is out of service, and no gang was on it."""
    return a_problem(
        f"node/{name}/1", since=since, shared=Shared.NODE, cause="node", gang="", namespace="", nodes=(name,),
        reason="out of service for xid-79", subject=name, title=f"{name} is out of service",
    )  # fmt: skip


def an_incident(key: str = "recovery/team-a/llama-1", **fields: Any) -> Incident:
    """A page that was just opened."""
    known: dict[str, Any] = {"severity": Severity.PAGE, "title": "it waits", "opened": START, "updated": START}
    return Incident(key=key, **{**known, **fields})


def restored(tracked: Tracked) -> Tracked:
    """As the next leader reads it."""
    status = IncidentStatus(shared=tracked.shared, scope=tracked.scope, began=tracked.began)
    record = IncidentRecord(metadata=ObjectMeta(name="x"), spec=tracked.incident, status=status)
    read = msgspec.json.decode(msgspec.json.encode(record), type=IncidentRecord)
    return Tracked(
        incident=read.spec, shared=Shared(read.status.shared), scope=read.status.scope, began=read.status.began
    )


class Controller:
    """Incidents over time, as a controller stores them."""

    def __init__(self, policy: AlertsPolicy | None = None, nodes: Mapping[str, Node] | None = None) -> None:
        self.policy = policy or AlertsPolicy()
        self.nodes = nodes or {}
        self.known: dict[str, Tracked] = {}
        self.cluster = ""

    def look(self, problems: Iterable[Problem], now: datetime) -> list[Incident]:
        """What changed."""
        context = Context(policy=self.policy, nodes=self.nodes, domain_label=RACK, now=now, cluster=self.cluster)
        changed = incidents_now(problems, self.known, context)
        self.known |= {each.incident.key: each for each in changed}
        return [each.incident for each in changed]

    def open(self) -> dict[str, Incident]:
        """All that is open, by key."""
        return {key: each.incident for key, each in self.known.items() if each.incident.resolved is None}

    def pages(self) -> list[str]:
        """The keys of the open pages."""
        return [key for key, each in self.open().items() if each.severity is Severity.PAGE]
