"""
The search for ranks among siblings, look by look. Pure.

Connections are read only where siblings have changed, or nothing is found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from healthd.core.hang.suspects.rank_processes import PodTask
from healthd.core.hang.suspects.sibling_ranks import Connected, Siblings, ranks_among, sibling_sets

OFTEN = 12
"""Looks since the siblings last changed that read connections. Then each twelfth does until ranks are found."""
MOST_MISSES = 60
"""Looks in a row that found nothing, after which each twelfth is enough in any case: loaders may change in each epoch,
and the kernel takes milliseconds to make a table of connections."""


class SiblingSearch:
    """
    Two looks have to find the same ranks: in a start, some of them are connected first. Their numbers stay while one of
    them lives.
    """

    def __init__(self) -> None:
        self._known: dict[int, PodTask] = {}
        """By number."""
        self._is_settled = False
        """Whether all siblings that may be ranks are known."""
        self._helpers: frozenset[int] = frozenset()
        """Siblings that have worked as much so far, and without which the ranks work."""
        self._last: frozenset[int] = frozenset()
        """What the last look at connections found."""
        self._siblings: frozenset[int] = frozenset()
        self._looks = 0
        """Since these changed."""
        self._misses = 0
        """Looks at connections since one found ranks."""
        self._cpu: Mapping[int, float] = {}
        self._at: datetime | None = None

    def due(self, tasks: Sequence[PodTask]) -> list[Siblings]:
        """Those whose connections are to be read now. Called once in each look."""
        living = {(task.pid, task.started): task for task in tasks}
        ranks = ((number, living.get((rank.pid, rank.started))) for number, rank in self._known.items())
        self._known = {number: task for number, task in ranks if task is not None}
        parents = {task.parent for task in self._known.values()}
        sets = [each for each in sibling_sets(tasks) if not parents or each.parent.pid in parents]
        siblings = frozenset(child.pid for each in sets for child in each.children)
        has_more = not siblings <= self._siblings
        self._siblings = siblings
        self._looks = 0 if has_more and self._misses < MOST_MISSES else self._looks + 1
        self._is_settled = self._is_settled and bool(self._known) and not has_more
        is_due = not self._is_settled and (self._looks < OFTEN or self._looks % OFTEN == 0)
        self._misses += is_due and bool(sets)
        return sets if is_due else []

    def observe(self, tasks: Sequence[PodTask], connected: Connected | None, now: datetime) -> Mapping[int, PodTask]:
        """The ranks by number, by the processes at *now* and by what those that were due showed."""
        cores = self._cores(tasks, now)
        waits = self._looks < OFTEN
        if connected is not None and (ranks := ranks_among(*connected, cores, self._helpers, waits=waits)):
            self._misses = 0
            self._found(*connected, ranks)
        return self._known

    def _found(self, siblings: Siblings, group: AbstractSet[int], ranks: Sequence[PodTask]) -> None:
        pids = frozenset(rank.pid for rank in ranks)
        is_again, self._last = pids == self._last, pids
        if not is_again:
            return
        self._helpers = siblings.alike - pids
        self._is_settled = pids <= group and not self._helpers
        if pids != {rank.pid for rank in self._known.values()}:  # those that are left keep their numbers
            self._known = dict(enumerate(ranks))

    def _cores(self, tasks: Sequence[PodTask], now: datetime) -> dict[int, float]:
        """What each process has used since the last look."""
        before, at = self._cpu, self._at
        self._cpu, self._at = {task.pid: task.cpu for task in tasks}, now
        passed = (now - at).total_seconds() if at is not None else 0.0
        if passed <= 0:
            return {}
        return {task.pid: (task.cpu - before[task.pid]) / passed for task in tasks if task.pid in before}
