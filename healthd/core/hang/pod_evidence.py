"""
What an agent publishes of a quiet pod, as evidence for the vote. Pure.

A control group shows less than `/proc`: whether its containers are frozen or wait for I/O, and what they use. That a
process is stopped by a signal, or asleep in which system call, it does not show.
"""

from __future__ import annotations

from healthd.core.api.health import PodRhythm
from healthd.core.hang.evidence import Activity, ProcessEvidence, RankEvidence, TaskState

IO_WAITS = 0.5
"""
Of the last ten seconds. A pod is quiet after ten seconds at the earliest, and the kernel's mean over ten seconds is
63 % by then where a process has waited for all of them.
"""


def pod_evidence(rhythm: PodRhythm, rank: int, pod: str, node: str) -> RankEvidence | None:
    """What *rhythm*, of a quiet pod, says of *rank*. None: it is of an older agent, which looked at nothing."""
    seen = rhythm.activity
    if seen is None:
        return None
    return RankEvidence(rank, pod, node, process=_process(rhythm), activity=Activity(cpu=seen.cpu, io=seen.io))


def waits_for_io(rhythm: PodRhythm) -> bool:
    """Whether a process of the pod waits for a disk or a file system."""
    return rhythm.activity is not None and (rhythm.activity.io_wait or 0.0) >= IO_WAITS


def _process(rhythm: PodRhythm) -> ProcessEvidence | None:
    """Only what tells a pod from others. None: nothing does."""
    if rhythm.activity is not None and rhythm.activity.frozen:
        return ProcessEvidence(TaskState.FROZEN)
    return ProcessEvidence(TaskState.UNINTERRUPTIBLE, wchan=_IO_SCHEDULE) if waits_for_io(rhythm) else None


_IO_SCHEDULE = "io_schedule"
"""The kernel counts as waits for I/O those in this function."""
