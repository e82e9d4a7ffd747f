"""
A root that failed for good because of a node, and that its owner lets healthd make again (`healthd.dev/rebuild`).

No controller lets such a root run again, so another object has to take its place, under its name:

1. In Stopping: the intent is recorded, then the root is copied and deleted, in this order. Its own controller and the
   garbage collector end its members.
2. In Fencing: the end of each member is proven as always. Then the root is made again from the copy, stopped.
3. From Choosing on it is a gang that this recovery has stopped.

A root that its program, its owner or a rule of its owner ended is never made again. A person who deletes the root
first, or makes another one of its name, has decided.
"""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api import ANNOTATION_REBUILD, Cause, Rebuild, Recovery, RecoveryStatus
from healthd.core.api.model import Phase
from healthd.core.recovery.actions import ClaimSpare, MakeRoot, RemoveRoot
from healthd.core.recovery.faults import FAULT_AFTER, blames_node, may_have_ended
from healthd.core.recovery.gang import Failure, Root, RootOutcome
from healthd.core.recovery.nodes.spares import read_claim
from healthd.core.recovery.phases.stopping import members_to_fence
from healthd.core.recovery.situation import Decision, Situation, began
from healthd.core.recovery.terms import ONE_SERVER

FAILED_FOR_GOOD = "the root is failed for good"
"""Prefix of the reason of a recovery that gave up for that."""
GOES_WITHIN = timedelta(minutes=1)
"""How long the deletion of the old root may take before the recovery says that it waits for it."""


def roots_of(recovery: Recovery) -> set[str]:
    """The uids of the roots that *recovery* is about: the gang's, and that of the failed one in whose place it is."""
    rebuild = recovery.status.rebuild
    return {recovery.spec.gang.uid, *([rebuild.uid] if rebuild else [])}


def is_being_rebuilt(status: RecoveryStatus) -> bool:
    """Whether the root is to be made again, and was not yet."""
    return status.rebuild is not None and not status.rebuild.made


def failed_for_good(s: Situation) -> Decision:
    """What becomes of a gang whose root failed for good: it is made again, or the recovery gives up and says why."""
    failure, options = s.root.failure or Failure(), s.root.options
    if s.root.suspended and not s.root.stopped_by:
        return s.enter(Phase.SUPERSEDED, "its user had suspended the gang before it failed; it stays so")
    if failure.kept:
        return _give_up(s, f"may not be rebuilt: {failure.kept}")
    if not options.rebuild:
        unread = f" ({ANNOTATION_REBUILD}: {options.rebuild_unread} is unknown)" if options.rebuild_unread else ""
        return _give_up(s, f"may not be rebuilt{unread}")
    if not options.restart:
        return s.enter(Phase.SUPERSEDED, "restarts of the gang were switched off before it failed; it is left as it is")
    causes = _to_blame(s)
    if not any(may_have_ended(each, s.root) for each in causes):
        left = FAULT_AFTER - (s.now - failure.at) if failure.at else timedelta(0)
        if left > timedelta(0):
            return Decision(reason="waiting for evidence of broken hardware", recheck=min(left, FAULT_AFTER))
        return _give_up(s, f"is not rebuilt: no {s.terms.node} of it was found bad then, so its program ended it")
    if s.refusal:
        return s.hold(s.refusal)
    if s.view.rebuild is not None and s.view.rebuild.refused:
        return _give_up(s, f"cannot be rebuilt: {s.view.rebuild.refused}")
    if s.status.rebuild is None or s.status.rebuild.uid != s.root.ref.uid:
        return _begin(s, causes)
    return Decision(actions=(RemoveRoot(),), reason=f"delete the failed {s.root.ref.kind}, to make it again")


def _to_blame(s: Situation) -> list[Cause]:
    """
    The broken nodes under the attempt that failed: those on record, and those that are not yet.

    What was recorded before this recovery started that attempt was under an earlier one.
    """
    recorded = s.status.causes if s.root.attempt < s.status.attempt else []
    known = [cause for cause in recorded if blames_node(cause)]
    return [*known, *(cause for cause in s.faults if cause.node not in {each.node for each in known})]


def _begin(s: Situation, causes: list[Cause]) -> Decision:
    """Record the intent. A root that failed after this recovery had started it is a further attempt."""
    new = [cause for cause in causes if cause not in s.status.causes]
    is_again = s.root.attempt >= s.status.attempt
    message = f"the {s.root.ref.kind} failed for good; it is deleted, and made again ({ANNOTATION_REBUILD})"
    return s.enter(
        Phase.STOPPING,
        message,
        causes=[*s.status.causes, *new],
        pods=members_to_fence(s),
        attempt=s.root.attempt + 1 if is_again else s.status.attempt,
        rebuild=Rebuild(uid=s.root.ref.uid),
        let_through=s.status.let_through or s.now,
        bad_state=False,
        not_before=None,
        stand_ins={},
    )


def _give_up(s: Situation, why: str) -> Decision:
    if s.terms is ONE_SERVER:
        return s.enter(Phase.GAVE_UP, f"{FAILED_FOR_GOOD} and {why}")
    gang = s.root.ref
    step = f", from step {s.root.progress.step} or later," if s.root.progress.step >= 0 else ""
    remedy = (
        f"to run it again{step} delete it and make it from its manifest: "
        f"kubectl replace --force -n {gang.namespace} -f FILE"
    )
    if not s.root.options.rebuild and not (s.root.failure and s.root.failure.kept):
        remedy += f"; {ANNOTATION_REBUILD}: enabled lets healthd do so where a {s.terms.node} is to blame"
    return s.enter(Phase.GAVE_UP, f"{FAILED_FOR_GOOD} and {why}; {remedy}")


def remade(s: Situation) -> Decision:
    """The last step of Fencing: every old member is proven gone, and the root is made again."""
    read, gang = s.view.rebuild, s.root.ref
    if read is None or not (read.is_gone or read.successor):
        waited = s.now - began(s, Phase.FENCING)
        if waited < GOES_WITHIN:
            return Decision(reason=f"waiting for the failed {gang.kind} to be gone", recheck=GOES_WITHIN - waited)
        return s.hold(f"the failed {gang.kind} {gang.name} is being deleted, and something that it made keeps it")
    if (new := read.successor) is not None:
        if not new.stopped:
            return Decision(reason=f"waiting for the controller of {gang.kind} {gang.name} to see it")
        made = Rebuild(uid=gang.uid, made=new.ref.uid)
        message = f"every old {s.terms.pod} is proven gone, and {gang.kind} {gang.name} was made again"
        return s.enter(Phase.CHOOSING, message, rebuild=made)
    if read.refused:
        return s.hold(f"the copy {gang.uid} of {gang.kind} {gang.name} cannot be made: {read.refused}")
    return Decision(actions=(MakeRoot(),), reason=f"make {gang.kind} {gang.name} again")


def claims_to_move(s: Situation) -> tuple[ClaimSpare, ...]:
    """The spares that the failed root has from earlier faults: they are claimed for the new one, which is on them."""
    rebuild, gang = s.status.rebuild, s.root.ref
    if rebuild is None or not rebuild.made:
        return ()
    claims = ((name, read_claim(node)) for name, node in sorted(s.view.nodes.items()))
    owned = (rebuild.uid, gang.namespace, gang.name)
    return tuple(
        ClaimSpare(name, claim.instead_of)
        for name, claim in claims
        if claim is not None and (claim.gang_uid, claim.namespace, claim.gang) == owned
    )


def replaced_by_another(s: Situation) -> Decision | None:
    """Somebody else made a root of this name after the failed one was deleted: theirs is the gang now."""
    new = s.view.rebuild.successor if s.view.rebuild else None
    if new is None or _is_ours(new, s):
        return None
    return s.enter(Phase.SUPERSEDED, f"somebody made {new.ref.kind} {new.ref.name} anew; that one is left as it is")


def _is_ours(new: Root, s: Situation) -> bool:
    return (new.rebuilt_from, new.stopped_by) == (s.root.ref.uid, s.name)


def is_answered(root: Root, status: RecoveryStatus) -> bool:
    """Whether a recovery with this *status* has seen *root* fail for good, and has decided."""
    at = root.failure.at if root.failure else None
    if root.ending is not RootOutcome.FAILED or at is None or status.phase not in (Phase.GAVE_UP, Phase.SUPERSEDED):
        return False
    differ = FAULT_AFTER if status.phase is Phase.GAVE_UP else timedelta(0)
    return status.attempt >= root.attempt and status.ended_at is not None and status.ended_at >= at - differ
