"""The problems of gangs: recoveries that wait, that were given up, that go on, or that have just ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from healthd.core.alerts.advice import IN_CLUSTER, Advice, advised, filled
from healthd.core.alerts.problem import Problem, Shared, as_text
from healthd.core.api import GangRef, Node, NodeHealth, Recovery
from healthd.core.api.incidents import Severity, key_of
from healthd.core.api.model import Hold, Phase
from healthd.core.recovery.faults import blames_node
from healthd.core.recovery.gang import Root, RootOutcome
from healthd.core.recovery.holds import hold_of
from healthd.core.recovery.recovery_status import blamed, gang_text
from healthd.core.report.explain import explain
from healthd.core.report.explain_text import Sentences, sentences
from healthd.core.shell_words import shell_word

JUST_ENDED = timedelta(minutes=15)
"""A recovery that ended so lately is reported, also when no leader saw it going on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gangs:
    """What is known of gangs and their nodes."""

    nodes: Mapping[str, Node]
    health: Mapping[str, NodeHealth]
    root: Callable[[GangRef], Root | None]
    """The root of a gang; None when it is gone."""
    advice: Advice = IN_CLUSTER


class _Wait(NamedTuple):
    """What is said of a recovery that waits for something."""

    reason: str
    runbook: str
    rank: int


WAITS: Mapping[Hold, _Wait] = {
    Hold.BREAKER: _Wait("the breaker is open", "breaker-open", 50),
    Hold.BUDGET: _Wait("the budget of quarantines is used up", "budget-used-up", 40),
    Hold.FENCE: _Wait("old pods may still write", "fence", 30),
    Hold.SPARE: _Wait("no spare", "no-spare", 20),
    Hold.NODE: _Wait("it came back to a bad node", "came-back-to-bad-node", 10),
    Hold.CHECKPOINT: _Wait("nothing to resume from", "nothing-to-resume-from", 10),
    Hold.PODS: _Wait("its pods are not made", "pods-not-made", 10),
    Hold.PROGRAM: _Wait("it hangs again in the same place", "hangs-in-same-place", 10),
    Hold.INVALID: _Wait("its annotations cannot be read", "invalid-gang", 10),
}
_BY_NODES = frozenset({Hold.BUDGET, Hold.FENCE, Hold.SPARE})
"""Holds that are ended by work on the nodes, for all gangs at once."""


def may_matter(recovery: Recovery, now: datetime) -> bool:
    """False for what is history: most recoveries are, and this is asked for each."""
    status = recovery.status
    if status.phase is Phase.RECOVERED:
        return status.ended_at is not None and now - status.ended_at < JUST_ENDED
    return status.phase is not Phase.SUPERSEDED


def problem_of(recovery: Recovery, seen: Gangs, now: datetime, *, is_newest: bool) -> Iterator[Problem]:
    """The problem of one recovery, or none."""
    if not may_matter(recovery, now):
        return
    match recovery.status.phase:
        case Phase.RECOVERED:
            yield _recovered(recovery, seen, now)
        case Phase.GAVE_UP:
            if is_newest and _is_left_alone(seen.root(recovery.spec.gang)):
                yield _gave_up(recovery, seen, now)
        case Phase.HELD:
            yield _held(recovery, seen, now)
        case _:
            yield _going_on(recovery, seen, now)


def newest_given_up(recoveries: Collection[Recovery]) -> dict[str, Recovery]:
    """The newest recovery of each gang of which one was given up, by the uid of its root."""
    given_up = {each.spec.gang.uid for each in recoveries if each.status.phase is Phase.GAVE_UP}
    newest: dict[str, Recovery] = {}
    for each in (each for each in recoveries if each.spec.gang.uid in given_up) if given_up else ():
        known = newest.setdefault(each.spec.gang.uid, each)
        if each.spec.first_attempt > known.spec.first_attempt:
            newest[each.spec.gang.uid] = each
    return newest


def _is_left_alone(root: Root | None) -> bool:
    """Whether a gang that was given up is as healthd left it: not started again, not deleted, not ended."""
    return root is not None and root.suspended and not root.deleting and root.ending is RootOutcome.NOT_ENDED


def _held(recovery: Recovery, seen: Gangs, now: datetime) -> Problem:
    status = recovery.status
    hold = hold_of(status) or Hold.INVALID
    wait = WAITS[hold]
    shared, scope = _shared(recovery, hold)
    return replace(
        _going_on(recovery, seen, now),
        severity=Severity.PAGE,
        shared=shared,
        scope=scope,
        reason=wait.reason,
        title=f"{_subject(recovery, seen)} waits: {status.message}",
        todo=as_text([advised(hold, recovery, seen.advice)]),
        runbook=wait.runbook,
        rank=wait.rank,
    )


def _shared(recovery: Recovery, hold: Hold) -> tuple[Shared, str]:
    if hold is Hold.BREAKER and not any(map(blames_node, recovery.status.causes or [recovery.spec.cause])):
        return Shared.RESTARTS, recovery.metadata.namespace
    return (Shared.NODES, "") if hold is Hold.BREAKER or hold in _BY_NODES else (Shared.NONE, "")


def _gave_up(recovery: Recovery, seen: Gangs, now: datetime) -> Problem:
    return replace(
        _going_on(recovery, seen, now),
        severity=Severity.PAGE,
        reason="given up",
        title=f"{_subject(recovery, seen)} was given up: {recovery.status.message}",
        todo=as_text([filled(seen.advice.given_up, recovery)]),
        runbook="gave-up",
        rank=10,
    )


def _recovered(recovery: Recovery, seen: Gangs, now: datetime) -> Problem:
    status = recovery.status
    out = [name for name in blamed(status) if name in seen.nodes and seen.nodes[name].spec.unschedulable]
    return replace(
        _going_on(recovery, seen, now),
        reason="recovered",
        title=f"{_subject(recovery, seen)} makes progress again after {status.took or 'its restart'}",
        todo=as_text(f"once {name} is repaired: `{_repair(seen.advice, name)}`" for name in out[:3]),
        resolved=status.ended_at or now,
    )


def _going_on(recovery: Recovery, seen: Gangs, now: datetime) -> Problem:
    """The recovery as one that goes on."""
    meta, status, gang = recovery.metadata, recovery.status, gang_text(recovery.spec.gang)
    first = (status.causes or [recovery.spec.cause])[0]
    advice = seen.advice
    story = sentences(explain(recovery, seen.nodes, seen.health, now), advice.terms)
    return Problem(
        key=key_of("recovery", meta.namespace, meta.name),
        since=status.timeline[0].at if status.timeline else meta.creation_timestamp or now,
        severity=Severity.NOTICE,
        cause=recovery.spec.cause.kind.value,
        reason="is being recovered",
        subject=_subject(recovery, seen),
        title=f"{_subject(recovery, seen)} is being restarted: {first.message}",
        namespace=meta.namespace if advice.has_namespaces else "",
        gang=gang if advice.has_namespaces else recovery.spec.gang.name,
        nodes=tuple(sorted(blamed(status) or filter(None, [first.node]))),
        happened=as_text(story.cause),
        did=_did(story, recovery),
        command=filled(advice.ask_gang, recovery),
        runbook="recovery",
    )


def _did(story: Sentences, recovery: Recovery) -> str:
    status = recovery.status
    held = f" in {status.held_in}" if status.held_in else ""
    return as_text([*story.decision, f"it is {status.phase}{held} now: {status.message}"])


def _subject(recovery: Recovery, seen: Gangs) -> str:
    gang = recovery.spec.gang
    return seen.advice.subject.format(gang=gang_text(gang), name=gang.name, namespace=recovery.metadata.namespace)


def _repair(advice: Advice, node: str) -> str:
    return advice.repair.format(node=shell_word(node, "NODE"))
