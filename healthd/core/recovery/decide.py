"""
The recovery of one gang: one fault, one restart.

    Detected → Stopping → Fencing → Choosing → Reserving → Starting → Confirming → Recovered
    or Held (it leaves Held when what it waits for is there), GaveUp, Superseded.

`decide` only computes; the controller acts. A decision has *either* a status to record *or* actions to do, never both.
So every intent is recorded before its action, and when a controller dies at any point, the next one continues: each
phase reads the current state, does what is missing, and ends when its goal is observed.

When a member fails, the gang is stopped at once and the cause is judged later: a root with a small retry limit would
be Failed for good within seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from healthd.core.api import Cause, GangRef, ObjectMeta, Recovery, RecoverySpec, RecoveryStatus
from healthd.core.api.model import Phase
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.gang import GangView, Root, RootOutcome
from healthd.core.recovery.holds import UNREADABLE, is_held_as
from healthd.core.recovery.phases.fencing import fencing
from healthd.core.recovery.phases.planning import choosing, reserving
from healthd.core.recovery.phases.starting import confirming, starting
from healthd.core.recovery.phases.stepping_aside import stepped_aside
from healthd.core.recovery.phases.stopping import detected, stopping
from healthd.core.recovery.planned.growth import recorded
from healthd.core.recovery.situation import Decision, Situation, begin, enter, stopped_at
from healthd.core.untrusted import number_or

__all__ = ["Decision", "Situation", "decide", "open_recovery", "stopped_at"]

SKEW = timedelta(minutes=1)
"""By so much the clocks of two controllers may differ unnoticed."""
_UID_PREFIXES = (5, 8, 36)
"""Characters of a gang's uid in the names of its recoveries. A longer prefix is used only when a shorter one is not
unique."""


def open_recovery(root: Root, cause: Cause, earlier: Sequence[Recovery] = (), others: Collection[str] = ()) -> Recovery:
    """
    The Recovery object to create for *cause*. *earlier* are all recoveries of the gang so far, the latest first.

    Its name follows from the gang and the attempt that it will start. So two controllers that see the same fault
    create the same object, and the API server accepts only one of them. The name of a recovery that ended before it
    started its attempt (superseded, given up) is not used again: the next one for that attempt gets the next number,
    also where a person deleted some of them. *others* are the names of recoveries of other gangs, such as an earlier
    gang with the same name.
    """
    attempt, gang = root.attempt + 1, root.ref
    tries = _next_number([each.metadata.name for each in earlier if each.spec.first_attempt == attempt], gang, attempt)
    number = f"{attempt}-{tries}" if tries else str(attempt)
    names = [f"{gang.name}-{gang.uid[:length]}-{number}" for length in _UID_PREFIXES]
    name = next((name for name in names if name not in others), names[-1])
    spec = RecoverySpec(
        gang=root.ref,
        first_attempt=attempt,
        cause=cause,
        pod_labels=dict(root.hint_labels),
        shrunk=recorded(earlier, root),
        gang_started_at=root.started_at,
    )
    return Recovery(metadata=ObjectMeta(name=name, namespace=root.ref.namespace), spec=spec)


def _next_number(names: Sequence[str], gang: GangRef, attempt: int) -> int:
    """The number after those in *names*, of the gang's recoveries that began at *attempt*; the first has none."""
    numbers = [len(names) - 1]
    for name, length in itertools.product(names, _UID_PREFIXES):
        number = name.removeprefix(f"{gang.name}-{gang.uid[:length]}-{attempt}-")
        numbers.append(number_or(number, 0) if number != name else 0)
    return 1 + max(numbers)


def decide(
    recovery: Recovery,
    view: GangView,
    faults: Sequence[Cause],
    policy: RecoveryPolicy,
    now: datetime,
    refusal: str = "",
) -> Decision:
    """
    The next decision for *recovery*. *faults* are the faults of the root's present attempt (`core.recovery.faults`);
    *refusal* is why the breaker would not let it through now, or empty.
    """
    status = recovery.status
    root = view.root
    if not status.timeline:
        # The first status and the next step are one write: a root with a small retry limit is Failed within 2 s.
        begun = begin(recovery, now)
        then = decide(replace(recovery, status=begun), view, faults, policy, now, refusal)
        return then if then.record is not None else Decision(record=begun, reason=f"{begun.phase}: {begun.message}")
    if (dated := _dated_again(status, policy, now)) != status:
        return Decision(record=dated, reason="its times lie ahead of this clock, and are set to it")
    gang = recovery.spec.gang
    if root is None or root.ref.uid != gang.uid:
        message = f"the gang is not there: no {gang.kind} {gang.name} in {gang.namespace} has the uid {gang.uid}"
        return enter(status, Phase.SUPERSEDED, message, now)
    if root.deleting:
        return enter(status, Phase.SUPERSEDED, "the gang was deleted", now)
    phase = status.held_in if status.phase is Phase.HELD and status.held_in else status.phase
    situation = Situation(recovery, status, phase, view, root, tuple(faults), policy, now, refusal)
    if root.invalid and root.ending is RootOutcome.NOT_ENDED:
        return situation.hold(f"{UNREADABLE}: {'; '.join(root.invalid)}")
    if is_held_as(status, UNREADABLE):
        return situation.enter(phase, "the gang can be read again")
    return stepped_aside(situation) or _PHASES[phase](situation)


def _dated_again(status: RecoveryStatus, policy: RecoveryPolicy, now: datetime) -> RecoveryStatus:
    """
    *status* without times ahead of *now*: a controller whose clock is ahead wrote them, or this clock was set back.

    Else a gang would wait for as long as the clocks differ, on top of what it has to wait for.
    """
    since, start = status.phase_since, status.not_before
    if since is not None and since > now + SKEW:
        status = replace(status, phase_since=now)
    if start is not None and start > now + policy.backoff_max + SKEW:
        status = replace(status, not_before=now + policy.backoff_max)
    return status


_PHASES: dict[Phase, Callable[[Situation], Decision]] = {
    Phase.DETECTED: detected,
    Phase.STOPPING: stopping,
    Phase.FENCING: fencing,
    Phase.CHOOSING: choosing,
    Phase.RESERVING: reserving,
    Phase.STARTING: starting,
    Phase.CONFIRMING: confirming,
}
