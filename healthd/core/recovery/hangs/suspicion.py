"""
What follows from who is suspected in a gang that hangs, or makes it slow. Pure, and the same for every kind of gang.

- No suspect: the gang is restarted where it was.
- One witness: also, but the suspect's node comes last among the nodes that may be chosen.
- Two independent witnesses, and all suspects on one node: a spare takes its place if there is one.
- A slow rank, where its owner wants the gang to leave its node (`planned.slow_nodes`): a spare takes its place.
- The same stacks at the same step as before the restart: no further restart, for the program itself is at fault.

A suspicion takes no node out of service and counts against no budget. A node that was replaced goes back into the pool
like any other that is fit. Only findings, such as those of an active check, convict it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from healthd.core.api import Cause, Recovery, RecoveryStatus
from healthd.core.api.model import CauseKind
from healthd.core.hang.describe import why_hang
from healthd.core.hang.silence import Silence
from healthd.core.phrases import some
from healthd.core.recovery.holds import SAME_PLACE, is_held_as
from healthd.core.recovery.terms import Terms

ENOUGH = 2
"""Independent witnesses for whom a node is replaced."""


def hang_cause(silence: Silence, step: int, terms: Terms, now: datetime) -> Cause:
    """The cause of a restart for *silence*, seen at *step* of the training."""
    suspects = list(silence.suspects)
    words = [
        f"{terms.member} {each.member} is suspected by {_witnesses(each.witnesses)}"
        + (f", in {each.doing}" if each.doing else "")
        for each in suspects[:1]
    ]
    message = "; ".join([why_hang(silence), *filter(None, [silence.located]), *words])
    return Cause(kind=CauseKind.HANG, message=message, at=now, suspects=suspects, step=step)


def in_same_place(cause: Cause, earlier: Iterable[Cause], terms: Terms) -> str:
    """
    Why another restart for *cause* would be in vain: the suspects of an earlier hang had the same stacks, at the same
    step. Empty: they had not, or it is unknown.
    """
    places = _places(cause)
    if not places or not any(places == _places(each) and each.step == cause.step for each in earlier):
        return ""
    where = "; ".join(dict.fromkeys(f"{terms.member} {each.member} is in {each.doing}" for each in cause.suspects[:3]))
    return (
        f"{SAME_PLACE}, after step {cause.step}, as before its restart: {where}. This is most likely a fault of the "
        f"program or of its data, and not of a {terms.node}: it is not restarted for it again"
    )


def waits_in_same_place(status: RecoveryStatus) -> bool:
    """Whether the recovery is held because its gang hangs where it hung before its restart."""
    return is_held_as(status, SAME_PLACE)


def _places(cause: Cause) -> frozenset[str]:
    """Where in the program its suspects were. Empty where that is not known of each, or the step is not."""
    places = frozenset(each.stack for each in cause.suspects)
    return frozenset() if "" in places or cause.step < 0 else places


def suspected_nodes(status: RecoveryStatus) -> dict[str, int]:
    """The nodes suspected in this recovery: by how many independent witnesses at most."""
    found: dict[str, int] = {}
    for each in (suspect for cause in status.causes for suspect in cause.suspects if suspect.node):
        found[each.node] = max(found.get(each.node, 0), each.witnesses)
    return found


def node_to_replace(status: RecoveryStatus) -> str:
    """The node that a spare is to replace, as far as there is one; empty: none. Never more than one."""
    cause = _suspecting(status)
    suspects = cause.suspects if cause is not None else []
    nodes = {each.node for each in suspects}
    is_hang = cause is not None and cause.kind is CauseKind.HANG
    if len(nodes) != 1 or (is_hang and any(each.witnesses < ENOUGH for each in suspects)):
        return ""
    return nodes.pop()


def _suspecting(status: RecoveryStatus) -> Cause | None:
    """The newest cause whose suspects count."""
    kinds = (CauseKind.HANG, CauseKind.STRAGGLER)
    return next((cause for cause in reversed(status.causes) if cause.kind in kinds), None)


def suspicion_text(node: str, replacements: Mapping[str, str], status: RecoveryStatus) -> str:
    """What becomes of *node*, which `node_to_replace` has named."""
    cause = _suspecting(status)
    if cause is not None and cause.kind is CauseKind.STRAGGLER:
        found = "it stays in service" if node in replacements else "no spare is free for it now, so it is used again"
        return f"a rank was slow on {node}: {found}"
    witnesses = _witnesses(suspected_nodes(status).get(node, 0))
    if node in replacements:
        return f"{node} is only suspected, by {witnesses}: it stays in service; `healthd check` it"
    return f"{node} is suspected by {witnesses}, and no spare is free: it is used again"


def times_suspected(recoveries: Iterable[Recovery]) -> Counter[str]:
    """In how many hangs each node was suspected."""
    causes = (cause for each in recoveries for cause in each.status.causes if cause.kind is CauseKind.HANG)
    return Counter(node for cause in causes for node in {each.node for each in cause.suspects if each.node})


def again_text(nodes: Iterable[str], recoveries: Iterable[Recovery]) -> str:
    """Which of *nodes* were suspected in earlier hangs, for a person; empty: none."""
    times = times_suspected(recoveries)
    said = [f"{node} ({times[node]} {'time' if times[node] == 1 else 'times'})" for node in nodes if times[node]]
    return f"suspected before in hangs that led to a restart: {some(said)}; `healthd check` it" if said else ""


def _witnesses(count: int) -> str:
    return "1 witness" if count == 1 else f"{count} independent witnesses"
