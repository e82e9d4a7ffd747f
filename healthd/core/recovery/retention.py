"""
Which recoveries are kept for people, and which are deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime

from healthd.core.api import GangRef, Recovery
from healthd.core.api.model import ENDED
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.planned.slow_nodes import swaps


def outdated(
    recoveries: Iterable[Recovery], living: Collection[GangRef], policy: RecoveryPolicy, now: datetime
) -> list[Recovery]:
    """
    The recoveries to delete. *living* are the gangs whose roots exist.

    Recoveries that began at the same attempt are kept or deleted together: the number of the next follows from the
    existing ones. If the last of them were deleted, its name would be free again, and a new fault would be taken for
    the old one, which another controller has handled already.

    Those by which a living gang left a slow node are kept: a rank is swapped once (`core.recovery.planned.slow_nodes`).
    """
    of_gang: dict[GangRef, list[Recovery]] = defaultdict(list)
    for recovery in recoveries:
        of_gang[recovery.spec.gang].append(recovery)
    return [each for gang, all_of in of_gang.items() for each in _outdated(all_of, gang in living, policy, now)]


def _outdated(recoveries: list[Recovery], is_living: bool, policy: RecoveryPolicy, now: datetime) -> list[Recovery]:
    newest = sorted(recoveries, key=lambda each: each.spec.first_attempt, reverse=True)
    lasting = swaps(newest) if is_living else []
    kept = {each.spec.first_attempt for each in [*newest[: policy.keep], *lasting]}
    too_many = [each for each in newest if each.status.phase in ENDED and each.spec.first_attempt not in kept]
    if is_living:
        return too_many
    too_old = [each for each in newest if (at := _ended_at(each)) is not None and now - at >= policy.keep_for]
    return [each for each in newest if each in too_many or each in too_old]


def _ended_at(recovery: Recovery) -> datetime | None:
    status = recovery.status
    return status.phase_since if status.phase in ENDED else None
