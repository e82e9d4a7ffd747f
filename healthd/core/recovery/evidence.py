"""
How long the failure of a rank may still turn out to be one of the hardware, and is waited for.

The kernel tells of a broken GPU about when the rank on it dies, mostly before and sometimes a moment after. So a rank
that dies of an error of the driver, a signal of its own doing or for no visible reason has the whole of
`recovery.fault_window`. The window ends early in two cases, each a fact that somebody observed:

- The first of the ranks was ended from outside, by a signal that no fault of a device sends, and every witness has told
  all that it saw until after that. The kernel itself does end processes so: for want of memory, or because memory of
  theirs is broken. It says so first, and the log was read.
- There is no witness: what breaks is never told, however long that is waited for.

What comes later all the same is a fault of its own, and joins the recovery in whatever phase that is.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from datetime import timedelta

from healthd.core.api import Pod, Terminated
from healthd.core.recovery.faults import blames_node
from healthd.core.recovery.fence import CLOCKS_DIFFER
from healthd.core.recovery.situation import Situation, stopped_at

FROM_OUTSIDE = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM})
"""What people, shells and the killer of processes that want memory send, and no fault of a device."""
SHELL = 128
"""A shell that runs the program ends with this and the number of the signal that ended the program."""
NOTHING = timedelta(0)


def window_left(s: Situation) -> timedelta:
    """For how long evidence of broken hardware is still waited for; zero: it is not."""
    if blames_node(s.status.causes[-1]):
        return NOTHING
    left = s.policy.fault_window - (s.now - stopped_at(s.recovery))
    if not NOTHING < left <= s.policy.fault_window + CLOCKS_DIFFER:  # a clock that was set back is not waited for
        return NOTHING
    return NOTHING if _all_is_told(s) else left


def _all_is_told(s: Situation) -> bool:
    heard = [s.view.heard(node) for node in sorted({pod.node for pod in s.status.pods if pod.node})]
    if not heard:
        return False
    if all(each.no_witness for each in heard):
        return True
    stopped = stopped_at(s.recovery)  # whoever had ended by himself had done so, as far as it is known
    moments = [each.until for each in heard if not each.no_witness]
    return _was_ended_from_outside(s) and all(at is not None and stopped <= at <= s.now for at in moments)


def _was_ended_from_outside(s: Situation) -> bool:
    """Before any rank had failed in another way: what fails after it lost its peer."""
    stopped = stopped_at(s.recovery)
    ends = [end for end in _ends(s) if end.finished_at is not None and end.finished_at <= stopped and end.exit_code]
    outside = [end.finished_at for end in ends if end.finished_at and _is_from_outside(end)]
    others = [end.finished_at for end in ends if end.finished_at and not _is_from_outside(end)]
    return bool(outside) and (not others or min(outside) <= min(others))


def _ends(s: Situation) -> Iterable[Terminated]:
    """How the containers of the attempt that is being stopped have ended."""
    fenced = {pod.uid for pod in s.status.pods}
    pods: dict[str, Pod] = {pod.metadata.uid: pod for pod in (*s.view.deleted, *s.view.pods)}
    for uid in fenced & pods.keys():
        for status in pods[uid].status.container_statuses:
            if status.state.terminated is not None:
                yield status.state.terminated


def _is_from_outside(end: Terminated) -> bool:
    return (end.signal or end.exit_code - SHELL) in FROM_OUTSIDE
