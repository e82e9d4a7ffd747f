"""
Which GPUs have nothing to do while those of their peers wait for them: their hosts come late. Pure.

Ranks that wait for others poll, and their GPUs run a kernel that does. So processors look alike, whichever rank is the
slow one. But a GPU whose host is late, with the data of a step say, runs no kernel until its host has come.

A GPU also has nothing to do where its rank is done early, and waits for the others by other means than a kernel. So one
is named only where the GPUs of its peers work less than before, as they do when steps take longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter

from msgspec.structs import replace

from healthd.core.api.health import HostBoundGpu
from healthd.core.hang.silence import GangRhythm
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.listed import Listed
from healthd.core.hang.work.stragglers import CONFIRMED, StragglerDetector
from healthd.core.hang.work.work_share import ShareWindow, ShareWindows, of_gpus

SURE = 0.75
"""An estimate, at most: no real GPU was there to try it with."""
DIGITS = 4
"""Of what is published."""


class HostBoundGpus:
    """The members of one gang, of which `0` is the first, by shares that are those `of_gpus`."""

    def __init__(self) -> None:
        self._detector = StragglerDetector(
            from_start=False, part=attrgetter("own_waits"), confirmed_factor=CONFIRMED, only_confirmed=True
        )

    @property
    def present(self) -> list[Straggler]:
        """Those that are slow now."""
        return [_of_gpu(each) for each in self._detector.present]

    def add(self, window: ShareWindow) -> list[Straggler]:
        """
        Returns what changes: those that begin to be slow, and with `ended_at` those that no longer are. Where no GPU
        ran a kernel, or there is none, nothing is learned.
        """
        if all(share.own_waits == 1.0 for share in window.shares.values()):
            return []
        return [_of_gpu(each) for each in self._detector.add(window)]

    def restart(self, at: datetime) -> list[Straggler]:
        """Forget all: the ranks were stopped. Returns those that were slow, as ended."""
        return [_of_gpu(each) for each in self._detector.restart(at)]


class HostBoundGpusOfNode:
    """
    The GPUs of one node by their addresses, from nothing. They are taken to be of one gang: where they are not, what is
    listed counts for none. The first one is judged as rank 0 is, which evaluates and saves for the others.
    """

    def __init__(self) -> None:
        self._gpus = HostBoundGpus()
        self._windows = ShareWindows(of_gpus)
        self._gang: GangRhythm | None = None
        self._compared: Sequence[str] = ()
        """Their addresses, by place."""
        self._listed = Listed[HostBoundGpu]()

    @property
    def listed(self) -> Sequence[HostBoundGpu]:
        """Those that were late last, also such as no longer are."""
        return self._listed.newest

    def observe(self, gang: GangRhythm, at: datetime) -> None:
        """After each sample of *gang*, the GPUs that are used."""
        self._listed.forget_ended(at)
        if gang is not self._gang:
            self._gang = gang
            self._begin_anew(at)
        if not gang.is_known:
            self._windows.restart()
            return
        window = self._windows.next_window(gang, at)
        if window is None:
            return
        if (found := sorted(window.shares)) != self._compared:
            self._begin_anew(at)
            self._compared = found
        places = {str(place): window.shares[pci] for place, pci in enumerate(self._compared)}
        self._note(self._gpus.add(window._replace(shares=places)))

    def _begin_anew(self, at: datetime) -> None:
        """These are other GPUs, or they work for another job."""
        self._note(self._gpus.restart(at))

    def _note(self, changes: Sequence[Straggler]) -> None:
        for change in changes:
            pci = self._compared[int(change.rank)]
            self._listed.note(pci, _host_bound_gpu(change, pci))


def _host_bound_gpu(straggler: Straggler, pci: str) -> HostBoundGpu:
    return HostBoundGpu(
        pci=pci,
        since=straggler.since,
        ended_at=straggler.ended_at,
        slower=round(straggler.slower, DIGITS),
        idle=round(straggler.idle, DIGITS),
        peers_idle=round(straggler.peers_idle, DIGITS),
        confidence=straggler.confidence,
    )


def _of_gpu(straggler: Straggler) -> Straggler:
    """*straggler*, whose shares are those of a GPU."""
    return replace(
        straggler,
        idle=straggler.own_waits,
        peers_idle=straggler.peers_own_waits,
        **dict.fromkeys(("ran", "starved", "own_waits", "peers_ran", "peers_starved", "peers_own_waits"), 0.0),
        confidence=min(SURE, straggler.confidence),
    )
