"""The phases Choosing and Reserving: which checkpoint the gang resumes from, and on which nodes."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from healthd.core.api import Attempt, ChosenCheckpoint, Shrunk
from healthd.core.api.model import Phase
from healthd.core.recovery.actions import ClaimSpare
from healthd.core.recovery.evidence import window_left
from healthd.core.recovery.fence import CLOCKS_DIFFER
from healthd.core.recovery.nodes.placement import Shortage, place
from healthd.core.recovery.nodes.replacement_nodes import is_claimed
from healthd.core.recovery.phases.stopping import join_hardware
from healthd.core.recovery.planned.growth import added_members, left_out_of, record_of
from healthd.core.recovery.rebuilding import claims_to_move
from healthd.core.recovery.resume_point import choose, is_premature
from healthd.core.recovery.situation import Decision, Situation

POLL_REPORTS = timedelta(milliseconds=20)
"""Poll interval while the witnesses' answer is on its way: an answer takes less time."""


def choosing(s: Situation) -> Decision:
    """Lasts until the cause is settled and the resume point is known. The checkpoints are read during both."""
    if joined := join_hardware(s):
        return joined
    if left := window_left(s):
        recheck = min(left, POLL_REPORTS) if s.view.reports_pending else left
        return Decision(reason="waiting for evidence of broken hardware", recheck=recheck)
    return choose(s)


def reserving(s: Situation) -> Decision:
    """Lasts until every member has a node, and every spare among the nodes is claimed."""
    if joined := join_hardware(s):
        return joined
    if is_premature(s):
        return s.enter(Phase.CHOOSING, "a step was seen after a fresh start was chosen")
    if s.status.let_through is None:
        if s.refusal:
            return s.hold(s.refusal)
        return Decision(record=replace(s.status, let_through=s.now), reason="the breaker lets it through")
    wait = s.status.not_before - s.now if s.status.not_before is not None else timedelta(0)
    if timedelta(0) < wait <= s.policy.backoff_max + CLOCKS_DIFFER:
        return Decision(reason="backing off", recheck=wait)
    if moved := claims_to_move(s):
        return Decision(actions=moved, reason=f"the spares of the {s.root.ref.kind} that failed")
    shrunk = left_out_of(s.recovery, s.root)
    plan = place(s.status, s.view, s.root, s.name, s.policy, shrunk, added_members(s.recovery, s.root))
    if isinstance(plan, Shortage):
        return s.hold(plan.message)
    if (plan.placement, plan.replacements) != (s.status.placement, s.status.replacements):
        record = replace(s.status, placement=plan.placement, replacements=plan.replacements)
        return Decision(record=record, reason=plan.message)
    unclaimed = [
        ClaimSpare(spare, bad) for bad, spare in plan.replacements.items() if not is_claimed(spare, bad, s.view, s.name)
    ]
    if unclaimed:
        return Decision(actions=tuple(unclaimed), reason=plan.message)
    earlier = [attempt for attempt in s.status.attempts if attempt.number != s.status.attempt]
    left = record_of(plan.placement, plan.left_out, s.root, shrunk)
    return s.enter(Phase.STARTING, plan.message, attempts=[*earlier, _attempt(s, left)])


def _attempt(s: Situation, shrunk: Shrunk | None) -> Attempt:
    checkpoint = s.status.checkpoint or ChosenCheckpoint()
    return Attempt(number=s.status.attempt, checkpoint=checkpoint, placement=s.status.placement, shrunk=shrunk)
