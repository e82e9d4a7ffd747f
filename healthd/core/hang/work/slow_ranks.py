"""
Compares the ranks of a run by their work, as a whole and in its parts.

What a rank computes is known exactly, and most ranks never wait for a file or sleep by themselves. How long they had no
processor varies a lot on a busy machine, and a rank that does more of one part would be lost in that noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter

import msgspec

from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.gpus.host_bound_gpus import HostBoundGpus
from healthd.core.hang.work.stragglers import AT_MOST, CONFIRMED, StragglerDetector
from healthd.core.hang.work.work_share import ShareWindow


class SlowRanks:
    """One gang, by the shares of main threads, and of the GPUs of its ranks where they have some."""

    def __init__(self) -> None:
        parts = (None, attrgetter("ran"), attrgetter("own_waits"))
        self._detectors = [StragglerDetector(part=part, confirmed_factor=CONFIRMED) for part in parts]
        self._gpus = HostBoundGpus()
        self._present: dict[str, Straggler] = {}
        """By rank, as each was first reported."""
        self._kept_up: dict[str, datetime] = {}
        """By rank: since when the last part that showed it to be slow shows it no more."""

    def add(self, window: ShareWindow, of_gpus: ShareWindow | None = None) -> list[Straggler]:
        """
        *of_gpus*: what the GPUs did in a window that ends now. Returns what changes: those that begin to be slow, and
        with `ended_at` those that no longer are.
        """
        changes = [change for detector in self._detectors for change in detector.add(window)]
        changes += self._gpus.add(of_gpus) if of_gpus is not None else []
        begun = [each for each in changes if each.ended_at is None]
        for each in changes:
            if each.ended_at is not None:
                self._kept_up[each.rank] = max(each.ended_at, self._kept_up.get(each.rank, each.ended_at))
        over = self._over(window.end, was_stopped=any(each.was_stopped for each in changes))
        most = max(1, len(window.shares) // AT_MOST)
        for each in begun:
            if each.rank not in self._present and len(self._present) < most:
                self._present[each.rank] = each
                self._kept_up.pop(each.rank, None)
        return [*over, *(each for each in begun if self._present.get(each.rank) is each)]

    def restart(self, at: datetime) -> list[Straggler]:
        """Forget all: the ranks were stopped. Returns those that were slow, as ended."""
        for detector in self._detectors:
            detector.restart(at)
        self._gpus.restart(at)
        self._kept_up.clear()
        return self._over(at, was_stopped=True)

    def _over(self, at: datetime, *, was_stopped: bool) -> list[Straggler]:
        """Those that no part shows to be slow any more."""
        slow = {each.rank for detector in self._detectors for each in detector.present}
        slow |= {each.rank for each in self._gpus.present}
        over: Sequence[str] = [rank for rank in self._present if rank not in slow]
        ended = (self._present.pop(rank) for rank in over)
        return [
            msgspec.structs.replace(each, ended_at=self._end_of(each, at), was_stopped=was_stopped) for each in ended
        ]

    def _end_of(self, straggler: Straggler, at: datetime) -> datetime:
        """When it began to keep up, or was stopped. It may have been reported by a part that is seen to end sooner."""
        return max(self._kept_up.get(straggler.rank, at), straggler.since)
