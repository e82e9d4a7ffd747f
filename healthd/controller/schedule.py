"""When each gang is reconciled next: at once when it is dirty, after a wait, or with backoff after an error."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from healthd.controller.cache.cluster_state import GangKey
from healthd.core.backoff import Backoff, Jitter

SOON = timedelta(milliseconds=1)
"""There is nothing to wait for, but other gangs come first."""
RETRY, RETRY_MOST = timedelta(seconds=1), timedelta(seconds=30)
"""Backoff after an error with one gang: the first wait, and the longest; doubled in between."""
STUCK_AFTER = timedelta(seconds=10)
"""A gang that has failed for so long is in no race between two writers: a person is to hear of it."""


class Schedule:
    """
    The times of the gangs. A gang in progress, or one that pauses, is never ready. *resync* is the longest time between
    two wakeups.
    """

    def __init__(self, resync: timedelta, jitter: Jitter) -> None:
        self._resync = resync
        self._jitter = jitter
        self._ready_at: dict[GangKey, datetime] = {}
        self._in_progress: set[GangKey] = set()
        self._paused_until: dict[GangKey, datetime] = {}
        self._failing: dict[GangKey, Backoff] = {}
        self._failing_since: dict[GangKey, datetime] = {}

    def ready_keys(self, now: datetime) -> list[GangKey]:
        """The gangs to reconcile now."""
        self._paused_until = {key: until for key, until in self._paused_until.items() if until > now}
        ready = (key for key, at in self._ready_at.items() if at <= now)
        return sorted(key for key in ready if key not in self._in_progress and key not in self._paused_until)

    def next_wakeup(self, now: datetime) -> timedelta:
        """How long until a gang is ready, if nothing happens."""
        waiting = (
            max(at, self._paused_until.get(key, at))
            for key, at in self._ready_at.items()
            if key not in self._in_progress
        )
        first = min(waiting, default=now + self._resync)
        return min(self._resync, max(SOON, first - now))

    def ready_at(self, key: GangKey) -> datetime | None:
        """When a gang is ready; None: when it is dirty again."""
        return self._ready_at.get(key)

    def add(self, key: GangKey, at: datetime) -> None:
        """The gang is ready at *at*, or before, when it was ready before."""
        self._ready_at[key] = min(at, self._ready_at.get(key, at))

    def add_missing(self, keys: Collection[GangKey], at: datetime) -> None:
        """Those of *keys* that are not scheduled are ready at *at*."""
        for key in keys:
            if key not in self._ready_at and key not in self._in_progress:
                self._ready_at[key] = at

    def pause(self, key: GangKey, until: datetime) -> None:
        """The gang is not ready before *until*, whatever changes."""
        self._paused_until[key] = until

    def end_pause(self, key: GangKey) -> None:
        """The gang may be ready at once."""
        self._paused_until.pop(key, None)

    @contextmanager
    def in_progress(self, key: GangKey) -> Iterator[None]:
        """One reconcile of a gang. A change in the meantime makes the gang ready again."""
        self._ready_at.pop(key, None)
        self._in_progress.add(key)
        try:
            yield
        finally:
            self._in_progress.discard(key)

    def failed(self, key: GangKey, now: datetime) -> timedelta:
        """The reconcile of a gang failed. Returns how long to wait."""
        self._failing_since.setdefault(key, now)
        return self._failing.setdefault(key, Backoff(RETRY, RETRY_MOST, self._jitter)).next()

    def is_stuck(self, key: GangKey, now: datetime) -> bool:
        """The reconcile of a gang has failed all the time for `STUCK_AFTER`."""
        return now - self._failing_since.get(key, now) >= STUCK_AFTER

    def succeeded(self, key: GangKey) -> None:
        """The reconcile of a gang did not fail."""
        self._failing.pop(key, None)
        self._failing_since.pop(key, None)
