"""What agents publish of the work of a gang's pods: made-up windows, as they look at each moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import count

from healthd.core.api.health import MOST_WINDOWS, PodWork
from healthd.core.hang.work.gang_work import RankWork
from healthd.core.hang.work.work_windows import FINE, Window
from tests.fakes import START

LENGTH = 15


class Agents:
    """The agents of a gang, one for each rank. All publish after each window."""

    def __init__(self, ranks: int = 8) -> None:
        self.names = [str(rank) for rank in range(ranks)]
        self.now = START
        self.silent: set[str] = set()
        """Ranks whose agent has died: what it published last stays."""
        self.writing: set[str] | None = None
        """Ranks whose agents write after a window. None: all do."""
        self.asked: set[str] = set()
        """Ranks of which the controller asks for the newest minutes: their agents write, too."""
        self.ahead: dict[str, timedelta] = {}
        """Clocks that are wrong."""
        self.published: dict[str, RankWork] = {}
        self._windows: dict[str, list[Window]] = {name: [] for name in self.names}
        self._number = count()

    def work(self, windows: int, cores: Mapping[str, float | Window]) -> None:
        """So many windows, a bit uneven as real ones are."""
        for _ in range(windows):
            number = next(self._number)
            self.now += timedelta(seconds=LENGTH)
            for name in self.names:
                given = cores[name]
                window = given if isinstance(given, Window) else Window(given, 0.0, 0.0)
                more = 1 + 0.004 * ((number + int(name)) % 3 - 1)
                self._windows[name] = [*self._windows[name], window._replace(cores=window.cores * more)][-MOST_WINDOWS:]
                self._publish(name, self.now)

    def _publish(self, name: str, end: datetime) -> None:
        if name in self.silent or (self.writing is not None and name not in self.writing | self.asked):
            return
        windows = self._windows[name]
        work = PodWork(
            end=end + self.ahead.get(name, timedelta(0)),
            seconds=LENGTH,
            cores=[each.cores for each in windows],
            starved=[each.starved for each in windows],
            stalled=[each.stalled for each in windows],
        )
        fine = [each.cores for each in windows for _ in range(LENGTH // FINE)][-MOST_WINDOWS:]
        recent = PodWork(end=work.end, seconds=FINE, cores=fine) if name in self.asked else None
        self.published[name] = RankWork(f"uid-{name}", work, end, recent)
