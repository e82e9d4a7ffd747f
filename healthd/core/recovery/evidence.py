"""
How long a recovery waits for evidence that a failed rank was a hardware fault.

The kernel logs a broken GPU at about the time when the rank on it dies: mostly before, sometimes a moment after. So a
rank that dies of a driver error, of a signal that it caused itself, or for no visible reason gets the whole
`recovery.fault_window`. The window ends early in two cases, and each is an observed fact:

- The first rank was ended from outside, by a signal that no device fault sends, and every witness has reported all that
  it saw until after that. The kernel also ends processes in this way: out of memory, or a memory error in their pages.
  It logs that first, and the log was read.
- There is no witness: a hardware fault is never reported, however long the recovery waits.

Evidence that comes later is a new fault, and it joins the recovery in any phase.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from datetime import timedelta

from healthd.core.api import Pod, Terminated
from healthd.core.recovery.faults import blames_node
from healthd.core.recovery.fence import CLOCKS_DIFFER
from healthd.core.recovery.planned.restarts import is_planned
from healthd.core.recovery.situation import Situation, stopped_at

FROM_OUTSIDE = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM})
"""Signals that people, shells and the OOM killer send. No device fault sends them."""
SHELL = 128
"""A shell that runs the program exits with this number plus the signal that ended the program."""
NOTHING = timedelta(0)


def window_left(s: Situation) -> timedelta:
    """How much longer to wait for evidence of broken hardware; zero: do not wait, as where nothing failed."""
    if blames_node(s.status.causes[-1]) or is_planned(s.recovery):
        return NOTHING
    left = s.policy.fault_window - (s.now - stopped_at(s.recovery))
    if not NOTHING < left <= s.policy.fault_window + CLOCKS_DIFFER:  # do not wait for a clock that was set back
        return NOTHING
    return NOTHING if _is_complete(s) else left


def _is_complete(s: Situation) -> bool:
    reports = [s.view.witness_report(node) for node in sorted({pod.node for pod in s.status.pods if pod.node})]
    if not reports:
        return False
    if all(each.no_witness for each in reports):
        return True
    stopped = stopped_at(s.recovery)  # ranks that ended by themselves had ended by then, as far as is known
    moments = [each.until for each in reports if not each.no_witness]
    return _was_ended_from_outside(s) and all(at is not None and stopped <= at <= s.now for at in moments)


def _was_ended_from_outside(s: Situation) -> bool:
    """Whether the first rank that ended was ended from outside: ranks that fail after it only lost their peer."""
    stopped = stopped_at(s.recovery)
    ends = [end for end in _ends(s) if end.finished_at is not None and end.finished_at <= stopped and end.exit_code]
    outside = [end.finished_at for end in ends if end.finished_at and _is_from_outside(end)]
    others = [end.finished_at for end in ends if end.finished_at and not _is_from_outside(end)]
    return bool(outside) and (not others or min(outside) <= min(others))


def _ends(s: Situation) -> Iterable[Terminated]:
    """How the containers of the attempt that is being stopped ended."""
    fenced = {pod.uid for pod in s.status.pods}
    pods: dict[str, Pod] = {pod.metadata.uid: pod for pod in (*s.view.deleted, *s.view.pods)}
    for uid in fenced & pods.keys():
        for status in pods[uid].status.container_statuses:
            if status.state.terminated is not None:
                yield status.state.terminated


def _is_from_outside(end: Terminated) -> bool:
    return (end.signal or end.exit_code - SHELL) in FROM_OUTSIDE
