"""
The ranks that a launcher, such as torchrun, started below the only rank of a run. To the controller they are one, which
it starts and stops. But it is one of them that hangs or is slow, so the watch of the ranks samples each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

import structlog

from healthd.core.hang.suspects.rank_processes import Launched, launched_ranks
from healthd.core.hang.suspects.sibling_search import SiblingSearch
from healthd.local.launchers import starts_ranks
from healthd.local.processes.runner import RunningRank
from healthd.local.processes.shim import descendants
from healthd.probes.hang.siblings import first_connected
from healthd.probes.hang.tasks import read_task
from healthd.probes.sysfs import read_bytes
from healthd.probes.usage.process_tree import Beside
from healthd.threads import in_thread

log = structlog.get_logger(__name__)

LOOK_EVERY = timedelta(seconds=5)
MOST_TASKS = 512
"""Processes below a launcher that are looked at. Each look reads two files of each."""


class LaunchedRanks:
    """Those of the ranks that *running* returns."""

    def __init__(
        self,
        running: Callable[[], Sequence[RunningRank]],
        find: Callable[[RunningRank, datetime], Sequence[RunningRank]] | None = None,
    ) -> None:
        self._running = running
        self._find = find or RanksBelow()
        self._launcher: RunningRank | None = None
        self._found: Sequence[RunningRank] = ()

    async def cycle(self, now: datetime) -> timedelta:
        """Look once. A look that does not return, as one that waits for a driver, leaves all as it was."""
        ranks = self._running()
        launcher = ranks[0] if len(ranks) == 1 else None
        found = await in_thread(partial(self._find, launcher, now), "look for ranks") if launcher is not None else ()
        if found and found != self._found:
            log.info("run.launched_ranks", ranks=[rank.rank for rank in found], pids=[rank.pid for rank in found])
        self._launcher, self._found = launcher, found
        return LOOK_EVERY

    def running(self) -> Sequence[RunningRank]:
        """The ranks that a launcher started, if there is one and they are known; else those that run."""
        ranks = self._running()
        return self._found if self._found and [*ranks] == [self._launcher] else ranks


class RanksBelow:
    """
    Those below one launcher after the other: by the numbers that it gave them, else those that are connected with each
    other.
    """

    def __init__(self) -> None:
        self._launcher: RunningRank | None = None
        self._search = SiblingSearch()

    def __call__(self, launcher: RunningRank, now: datetime) -> list[RunningRank]:
        """
        None where it is no launcher. What it started beside them, such as a server without a number, belongs to the
        first: a gang of which that works does not hang.
        """
        if launcher != self._launcher:
            self._launcher, self._search = launcher, SiblingSearch()
        pids = sorted(descendants(launcher.shim))[:MOST_TASKS]
        tasks = [task for pid in pids if (task := read_task(pid)) is not None]
        found = launched_ranks(tasks, lambda pid: starts_ranks(_command(pid)))
        if found is None:
            connected = first_connected(self._search.due(tasks))
            # Their launcher belongs to the first, too: it may do more than wait for them.
            found = Launched(self._search.observe(tasks, connected, now), frozenset())
        return _running_ranks(launcher, found)


def _running_ranks(launcher: RunningRank, found: Launched) -> list[RunningRank]:
    pids = frozenset(task.pid for task in found.ranks.values())
    return [
        launcher._replace(
            uid=f"{launcher.uid}/{task.pid}",
            rank=str(number),
            shim=task.parent,
            pid=task.pid,
            log="",  # all of them write into one
            is_launched=True,
            beside=None if place else Beside(launcher.shim, pids, found.launchers),
        )
        for place, (number, task) in enumerate(found.ranks.items())
    ]


def _command(pid: int) -> list[str]:
    words = read_bytes(f"/proc/{pid}/cmdline").split(b"\0")[:-1]
    return [word.decode(errors="replace") for word in words]
