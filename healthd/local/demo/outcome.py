"""
The result of a demo: did everything happen as in the script, and are the weights equal? Pure, except for reading two
checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from healthd.core.api.model import CauseKind, Phase
from healthd.core.report.explain import Explanation, explain, milliseconds
from healthd.core.report.explain_text import duration
from healthd.local.demo import trainer
from healthd.local.demo.play import DemoEnding
from healthd.local.demo.scene import ClusterSnapshot, Scene
from healthd.local.demo.script import DemoFolders, Script


class ResumedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint that a recovery resumed from."""

    step: int
    path: str


class RefusedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A newer checkpoint that would not have loaded."""

    step: int
    path: str
    reason: str


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """One recovery of the demo. *phases* is name -> milliseconds."""

    name: str
    outcome: str
    cause: str
    message: str
    node: str
    ms: float | None
    phases: dict[str, float]
    checkpoint: ResumedCheckpoint | None
    rejected: list[RefusedCheckpoint]
    spares: dict[str, str]
    lost_steps: int


class DemoOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a demo. *lost_ms*: how long training was behind the step that it had already reached."""

    as_expected: bool
    differences: list[str]
    weights_equal: bool
    weights: str
    lost_steps: int
    lost_ms: float
    seconds: float
    undisturbed_seconds: float
    recoveries: list[Recovered]
    state: str | None = None
    """The path of the state folder, when it was kept."""

    @property
    def is_good(self) -> bool:
        """Both: it happened as in the script, and the weights are equal."""
        return self.as_expected and self.weights_equal


def judge(
    script: Script, place: DemoFolders, scene: Scene, ending: DemoEnding, seconds: float, *, kept: bool
) -> DemoOutcome:
    """The outcome of a demo that took *seconds*."""
    calm, disturbed = weights_of(place.calm, script), weights_of(place.checkpoints, script)
    differences = list(differ(script, scene.world, ending))
    return DemoOutcome(
        as_expected=not differences,
        differences=differences,
        weights_equal=bool(calm) and calm == disturbed,
        weights=disturbed,
        lost_steps=scene.training.all_lost_steps,
        lost_ms=milliseconds(scene.training.lost_time),
        seconds=round(seconds, 3),
        undisturbed_seconds=round(ending.undisturbed.total_seconds(), 3),
        recoveries=[_recovered(found, scene) for found in explanations(scene.world)],
        state=str(place.root) if kept else None,
    )


def explanations(world: ClusterSnapshot) -> list[Explanation]:
    """Each recovery, explained from the recorded state alone."""
    return [explain(recovery, world.nodes, world.health) for recovery in world.recoveries]


def weights_of(checkpoints: Path, script: Script) -> str:
    """A digest of the weights after the last step. Empty when that step was never saved completely."""
    try:
        return trainer.digest(trainer.load(checkpoints / f"step-{script.steps:06}"))
    except (OSError, ValueError, KeyError):
        return ""


def _recovered(found: Explanation, scene: Scene) -> Recovered:
    cause, checkpoint = found.causes[0], found.checkpoint
    return Recovered(
        name=found.recovery,
        outcome=found.phase.value,
        cause=cause.kind.value,
        message=cause.message,
        node=cause.node,
        ms=found.ms,
        phases=found.phases,
        checkpoint=ResumedCheckpoint(step=checkpoint.step, path=checkpoint.path) if checkpoint else None,
        rejected=[RefusedCheckpoint(step=r.step, path=r.path, reason=r.reason) for r in found.rejected],
        spares=found.replacements,
        lost_steps=sum(scene.training.lost_steps(attempt.number) for attempt in found.attempts),
    )


def differ(script: Script, world: ClusterSnapshot, ending: DemoEnding) -> Iterator[str]:
    """The differences between the events and the script."""
    if ending.broke_off:
        yield f"it ended while the story waited for {ending.broke_off}"
    if ending.exit_code != 0:
        yield (
            f"the training ended with exit code {ending.exit_code}" if ending.exit_code else "the training did not end"
        )
    if world.quarantined != [script.node(script.broken)]:
        yield f"in quarantine: {world.quarantined or 'nothing'}, expected {script.node(script.broken)} alone"
    if len(world.recoveries) != 2:
        yield f"there were {len(world.recoveries)} recoveries, expected 2"
        return
    first, second = explanations(world)
    yield from _differ_from_hardware(script, first)
    yield from _differ_from_software(script, second)


def _differ_from_hardware(script: Script, found: Explanation) -> Iterator[str]:
    yield from _differ_from_recovered(found, CauseKind.HARDWARE, script.torn_at - script.every)
    if script.torn_at not in {refused.step for refused in found.rejected}:
        yield f"{found.recovery}: the torn checkpoint of step {script.torn_at} was not refused"
    if list(found.replacements) != [script.node(script.broken)]:
        yield f"{found.recovery}: replaced {found.replacements or 'nothing'}, expected {script.node(script.broken)}"


def _differ_from_software(script: Script, found: Explanation) -> Iterator[str]:
    yield from _differ_from_recovered(found, CauseKind.SOFTWARE, (script.crash_at - 1) // script.every * script.every)
    if found.replacements:
        yield f"{found.recovery}: used a spare for a fault of the software: {found.replacements}"


def _differ_from_recovered(found: Explanation, kind: CauseKind, step: int) -> Iterator[str]:
    if found.phase is not Phase.RECOVERED:
        yield f"{found.recovery}: {found.phase}, {found.message}"
    if found.causes[0].kind is not kind:
        yield f"{found.recovery}: taken for {found.causes[0].kind}, expected {kind}"
    if len(found.attempts) != 1:
        yield f"{found.recovery}: {len(found.attempts)} starts, expected one"
    if found.checkpoint is None or found.checkpoint.step != step:
        yield f"{found.recovery}: resumed from {found.checkpoint}, expected step {step}"


def outcome_lines(outcome: DemoOutcome, *, phases: bool = True) -> Iterator[str]:
    """The outcome for people. The last line is the result. Without *phases*, the phases are shown elsewhere."""
    for recovery in outcome.recoveries:
        yield _headline(recovery)
        if phases:
            yield "  " + " · ".join(f"{name} {duration(ms)}" for name, ms in recovery.phases.items())
    yield from (f"NOT AS EXPECTED: {difference}" for difference in outcome.differences)
    if outcome.state:
        yield f"kept in {outcome.state}; ask why: healthd explain --state {outcome.state}/state{_first_name(outcome)}"
    lost = f"Lost: {outcome.lost_steps} steps, {duration(outcome.lost_ms)}."
    if outcome.weights_equal:
        yield f"Weights equal, bit for bit, to the undisturbed run ({outcome.weights}). {lost}"
    else:
        yield f"WEIGHTS DIFFER from the undisturbed run. {lost}"


def _first_name(outcome: DemoOutcome) -> str:
    return f" {outcome.recoveries[0].name}" if outcome.recoveries else ""


def _headline(recovery: Recovered) -> str:
    took = f" in {duration(recovery.ms)}" if recovery.ms is not None else ""
    step = f", from step {recovery.checkpoint.step}" if recovery.checkpoint else ""
    refused = "".join(f" (step {r.step} refused)" for r in recovery.rejected)
    spares = "".join(f", {spare} for {bad}" for bad, spare in recovery.spares.items()) or ", no spare"
    return f"{recovery.name}: {recovery.cause}, {recovery.outcome}{took}{step}{refused}{spares}"
