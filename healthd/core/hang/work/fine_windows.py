"""The newest minutes of the ranks of a gang in short windows, as far as agents were asked for them."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean, median

from healthd.core.api.health import PodWork
from healthd.core.hang.work.suspects import PEERS
from healthd.core.hang.work.work_windows import FINE, Window, by_number

MOST_FINE = 60
"""Windows of a rank that are kept: five minutes, of which some may be pauses."""
NEWEST = 5
"""Windows by which it is seen whether a rank is still slow."""


class FineWindows:
    """By rank and number of the window."""

    def __init__(self, ranks: Iterable[str]) -> None:
        self._windows: dict[str, dict[int, Window]] = {rank: {} for rank in ranks}

    def newest(self, least: int) -> int:
        """The number of the newest window that is known of so many ranks. 0: none is. Clocks differ a bit."""
        return sorted(map(self.newest_of, self._windows), reverse=True)[least - 1]

    def newest_of(self, rank: str) -> int:
        """That of the newest window that is known of *rank*. 0: none is."""
        return max(self._windows[rank], default=0)

    def take(self, rank: str, work: PodWork) -> bool:
        """Whether these are fine windows."""
        if work.seconds != FINE:
            return False
        windows = self._windows[rank]
        windows.update(by_number(work, FINE))
        for number in sorted(windows)[:-MOST_FINE]:
            del windows[number]
        return True

    def window(self, rank: str, number: int) -> Window | None:
        """None: it is not known."""
        return self._windows[rank].get(number)

    def known_at(self, number: int) -> list[str]:
        """The ranks of which this window is known."""
        return [rank for rank, windows in self._windows.items() if number in windows]

    def excess(self, rank: str, newest: int) -> float | None:
        """How many cores more than the median of its peers it uses, in the windows until *newest*. None: not known."""
        found = []
        for number in range(newest - NEWEST + 1, newest + 1):
            known = {each: self._windows[each][number].cores for each in self.known_at(number)}
            own = known.pop(rank, None)
            if own is not None and len(known) >= min(PEERS, len(self._windows) - 1):
                found.append(own - median(known.values()))
        return fmean(found) if found else None
