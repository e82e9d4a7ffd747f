"""How the controller sets its metrics; names and meanings are in `healthd.telemetry.metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime

from healthd.controller.cache.cluster_state import ClusterState
from healthd.core.api import Recovery, RecoveryStatus
from healthd.core.api.model import ENDED, Phase
from healthd.core.node.quarantine import read_record
from healthd.core.node.reporting import is_silent
from healthd.core.recovery.breaker import counted_nodes
from healthd.core.recovery.gang import RootOutcome
from healthd.core.recovery.hangs.silence_record import confirmed_silence, open_silence
from healthd.core.recovery.holds import hold_of
from healthd.core.recovery.nodes.spares import is_fit
from healthd.telemetry.metrics import GivenUpGang, HangingGang, HeldGang, Metrics, RecoveringGang


def measure_world(metrics: Metrics, cluster_state: ClusterState, invalid: Collection[str] = ()) -> None:
    """Set the gauges from the cluster state. *invalid*: uids of gangs that, for example, their pods make invalid."""
    holds = [hold_of(recovery.status) for recovery in cluster_state.active_recoveries()]
    metrics.recovery_in_progress.set(len(holds))
    metrics.show_held(Counter(hold for hold in holds if hold is not None))
    metrics.show_standstills(_held(cluster_state), _given_up(cluster_state))
    metrics.show_recovering(_recovering(cluster_state))
    metrics.show_quarantined(dict(_quarantined(cluster_state)))
    roots = [root for root in cluster_state.roots.values() if root.options.restart]
    metrics.show_gangs(roots, invalid=invalid)
    nodes, health = cluster_state.nodes, cluster_state.health
    spares = cluster_state.spare_nodes
    unfit = sum(not is_fit(nodes.get(name), health.get(name)) for name in spares)
    metrics.show_spares(free=len(spares), unfit=unfit, claimed=len(cluster_state.claimed_nodes))


def measure_agents(metrics: Metrics, cluster_state: ClusterState, now: datetime) -> None:
    """Count the nodes without a live agent. It reads every node."""
    names = [node.metadata.name for node in counted_nodes(cluster_state.nodes.values())]
    reports = (cluster_state.health.get(name) for name in names)
    metrics.nodes_without_agent.set(sum(is_silent(one.status if one else None, now) for one in reports))


def measure_hangs(metrics: Metrics, cluster_state: ClusterState, now: datetime) -> None:
    """Show the gangs that hang, as their records and their agents say."""
    metrics.show_hanging(_hanging(cluster_state, now))


def _hanging(cluster_state: ClusterState, now: datetime) -> Iterator[HangingGang]:
    for root in cluster_state.roots.values():
        if not root.options.restart or open_silence(root, now) is None:
            continue
        silence = confirmed_silence(cluster_state.view(root.ref), now)
        if silence is not None:
            yield HangingGang(root.ref.namespace, root.ref.name, silence.since)


def _held(cluster_state: ClusterState) -> Iterator[HeldGang]:
    for recovery in cluster_state.active_recoveries():
        gang, since = recovery.spec.gang, recovery.status.phase_since
        if (hold := hold_of(recovery.status)) is not None and since is not None:
            yield HeldGang(gang.namespace, gang.name, hold, since)


def _recovering(cluster_state: ClusterState) -> Iterator[RecoveringGang]:
    for recovery in cluster_state.active_recoveries():
        gang, status = recovery.spec.gang, recovery.status
        since = status.phase_since or recovery.metadata.creation_timestamp
        if status.phase is not Phase.HELD and since is not None:
            moves_from = max(since, status.not_before or since)
            yield RecoveringGang(gang.namespace, gang.name, status.phase, moves_from)


def _given_up(cluster_state: ClusterState) -> Iterator[GivenUpGang]:
    """The gangs whose last recovery gave up, and that no person has started again since."""
    for root in cluster_state.roots.values():
        if not root.options.restart or not (root.suspended or root.ending is RootOutcome.FAILED):
            continue
        last = next(iter(cluster_state.of_gang(root.ref)), None)
        if last is not None and last.status.phase is Phase.GAVE_UP and last.status.phase_since is not None:
            yield GivenUpGang(root.ref.namespace, root.ref.name, last.status.phase_since)


def _quarantined(cluster_state: ClusterState) -> Iterator[tuple[str, datetime]]:
    for name in cluster_state.quarantined_nodes:
        if (record := read_record(cluster_state.nodes[name])) is not None:
            yield name, record.since


def measure_detection(metrics: Metrics, before: Recovery, after: Recovery) -> None:
    """Measure how long the fault took to be found, with the first record of a recovery."""
    if not before.status.timeline and after.status.timeline:
        cause = after.spec.cause
        seconds = (after.status.timeline[0].at - cause.at).total_seconds()
        metrics.recovery_detection_seconds.labels(cause.kind.value).observe(max(0.0, seconds))


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
