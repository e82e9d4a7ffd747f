"""
Whether a member that has no rhythm yet does nothing at all. By then nothing is usual for it, so next to nothing counts.

A hang in the first minute, or in a start that waits for a peer for ever, would not be seen otherwise. A start that
loads, compiles or downloads uses a processor, reads or writes, and one that makes steps wakes its main thread in each.
"""

from __future__ import annotations

from math import isnan

from healthd.core.hang.rhythm import MUCH_IO, NOISE, Activity
from healthd.core.hang.samples import Rates

HAS_BEGUN = 0.02
"""Seconds of processor time. What has used less may be a shell that waits before it starts the program."""
ASLEEP = 0.0005
"""Seconds in a second for which a main thread may run that only looks whether something has come."""
LOOKS = 4
"""Samples in which it may look once: torch does every five seconds while it waits for its loaders."""
LITTLE = 0.02
"""Cores. Threads in the background of a rank that waits use less."""
ASKS = 100.0
"""Reads and writes a second of a rank that asks again and again whether its peers have come, as the first one of torch
does that waits for them at its store: 370 were seen, with 11 bytes each, 0.02 to 0.04 cores and no new memory."""
ASKED = 64.0
"""Bytes that one of them moves at most."""
ASKING = 0.1
"""Cores."""
BUSY = 0.5
"""Cores. A member that waits in a loop uses one."""
WAITS = 0.9
"""Of the time a kernel runs on its GPUs, and hardly uses their memory: as those of NCCL do that wait for other GPUs."""
ALLOWED = 30.0
"""Seconds in which every member does nothing: three times the shortest of a rhythm, for nothing is known yet."""
POD_HAS_BEGUN = 2.0
"""The same as `HAS_BEGUN` for a pod: shells, launchers and sidecars use less."""
POD_ALLOWED = 120.0
"""The same as `ALLOWED` for a pod, of which less is seen."""
POD_LITTLE = 0.1
"""The same as `LITTLE` for a pod beside GPUs, of which the eight ranks that wait use up to 0.06 cores."""


class Start:
    """One member before its rhythm is known."""

    allowed = ALLOWED
    """Seconds in which it may do nothing."""
    begun_after = HAS_BEGUN
    """Seconds of processor time."""

    def __init__(self) -> None:
        self._used = 0.0
        """Seconds of processor time so far."""
        self.ran = 0.0
        """The same of its main thread. 0: it did nothing since the first sample, or that cannot be read."""
        self._looked = 0
        """A bit for each of the newest samples in which the main thread ran, but hardly."""
        self.asks = False
        """By the newest sample: it only asks again and again whether its peers have come."""
        self._used_gpus = False
        """The memory of its GPUs was used, so it is seen when it is."""
        self.waits_for_gpus = False
        """By the newest sample: a kernel on its GPUs waits for those of others, and its processors do nothing else."""

    @property
    def may_compute(self) -> bool:
        """Whether one that uses a processor and does nothing else may do its work so."""
        return not (self.asks or self.waits_for_gpus)

    @property
    def has_begun(self) -> bool:
        """Whether it has used enough to be the program itself."""
        return self._used >= self.begun_after

    @property
    def is_counted(self) -> bool:
        """Whether it shows how little of a processor it uses."""
        return self.ran > 0

    def observe(self, sample: Rates, seconds: float) -> Activity:
        """What the newest *sample*, of so many *seconds*, shows. Whatever may be work is work."""
        self._used += sample.cpu * seconds
        self.ran += sample.ran * seconds
        does_something = _does_something(sample)
        self.asks = _only_asks(sample)
        self._used_gpus |= _use_memory(sample)
        self.waits_for_gpus = self._used_gpus and not does_something and sample.kernels >= WAITS
        if self.asks or self.waits_for_gpus:
            self._looked = 0
            return Activity.SPINNING
        if does_something:
            return Activity.WORKING
        if sample.ran < ASLEEP and sample.cpu < LITTLE:
            self._looked = (self._looked << 1 | (sample.ran > 0)) & (1 << LOOKS) - 1
            return Activity.IDLE if self._looked.bit_count() <= 1 else Activity.WORKING
        self._looked = 0
        return Activity.SPINNING if sample.cpu >= BUSY and sample.switches < NOISE["switches"] else Activity.WORKING


class PodStart(Start):
    """
    One pod before its rhythm is known, by its control group. That shows no threads, no files and no network, so a light
    step may be overlooked: what it shows as nothing has to last.
    """

    allowed = POD_ALLOWED
    begun_after = POD_HAS_BEGUN

    def __init__(self, little: float = LITTLE, so_far: float = 0.0) -> None:
        """*so_far*: seconds of processor time before its first sample."""
        super().__init__()
        self._little = little
        self._used = so_far

    @property
    def is_counted(self) -> bool:
        """Control groups count microseconds."""
        return True

    def observe(self, sample: Rates, seconds: float) -> Activity:
        """As of any member. A pod that polls for its peers counts as one that works."""
        self._used += sample.cpu * seconds
        return Activity.WORKING if sample.cpu >= self._little or _does_something(sample) else Activity.IDLE


def _only_asks(sample: Rates) -> bool:
    """Many reads and writes of next to nothing, and nothing else."""
    return (
        sample.calls >= ASKS
        and sample.read + sample.written <= ASKED * sample.calls
        and sample.cpu < ASKING
        and not _does_something(sample._replace(calls=0.0))
    )


def _does_something(sample: Rates) -> bool:
    """Beside the use of a processor: it touches memory, reads, writes, prints, or its GPUs work."""
    return (
        sample.calls > 0
        or sample.faults > NOISE["faults"]
        or sample.network > NOISE["network"]
        or sample.read + sample.written > MUCH_IO
        or _use_memory(sample)
    )


def _use_memory(sample: Rates) -> bool:
    """Whether its GPUs do, where they are known."""
    return not isnan(sample.gpu) and sample.gpu > NOISE["gpu"]
