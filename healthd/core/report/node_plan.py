"""What `healthd doctor node/NAME` says: which rung would be taken on a node, why, and what would come after. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from healthd.core.api.remediations import NodePhase, Rung, RungAttempt
from healthd.core.phrases import some
from healthd.core.printable import printable
from healthd.core.remediation.ladder import LADDER, Step, next_step
from healthd.core.remediation.situation import NodeSituation, PersonsWord
from healthd.core.remediation.taking_over import fault_of

_DOES = {
    Rung.NONE: "check it",
    Rung.RESTART_DAEMON: "restart a daemon on it",
    Rung.RESET_GPU: "reset its GPUs",
    Rung.REBOOT: "reboot it",
    Rung.POWER_CYCLE: "cut its power and restore it",
    Rung.REPLACE: "replace it",
    Rung.PERSON: "wait for a person",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """The rungs of a quarantined node from the next one on; none: it is in service. *waits*: what stands in the way."""

    node: str
    steps: tuple[Step, ...] = ()
    waits: tuple[str, ...] = ()
    now: str = ""
    """What its record says, where healthd repairs it already: the phase and why."""
    lacking: tuple[str, ...] = ()
    """Hands that were named and of which the cluster shows nothing."""


def plan_of(s: NodeSituation, lacking: Sequence[str] = ()) -> NodePlan:
    """The plan for the node of *s*, as if each rung did not help."""
    if s.quarantine is None:
        return NodePlan(node=s.name, lacking=tuple(lacking))
    now = "" if s.status.phase is NodePhase.IN_SERVICE else f"{s.status.phase}: {s.status.message}"
    s = replace(s, status=msgspec.structs.replace(s.status, phase=NodePhase.DRAINED, fault=fault_of(s.quarantine)))
    return NodePlan(node=s.name, steps=tuple(_steps(s)), waits=tuple(_waits(s)), now=now, lacking=tuple(lacking))


def plan_text(plan: NodePlan) -> str:
    """For people."""
    lacking = [f"not here   {name}" for name in plan.lacking]
    if not plan.steps:
        return "\n".join([f"node/{plan.node} is in service: there is nothing to do", *lacking])
    first, *later = plan.steps
    lines = [f"node/{plan.node}: the next rung is to {_spoken(first)}", f"because    {printable(first.why)}"]
    lines += [f"then       {_spoken(step)}" for step in later]
    lines += [f"now        {printable(plan.now)}"] if plan.now else []
    lines += [f"first      {printable(why)}" for why in plan.waits]
    note = (
        "Rungs are taken by themselves only where `remediation` is configured. "
        f"After the repair: healthd repair {plan.node}"
    )
    return "\n".join([*lines, *lacking, note])


def _spoken(step: Step) -> str:
    return f"{_DOES[step.rung]}{f', by {step.hand.name}' if step.hand else ''}"


def _steps(s: NodeSituation) -> Iterator[Step]:
    for number in range(1, len(LADDER) + 1):
        step = next_step(s)
        yield step
        if step.rung is Rung.PERSON:
            return
        tried = RungAttempt(number=number, fault=s.status.fault, rung=step.rung, at=s.now, message="it did not help")
        s = replace(s, status=msgspec.structs.replace(s.status, attempts=[*s.status.attempts, tried]))


def _waits(s: NodeSituation) -> Iterator[str]:
    if s.word is not PersonsWord.NOTHING:
        yield f"a person said {s.word} (healthd.dev/remediation)"
    if s.node is not None and not s.node.spec.unschedulable:
        yield "a person uncordoned it during its quarantine"
    if s.other_remediator:
        yield f"{s.other_remediator} repairs it: that must end"
    if s.occupants:
        yield f"the end of {some(s.occupants)}: nothing that runs is killed"
