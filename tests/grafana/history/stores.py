"""The checkpoints of gangs of the stage, with times and free space, as the controller checks them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from healthd.core.api import (
    ChosenCheckpoint,
    RejectedCheckpoint,
)
from healthd.core.checkpoint.verification import VerificationReport
from healthd.core.recovery.gang import Root
from tests.fakes import ManualClock
from tests.simulation.training import Store

GIB = 2**30


class TimedStore(Store):
    """A store that knows when each checkpoint was saved, and how full it is."""

    def __init__(self, clock: ManualClock, gigabytes: int) -> None:
        super().__init__()
        self._clock = clock
        self.saved_at: dict[int, datetime] = {}
        """By the number of a save."""
        self.free = gigabytes * GIB
        self.is_stopped = False
        """The program goes on training and saves no more."""

    def save(self, gang: str, step: int, *, whole: bool) -> None:
        if self.is_stopped:
            return
        self.saves = int(self._clock.now().timestamp() * 1e9)  # the number of a save is its time for a recovery, too
        super().save(gang, step, whole=whole)
        self.saved = self.saved[-5:]
        self.saved_at[self.saves] = self._clock.now()


class Looker:
    """What `healthd` sees of the stores of gangs that run."""

    def __init__(self, stores: Mapping[str, TimedStore]) -> None:
        self._stores = stores

    async def report(self, root: Root) -> VerificationReport:
        """The newest that would load."""
        store = self._stores[root.ref.name]
        whole = store.newest_whole()
        newer = [each for each in store.saved if not each.whole and (whole is None or each.step > whole.step)]
        found = None
        if whole is not None:
            at = store.saved_at[whole.number]
            found = ChosenCheckpoint(path=whole.path, step=whole.step, saved_ns=int(at.timestamp() * 1e9))
        rejected = [RejectedCheckpoint(path=each.path, step=each.step, reason="it is torn") for each in newer]
        return VerificationReport(found=found, rejected=rejected, size=40 * GIB, write_seconds=12.0, free=store.free)
