"""What an agent is made of: its node, what it talks to, and the policies that it follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from healthd.agent.judge import NodeFacts
from healthd.agent.node_view import AskedNode, NodeView
from healthd.clock import Clock
from healthd.cluster.port import Cluster
from healthd.core.api import Device
from healthd.core.backoff import Jitter, no_jitter
from healthd.core.config import JudgePolicy, QuarantinePolicy
from healthd.core.diagnosis.findings import BY_DEFAULT
from healthd.core.diagnosis.signals.rule import Rule
from healthd.telemetry.events import Announce, silently
from healthd.telemetry.metrics import Metrics


def none_to_pause(_on: bool) -> None:
    """For an agent that has no GPU open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDependencies:
    """What the agent of one node gets from outside."""

    node: NodeFacts
    cluster: Cluster
    clock: Clock
    metrics: Metrics
    quarantine: QuarantinePolicy
    judge: JudgePolicy = BY_DEFAULT
    rules: Sequence[Rule] = ()
    """The rules about readings. The kernel log's rules are always applied."""
    expected: Mapping[str, str] = field(default_factory=dict)
    """Why a source should have readings, by source, where the configuration requires it."""
    inventory: Sequence[Device] = ()
    """The GPUs of the node, where they are known from the start."""
    view: NodeView | None = None
    """How the agent reads its node. None: it asks the cluster each time."""
    announce: Announce = silently
    jitter: Jitter = no_jitter
    report_within: timedelta = timedelta(0)
    """
    After a quarantine, done or refused, the report follows in the second half of this time, and then the event on the
    node: where many nodes fail at once, the reports of the first nodes must not delay the cordons of the last.
    """
    pause_gpus: Callable[[bool], None] = none_to_pause
    """Called with True while the GPUs are being reset: nothing of the agent may have them open then."""
    repair: str = ""
    """The command that marks the node as repaired. Empty: `healthd repair` of the node."""

    @property
    def node_view(self) -> NodeView:
        """How the agent reads its node."""
        return self.view or AskedNode(self.cluster, self.node.name)

    @property
    def repair_command(self) -> str:
        """The command that marks the node as repaired."""
        return self.repair or f"healthd repair {self.node.name}"
