"""
The ranks and GPUs of one gang that others of their own pod wait for, by what the agents of their nodes publish.

An agent compares the ranks of its pods (`pod_ranks`) and the GPUs of its node (`idle_gpus`). Here it is followed which
of them were reported, and which are over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from healthd.core.hang.straggler import Straggler

MISSING_FOR = timedelta(minutes=15)
"""When one is over that its agent lists no more. One that was restarted lists it again, where it is still slow."""


_Key = tuple[str, str, str]
"""Pod, rank, and the GPU that shows it, if one does."""


class SlowInPods:
    """One gang, as long as it has the *pods* with these uids. It is never moved for such a rank."""

    def __init__(self, pods: Collection[str]) -> None:
        self.pods = frozenset(pods)
        self._present: dict[_Key, Straggler] = {}
        """Those that are slow."""
        self._missing: dict[_Key, datetime] = {}
        """Since when they are no longer listed."""

    @property
    def present(self) -> list[Straggler]:
        """Those that are slow now."""
        return [*self._present.values()]

    def adopt(self, straggler: Straggler) -> None:
        """Take over one that was reported before, or what is known of it now."""
        self._present[_key(straggler)] = straggler

    def observe(self, published: Mapping[str, Sequence[Straggler]], now: datetime) -> list[Straggler]:
        """
        *published*: what is listed of each pod, by its name. Of a pod that is left out nothing is known. Returns what
        changes: those that begin to be slow, and with `ended_at` those that no longer are.
        """
        newest: dict[_Key, Straggler] = {}
        for each in sorted((each for listed in published.values() for each in listed), key=lambda each: each.since):
            newest[_key(each)] = each
        return [*self._over(newest, published, now), *self._begun(newest.values())]

    def _over(
        self, newest: Mapping[_Key, Straggler], published: Mapping[str, object], now: datetime
    ) -> list[Straggler]:
        known = [(key, each) for key, each in self._present.items() if each.pod in published]
        ends = [(key, each, self._end_of(each, newest.get(key), now)) for key, each in known]
        over = [(key, replace(each, ended_at=end)) for key, each, end in ends if end is not None]
        for key, _ in over:
            del self._present[key]
            self._missing.pop(key, None)
        return [each for _, each in over]

    def _end_of(self, straggler: Straggler, listed: Straggler | None, now: datetime) -> datetime | None:
        """None: it is still slow, as far as is known."""
        if listed is not None and listed.ended_at is None:
            self._missing.pop(_key(straggler), None)
            return None
        if listed is not None and listed.ended_at is not None and listed.ended_at > straggler.since:
            return listed.ended_at
        return now if now - self._missing.setdefault(_key(straggler), now) >= MISSING_FOR else None

    def _begun(self, newest: Iterable[Straggler]) -> list[Straggler]:
        begun = [each for each in newest if each.ended_at is None and _key(each) not in self._present]
        self._present |= {_key(each): each for each in begun}
        return begun


def _key(straggler: Straggler) -> _Key:
    return straggler.pod, straggler.rank, straggler.gpu
