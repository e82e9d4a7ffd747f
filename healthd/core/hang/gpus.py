"""
Whether the GPUs of a node work, all of them together, by how much their memory is used.

A kernel that waits for other GPUs runs all the time and reads next to no memory: so the use of memory is what tells
work from waiting. Which pod has which GPU is not known here; where one gang has all GPUs of a node, it does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from healthd.core.api.health import GPUS, MemberState, PodActivity, PodRhythm
from healthd.core.hang.member import LATE
from healthd.core.hang.pods import KEPT, rounded_anew
from healthd.core.hang.samples import Usage
from healthd.core.hang.silence import GangRhythm, Silence

RELEASED = 0.5
"""Of the memory that was taken on a GPU. Once less is, the process has ended, and with it what was usual."""
LEFT_ALONE = timedelta(minutes=5)
"""A GPU that worked so briefly that it has no rhythm, as for a check, is no member any more after so long."""


class GpuUse(NamedTuple):
    """How much one GPU was used, summed up. A sum that goes back was begun anew."""

    memory: float
    """Seconds in which its memory was read or written by more than kernels that wait do."""
    kernels: float
    """Seconds in which a kernel ran: also one that only waits for other GPUs."""
    held: float
    """Bytes of its memory that are taken now."""
    cycles: float = 0.0
    """Millions of cycles of its clock in the seconds of *memory*: their quotient is the mean clock while it worked."""
    highest: float = 0.0
    """The highest clock of its model, MHz. 0: it does not say."""
    limits: tuple[str, ...] = ()
    """What keeps its clock down now, such as `power-cap` and `hw-thermal`."""


class GpuUses(NamedTuple):
    """The GPUs of the node by their addresses, until *at*. One that does not say what it does is left out."""

    at: datetime
    gpus: Mapping[str, GpuUse] = {}


class GpuRhythms:
    """
    What is usual for the GPUs of one node, and whether they do it now.

    Each GPU is a member of a gang of its own: all of them have to stop. One that has done nothing yet is no member.
    """

    def __init__(self) -> None:
        self._gang = GangRhythm(KEPT)
        self._before: GpuUses | None = None
        self._most: dict[str, float] = {}
        """The most bytes that each member has held."""
        self._worked_at: dict[str, datetime] = {}
        self._silence: Silence | None = None
        self._quiet: PodRhythm | None = None
        self._numbers = (0.0, 0.0)
        """Period and allowance as they are published."""

    @property
    def gang(self) -> GangRhythm:
        """The GPUs that are used, by their addresses. Once their memory was freed, it is another object."""
        return self._gang

    @property
    def are_used(self) -> bool:
        """Whether there is anything to sample each second."""
        return bool(self._most)

    @property
    def answering(self) -> int:
        """How many of the node said lately what they do."""
        return len(self._before.gpus) if self._before is not None else 0

    @property
    def worked_at(self) -> datetime | None:
        """When the memory of one of them was last used. None: not since the agent began."""
        return max(self._worked_at.values(), default=None)

    def observe(self, uses: GpuUses) -> None:
        """Take a sample. The same one again is none."""
        before, self._before = self._before, uses
        if before is None or not before.gpus or uses.at <= before.at:
            return
        for pci, use in uses.gpus.items():
            if (last := before.gpus.get(pci)) is not None and use.memory > last.memory:
                self._worked_at[pci] = uses.at
                self._most[pci] = max(self._most.get(pci, 0.0), use.held)
            elif pci in self._most and self._has_left(pci, use, uses.at):
                del self._most[pci]
        if not self._most:
            if self._gang.members:
                self._gang = GangRhythm(KEPT)
            self._silence = None
            return
        members = {pci: _usage(uses.gpus.get(pci)) for pci in self._most}
        self._silence = self._gang.observe(members, uses.at)
        self._numbers = rounded_anew(self._numbers, (self._gang.period, self._gang.allowed))

    def published(self, now: datetime, *, a_pod_is_quiet: bool) -> PodRhythm | None:
        """
        What is published of them, as of a pod. None: their rhythm is not known, or they do not answer.

        Pauses of theirs that come now and then are part of their rhythm. But beside a pod that is quiet it matters
        whether they have worked since, so they are silent then as soon as they have left their own band.
        """
        if not self._gang.is_known or self._lack_an_answer(now):
            return None
        since = self._silence.since if self._silence else self._gang.silent_since if a_pod_is_quiet else None
        if since is None:
            self._quiet = None
            if any(member.state is MemberState.UNKNOWN for member in self._gang.members.values()):
                return None
            period, allowed = self._numbers
            return PodRhythm(uid=GPUS, state=MemberState.WORKING, period=period, allowed=allowed)
        if self._quiet is None or self._quiet.since != since.replace(microsecond=0):
            self._quiet = self._silent(since)
        return self._quiet

    def _lack_an_answer(self, now: datetime) -> bool:
        """A silence is not known to go on where one of them may work again, and nothing would show it."""
        newest = self._before
        return (
            newest is None or now - newest.at > timedelta(seconds=LATE) or not self._most.keys() <= newest.gpus.keys()
        )

    def _has_left(self, pci: str, use: GpuUse, at: datetime) -> bool:
        """Whether what was known of a GPU that does nothing is over."""
        member = self._gang.members.get(pci)
        has_no_rhythm = member is None or member.rhythm is None
        return use.held < RELEASED * self._most[pci] or (has_no_rhythm and at - self._worked_at[pci] > LEFT_ALONE)

    def _silent(self, since: datetime) -> PodRhythm:
        members = self._gang.members.values()
        rates = [rates for member in members if (rates := member.ring.means_since(since)) is not None]
        least = min((each.kernels for each in rates), default=1.0)
        return PodRhythm(
            uid=GPUS,
            state=MemberState.SILENT,
            since=since.replace(microsecond=0),
            period=self._numbers[0],
            allowed=round(self._silence.allowed if self._silence else self._gang.least_allowed, 1),
            worked=round(min(member.worked for member in members)),
            activity=PodActivity(gpu_utilisation=round(100 * min(1.0, least))),
        )


def _usage(use: GpuUse | None) -> Usage | None:
    return Usage(gpu=use.memory, kernels=use.kernels) if use is not None else None
