"""
Which idle spare is checked next, and which one that failed is taken out of service. Pure: a function of all spares.

The checks take turns: the spare that was checked longest ago comes first. A failure alone is a weak sign, because the
check itself may be broken: its image, its limits, a new driver. So it is believed only when another spare of the same
kind has passed since; that one is checked at once, whatever its turn. When two of a kind fail, and none passed since
the first, the check is in doubt: spares of that kind are not checked any more, and none is taken out for it, until a
person has looked. And one spare at a time is out of service for a failed check.

Of two checks the later one has the larger number. No clock is asked what came first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from healthd.core.api import Node, NodeHealth
from healthd.core.api.kubernetes.gpu_names import GPU_RESOURCE, LABEL_GPU_PRODUCT
from healthd.core.api.model import Verdict
from healthd.core.api.names import ANNOTATION_CLAIM, ANNOTATION_FAILED_CHECK, LABEL_SPARE
from healthd.core.api.remediations import NodePhase, NodeRemediationStatus, SpareCheck, SpareCheckOutcome
from healthd.core.diagnosis.readings import NODE
from healthd.core.diagnosis.signals.spare_check import SPARE_CHECK_FAILED
from healthd.core.node.failed_check import written
from healthd.core.node.quarantine import read_record, repaired_at
from healthd.core.remediation.owners import other_remediator
from healthd.core.remediation.person import persons_word, retry_at
from healthd.core.remediation.situation import PersonsWord

AGAIN = timedelta(minutes=10)
"""After a check that was ended for something else: the spare may be idle again soon, and taken again."""
FINDING = f"{NODE}/{SPARE_CHECK_FAILED.name}"
"""What the agent of a spare makes of the note that it failed its check."""
_AT_REST = frozenset({NodePhase.IN_SERVICE, NodePhase.PROBATION})
_CONCLUSIVE = frozenset({SpareCheckOutcome.PASSED, SpareCheckOutcome.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Spare:
    """One node that is a spare, or was one when it was checked, with what is on record."""

    node: Node
    status: NodeRemediationStatus
    health: NodeHealth | None = None
    wanted_for: str = ""
    """What comes first on it, such as a recovery that takes it; empty: nothing."""

    @property
    def name(self) -> str:
        """The name of its node."""
        return self.node.metadata.name

    @property
    def check(self) -> SpareCheck | None:
        """The newest check of this very Node, and of the machine that it is now."""
        check, machine = self.status.spare_check, self.node.status.node_info.system_uuid.lower()
        if check is None or check.node_uid != self.node.metadata.uid:
            return None
        return None if check.machine and machine and check.machine != machine else check

    @property
    def number(self) -> int:
        """The number of that check; 0: there was none."""
        return self.check.number if self.check is not None else 0

    @property
    def kind(self) -> tuple[str, str]:
        """Its hardware, as far as a check may depend on it."""
        return self.node.metadata.labels.get(LABEL_GPU_PRODUCT, ""), self.node.status.capacity.get(GPU_RESOURCE, "")


def is_idle_spare(node: Node) -> bool:
    """Whether *node* is held free for recoveries and not claimed."""
    return node.metadata.labels.get(LABEL_SPARE) == "true" and ANNOTATION_CLAIM not in node.metadata.annotations


def comes_first(spare: Spare) -> str:
    """Why no check may run on *spare* now, in a few words; empty: one may."""
    node = spare.node
    if spare.wanted_for:
        return spare.wanted_for
    if not is_idle_spare(node):
        return "it is no idle spare any more"
    if read_record(node) is not None:
        return "it is in quarantine"
    if node.spec.unschedulable:
        return "it is cordoned"
    if spare.status.phase not in _AT_REST:
        return f"it is under remediation ({spare.status.phase})"
    if persons_word(node) is not PersonsWord.NOTHING:
        return "a person keeps healthd off this node"
    if other := other_remediator(node):
        return f"{other} works on it"
    if spare.health is not None and spare.health.status.verdict is Verdict.UNHEALTHY:
        return "its agent calls it unhealthy"
    return "it is taken out of service" if ANNOTATION_FAILED_CHECK in node.metadata.annotations else ""


def next_number(spares: Iterable[Spare], now: datetime) -> int:
    """The number of a check that begins now: larger than all before, also where the clock was set back."""
    known = (each.status.spare_check.number for each in spares if each.status.spare_check is not None)
    return max([int(now.timestamp()), *(number + 1 for number in known)])


def has_failed(spare: Spare, now: datetime) -> bool:
    """
    Whether its last check failed, and nothing was done about that since: no repair, no check after a rung, and no
    person who asked for a further try.
    """
    check = spare.check
    if check is None or check.outcome is not SpareCheckOutcome.FAILED:
        return False
    repairs = (repaired_at(spare.node), spare.status.checked_at, retry_at(spare.node, now))
    return all(at is None or at < check.at for at in repairs)


def failures(spares: Iterable[Spare], now: datetime) -> list[Spare]:
    """Spares whose last check failed, whether they are out of service for it or not, the earliest failure first."""
    failed = (each for each in spares if is_taken_out(each, now) or is_left_in(each, now))
    return sorted(failed, key=lambda each: each.number)


def is_left_in(spare: Spare, now: datetime) -> bool:
    """Whether it failed, and was not taken out of service for that."""
    return has_failed(spare, now) and spare.check is not None and spare.check.taken_out_at is None


def is_taken_out(spare: Spare, now: datetime) -> bool:
    """
    Whether it is taken out of service for a check that it failed. Once its agent has reported that, it is back when
    the finding and the quarantine have ended, as after any other fault; then it is checked anew.
    """
    check = spare.check
    if check is None or check.taken_out_at is None or not has_failed(spare, now):
        return False
    return check.reported_at is None or read_record(spare.node) is not None or is_reported(spare)


def is_reported(spare: Spare) -> bool:
    """Whether the agent of *spare* publishes that it failed its check."""
    findings = spare.health.status.findings if spare.health is not None else []
    return any(each.id == FINDING and each.cleared_at is None for each in findings)


def note_of(spare: Spare, now: datetime) -> str:
    """What should stand on the Node for its agent; empty: nothing."""
    check = spare.check
    if check is None or check.reported_at is not None or not is_taken_out(spare, now):
        return ""
    return written(check.at, check.message)


def is_confirmed(failed: Spare, spares: Iterable[Spare]) -> bool:
    """Whether another spare of the same kind passed after *failed* had failed: the check can be passed."""
    return any(
        each.check is not None and each.check.passed_number > failed.number and each.kind == failed.kind
        for each in spares
    )


def doubted(spares: Sequence[Spare], now: datetime) -> dict[tuple[str, str], list[Spare]]:
    """By kind: the spares that failed one after the other, where none of their kind passed since."""
    unconfirmed: dict[tuple[str, str], list[Spare]] = defaultdict(list)
    for each in failures(spares, now):
        if not is_confirmed(each, spares):
            unconfirmed[each.kind].append(each)
    return {kind: failed for kind, failed in unconfirmed.items() if len(failed) > 1}


def next_spare(spares: Sequence[Spare], every: timedelta, now: datetime) -> Spare | None:
    """
    The spare to check now; None: none. First a second one of the kind of a spare that failed, each at most once for
    that failure. Then the one that was checked longest ago, if that is *every* or more.
    """
    doubts = doubted(spares, now)
    free = sorted(
        (each for each in spares if each.kind not in doubts and _may_be_checked(each, now)),
        key=lambda each: (each.number, each.name),
    )
    for failed in failures(spares, now):
        if not is_confirmed(failed, spares):
            second = (each for each in free if each.kind == failed.kind and each.number < failed.number)
            if (found := next(second, None)) is not None:
                return found
    return next((each for each in free if _is_due(each, every, now)), None)


def spare_to_take_out(spares: Sequence[Spare], now: datetime) -> Spare | None:
    """The spare whose failure is believed, and which is taken out of service now; None: none."""
    if any(is_taken_out(each, now) for each in spares):
        return None
    doubts = doubted(spares, now)
    return next(
        (
            each
            for each in failures(spares, now)
            if is_left_in(each, now) and is_confirmed(each, spares)
            if each.kind not in doubts and not comes_first(each)
        ),
        None,
    )


def _may_be_checked(spare: Spare, now: datetime) -> bool:
    return not (comes_first(spare) or is_taken_out(spare, now) or is_reported(spare))


def _is_due(spare: Spare, every: timedelta, now: datetime) -> bool:
    """A time in the future is from a clock that was set back since: it says nothing."""
    check = spare.check
    if check is None or check.ended_at is None or check.taken_out_at is not None:
        return True
    pause = AGAIN if check.outcome is SpareCheckOutcome.YIELDED else every
    checked_at = max(filter(None, [check.ended_at, spare.status.checked_at if check.outcome in _CONCLUSIVE else None]))
    return not timedelta(0) <= now - checked_at < pause
