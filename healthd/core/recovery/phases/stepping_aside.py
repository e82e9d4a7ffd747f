"""Ends a recovery, in any phase, when the gang's owner, its own end or another controller has decided about it."""

from __future__ import annotations

from healthd.core.api import ANNOTATION_RESTART
from healthd.core.api.model import Phase
from healthd.core.recovery.gang import RootOutcome
from healthd.core.recovery.rebuilding import failed_for_good, is_being_rebuilt, replaced_by_another
from healthd.core.recovery.situation import Decision, Situation
from healthd.core.recovery.terms import ONE_SERVER

_BEFORE_START = frozenset({Phase.FENCING, Phase.CHOOSING, Phase.RESERVING})


def stepped_aside(s: Situation) -> Decision | None:
    """The decision that ends the recovery because its owner, its own end or another controller decided; else None."""
    if s.root.ending is RootOutcome.COMPLETE:
        if s.phase in (Phase.STARTING, Phase.CONFIRMING) and s.root.attempt == s.status.attempt:
            return s.enter(Phase.RECOVERED, f"the {s.terms.gang} finished its work")
        return s.enter(Phase.SUPERSEDED, f"the {s.terms.gang} finished by itself")
    if s.root.ending is RootOutcome.FAILED:
        return failed_for_good(s)
    if is_being_rebuilt(s.status) and (another := replaced_by_another(s)):
        return another
    if s.root.suspended and not s.stopped_by_us and not _is_queued_again(s):
        # Also when the mark of an earlier recovery, which gave the gang up, is still on the root.
        return s.enter(Phase.SUPERSEDED, s.root.unadmitted or _stopped_by_its_user(s))
    if not s.root.options.restart:
        # This is how a user keeps a gang stopped that healthd has stopped: there is no other mark for that.
        left = "it stays stopped" if s.stopped_by_us else "it is left as it is"
        return s.enter(Phase.SUPERSEDED, f"restarts of the gang were switched off ({ANNOTATION_RESTART}); {left}")
    if s.stopped_by_us and s.root.edited_since_stop:
        message = "somebody changed the gang while it was stopped; it stays stopped until they resume it"
        return s.enter(Phase.SUPERSEDED, message)
    if s.phase in _BEFORE_START and not s.stopped_by_us:
        if s.root.attempt == s.status.attempt:
            # Another controller had read the recovery before this recovery went back to an earlier phase.
            return s.enter(Phase.STARTING, "the start was on its way already")
        return s.enter(Phase.SUPERSEDED, f"somebody else started the {s.terms.gang} again")
    if s.phase in (Phase.DETECTED, Phase.STOPPING) and s.root.attempt >= s.status.attempt:
        return s.enter(Phase.SUPERSEDED, f"the {s.terms.gang} is at attempt {s.root.attempt} already")
    return None


def _is_queued_again(s: Situation) -> bool:
    """This recovery has started its attempt, and the queue has not let it run yet."""
    is_started = s.phase is Phase.STARTING and s.root.attempt == s.status.attempt
    return is_started and bool(s.root.unadmitted) and not s.root.evicted


def _stopped_by_its_user(s: Situation) -> str:
    return "its user stopped the run" if s.terms is ONE_SERVER else "the user suspended the gang; it stays so"
