"""What the controller tells its metrics; names and meanings are in `healthd.telemetry.metrics`."""

from __future__ import annotations

from healthd.controller.observe import World
from healthd.core.model import ENDED, Phase
from healthd.core.objects import Recovery
from healthd.core.spares import is_spare
from healthd.telemetry.metrics import Metrics


def measure_world(metrics: Metrics, world: World) -> None:
    """Set the gauges from a snapshot."""
    metrics.spares.set(sum(is_spare(node) for node in world.nodes.values()))
    metrics.recovery_in_progress.set(sum(r.status.phase not in ENDED for r in world.recoveries.values()))
    for root in world.roots.values():
        metrics.show_gang(root.ref.namespace, root.ref.name, attempt=root.attempt, step=root.progress.step)


def measure_move(metrics: Metrics, before: Recovery, after: Recovery) -> None:
    """Count what the step from *before* to *after* brought to an end."""
    left, entered = before.status, after.status
    if left.phase_since is not None and entered.phase_since is not None:
        seconds = (entered.phase_since - left.phase_since).total_seconds()
        metrics.recovery_phase_seconds.labels(left.phase.value).observe(max(0.0, seconds))
    if entered.phase in ENDED:
        metrics.count_ended(after.spec.cause.kind, entered.phase)
    if left.phase is Phase.CHOOSING and entered.checkpoint is not None:
        metrics.lost_steps.inc(max(0, entered.step_at_fault - entered.checkpoint.step))
