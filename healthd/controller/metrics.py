"""How the controller sets its metrics; names and meanings are in `healthd.telemetry.metrics`."""

from __future__ import annotations

from collections import Counter

from healthd.controller.cluster_state import ClusterState
from healthd.core.api import Recovery, RecoveryStatus
from healthd.core.api.model import ENDED, Phase
from healthd.core.recovery.breaker import hold_of
from healthd.telemetry.metrics import Metrics


def measure_world(metrics: Metrics, cluster_state: ClusterState) -> None:
    """Set the gauges from the cluster state."""
    metrics.spares.set(len(cluster_state.spare_nodes))
    holds = [hold_of(recovery.status) for recovery in cluster_state.active_recoveries()]
    metrics.recovery_in_progress.set(len(holds))
    metrics.show_held(Counter(hold for hold in holds if hold is not None))
    metrics.quarantined_nodes.set(len(cluster_state.quarantined_nodes))
    metrics.show_gangs(root for root in cluster_state.roots.values() if root.options.restart)


def measure_move(metrics: Metrics, before: Recovery, after: Recovery) -> None:
    """Count what ended with the step from *before* to *after*."""
    left, entered = before.status, after.status
    if left.phase_since is not None and entered.phase_since is not None:
        seconds = (entered.phase_since - left.phase_since).total_seconds()
        metrics.recovery_phase_seconds.labels(left.phase.value).observe(max(0.0, seconds))
    if entered.phase is not left.phase and entered.timeline:
        since_fault = (entered.timeline[-1].at - entered.timeline[0].at).total_seconds()
        if entered.phase is Phase.CONFIRMING:
            metrics.recovery_running_seconds.observe(max(0.0, since_fault))
        if entered.phase is Phase.RECOVERED:
            metrics.recovery_confirmed_seconds.observe(max(0.0, since_fault))
    if entered.phase in ENDED:
        metrics.count_ended(after.spec.cause.kind, entered.phase)
    refused = {each.path for each in entered.rejected} - {each.path for each in left.rejected}
    metrics.checkpoint_rejected.inc(len(refused))
    if entered.phase is Phase.RESERVING and Phase.CHOOSING in (left.phase, left.held_in):
        metrics.lost_steps.inc(_lost_steps(entered))


def _lost_steps(status: RecoveryStatus) -> int:
    """Steps that were done and must be done again; 0 where the step of the checkpoint is not known."""
    if status.checkpoint is None or (status.checkpoint.path and status.checkpoint.step < 0):
        return 0
    return max(0, status.step_at_fault - max(0, status.checkpoint.step))
