"""
The ranks and GPUs of one gang that others of their own pod wait for, by what the agents of their nodes publish.

An agent compares the ranks of its pods (`pod_ranks`) and the GPUs of its node (`host_bound_gpus`). Here it is followed
which of them were reported, and which are over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.stragglers import AT_MOST

MISSING_FOR = timedelta(minutes=15)
"""When one is over that its agent lists no more. An agent that was restarted lists a rank again that is still slow, but
not a GPU, of which it knows no past."""


_Key = tuple[str, str, str]
"""Pod, rank, and the GPU that shows it, if one does."""


class Source(NamedTuple):
    """Of what something is listed."""

    pod: str
    of_gpus: bool = False
    """Of its GPUs. Else of its ranks."""


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

    def observe(
        self, published: Mapping[Source, Sequence[Straggler]], now: datetime, *, slow: Collection[str] = ()
    ) -> list[Straggler]:
        """
        *published*: what is listed. Of what is left out nothing is known. *slow*: pods that are known to be slow as a
        whole. Returns what changes: those that begin to be slow, and with `ended_at` those that no longer are.
        """
        newest: dict[_Key, Straggler] = {}
        for each in sorted((each for listed in published.values() for each in listed), key=lambda each: each.since):
            newest[_key(each)] = each
        return [*self._over(newest, published, now), *self._begun(newest.values(), slow)]

    def _over(
        self, newest: Mapping[_Key, Straggler], published: Mapping[Source, object], now: datetime
    ) -> list[Straggler]:
        known = [(key, each) for key, each in self._present.items() if _source(each) in published]
        ends = [(key, each, self._end_of(each, newest.get(key), now)) for key, each in known]
        over = [
            (key, replace(each, ended_at=end, was_lost=key not in newest or newest[key].ended_at != end))
            for key, each, end in ends
            if end is not None
        ]
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

    def _begun(self, newest: Iterable[Straggler], slow: Collection[str]) -> list[Straggler]:
        found = [each for each in newest if each.ended_at is None and _key(each) not in self._present]
        begun = [each for each in found if not each.gpu]
        self._present |= {_key(each): each for each in begun}
        of_gpus = self._gpus_begun([each for each in found if each.gpu], slow)
        self._present |= {_key(each): each for each in of_gpus}
        return [*begun, *of_gpus]

    def _gpus_begun(self, found: Iterable[Straggler], slow: Collection[str]) -> list[Straggler]:
        """
        One of a pod, of which nothing else is known to be slow: most likely it is the same host. Where they are of more
        than a quarter of the pods, they have another part in the job.
        """
        known = {each.pod for each in self._present.values()} | {*slow}
        begun = {each.pod: each for each in reversed([*found]) if each.pod not in known}
        pods = begun.keys() | {each.pod for each in self._present.values() if each.gpu}
        return [*begun.values()] if len(pods) <= max(1, len(self.pods) // AT_MOST) else []


def _source(straggler: Straggler) -> Source:
    return Source(straggler.pod, straggler.gpu != "")


def _key(straggler: Straggler) -> _Key:
    return straggler.pod, straggler.rank, straggler.gpu
