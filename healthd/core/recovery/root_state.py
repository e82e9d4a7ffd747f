"""What keeps healthd from guarding a root by itself: what others changed on it, and what healthd gave up."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from healthd.core.api import ANNOTATION_ATTEMPT, Pod, Recovery
from healthd.core.api.model import Phase
from healthd.core.recovery.gang import Root
from healthd.core.recovery.members import attempt_of, is_terminal


def left_stopped(root: Root, recoveries: Collection[str]) -> str:
    """
    Why *root* stays stopped although none of its *recoveries* (names) exists to start it; empty when that is not so.

    A reinstallation deletes the recoveries, and with them their records about the old pods.
    """
    if not (root.suspended and root.stopped_by) or root.stopped_by in recoveries:
        return ""
    return (
        f"recovery {root.stopped_by} stopped it and is gone, or cannot be read, and with it the proof that the old "
        "pods have ended: see that none of them runs, then resume the gang"
    )


def lost_attempt(root: Root, pods: Iterable[Pod]) -> str:
    """
    Why none of the *pods* of a gang that runs is a member of it; empty when that is not so, or its owner asks for no
    restarts: an owner who leaves healthd takes its annotations away one by one.

    healthd alone writes the number of the attempt, to the root first. Where somebody took it away from the root, every
    pod seems to be of an attempt that is yet to come, and no fault of any of them would be seen.
    """
    attempts = [attempt_of(pod) for pod in pods if not is_terminal(pod) and not pod.metadata.deletion_timestamp]
    if root.suspended or not root.options.restart or not attempts or min(attempts) <= root.attempt:
        return ""
    return (
        f"{ANNOTATION_ATTEMPT}: it says {root.attempt}, and the pods are of attempt {min(attempts)}: somebody changed "
        f"it, so write {min(attempts)} there again"
    )


def given_up_by(root: Root, recoveries: Iterable[Recovery]) -> Recovery | None:
    """The one of *recoveries* that stopped *root* and gave it up; None also where it was started again since."""
    if not root.suspended:
        return None
    stopped = (each for each in recoveries if each.metadata.name == root.stopped_by)
    return next((each for each in stopped if each.status.phase is Phase.GAVE_UP), None)
