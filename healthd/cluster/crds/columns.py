"""How the kinds appear on the command line: short names, and the columns of `kubectl get`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from healthd.cluster.crds.rules import Schema
from healthd.core.api import (
    HardwareHistory,
    IncidentRecord,
    NodeHealth,
    NodeRemediation,
    PodGang,
    Recovery,
    RootCopy,
)
from healthd.core.api.meta import Slim


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`. *wide* ones are shown with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    wide: bool = False

    def to_schema(self) -> Schema:
        """The column as JSON for the definition."""
        description = {"description": self.description} if self.description else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **description, "priority": int(self.wide)}


@dataclass(frozen=True, slots=True)
class Presentation:
    """How a kind appears on the command line."""

    short: Sequence[str]
    columns: Sequence[Column]


PRESENTATIONS: Mapping[type[Slim], Presentation] = {
    NodeHealth: Presentation(
        short=["nh"],
        columns=[
            Column("Verdict", ".status.verdict", description="What all findings of the node add up to."),
            Column("Seen", ".status.seenAt", "date", "How long ago the agent reported; hours: it is dead."),
            Column("Message", ".status.message", description="The worst finding, in words."),
            Column("Lost", ".status.lostRecords", "integer", "Kernel records that were overwritten unread.", wide=True),
            Column("Boot", ".status.bootId", description="The boot in which this was seen.", wide=True),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ],
    ),
    Recovery: Presentation(
        short=["rcv"],
        columns=[
            Column("Gang", ".status.gang", description="The gang that is restarted."),
            Column("Cause", ".spec.cause.kind", description="What kind of fault it was."),
            Column("Node", ".status.badNodes", description="The nodes to blame, if any are."),
            Column("Phase", ".status.phase", description="Where the recovery stands."),
            Column("Attempt", ".status.attempt", "integer", "The start that is prepared or confirmed."),
            Column("From", ".status.resumesFrom", description="The checkpoint that was chosen."),
            Column("Running", ".status.runningAfter", description="From the fault until all members ran again."),
            Column("Took", ".status.took", description="From the fault to the end: to confirmed progress."),
            Column("Age", ".metadata.creationTimestamp", "date"),
            Column("Message", ".status.message", description="Why it is in this phase."),
            Column("Confirmed", ".status.confirmedStep", "integer", "The step that showed the progress.", wide=True),
        ],
    ),
    IncidentRecord: Presentation(
        short=["inc"],
        columns=[
            Column("Severity", ".spec.severity", description="Whether a person must act."),
            Column("Title", ".spec.title", description="What is wrong with what."),
            Column("Namespace", ".spec.namespace", description="The namespace of its gang."),
            Column("Opened", ".spec.opened", "date", "How long ago it began."),
            Column("Resolved", ".spec.resolved", "date", "How long ago it ended; empty while it is open."),
            Column("Todo", ".spec.todo", description="What is left for a person.", wide=True),
            Column("Age", ".metadata.creationTimestamp", "date", wide=True),
        ],
    ),
    HardwareHistory: Presentation(
        short=["hh"],
        columns=[
            Column("Node", ".spec.node", description="The name of its Node now, or of its last one."),
            Column("Model", ".spec.model", description="The GPUs in it."),
            Column("Since", ".spec.since", "date", "How long ago healthd first saw it."),
            Column("Age", ".metadata.creationTimestamp", "date", wide=True),
        ],
    ),
    RootCopy: Presentation(
        short=["rootc"],
        columns=[
            Column("Namespace", ".spec.gang.namespace", description="Where the root was."),
            Column("Kind", ".spec.gang.kind"),
            Column("Name", ".spec.gang.name"),
            Column("Recovery", ".spec.recovery", description="The recovery that makes it again."),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ],
    ),
    NodeRemediation: Presentation(
        short=["nr"],
        columns=[
            Column("Phase", ".status.phase", description="Where the life of the node stands."),
            Column("Since", ".status.phaseSince", "date", "For how long it has been in this phase."),
            Column("Message", ".status.message", description="Why it is in this phase, or what it waits for."),
            Column("Relapses", ".status.relapses", "integer", "Faults during the probation before.", wide=True),
            Column("Age", ".metadata.creationTimestamp", "date", wide=True),
        ],
    ),
    PodGang: Presentation(
        short=["pg"],
        columns=[
            Column("Size", ".spec.size", "integer", "How many pods run at once."),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ],
    ),
}
