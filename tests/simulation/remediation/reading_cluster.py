"""A cluster that remembers what its program read last, and how long ago."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from healthd.cluster.port import Fields, Labels, Listed, NotFound, Unavailable
from healthd.core.api import Slim
from tests.simulation.faulty_cluster import FaultyCluster

T = TypeVar("T", bound=Slim)
GIVEN_UP_AFTER = timedelta(seconds=15)
"""A request that had no answer by then is given up by the client, and comes to nothing."""
FRESH = 12
"""Calls after which a read is old: so many lie between the last look before a request and the request."""


class ReadingCluster(FaultyCluster):
    """A cluster for one controller, which remembers what it read last."""

    calls = 0

    def __init__(self, now: Callable[[], datetime], *rest: Any) -> None:
        super().__init__(*rest)
        self._now = now
        self._reads: dict[tuple[type[Any], str], tuple[int, Any]] = {}

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        self.calls += 1
        try:
            found = await super().get(kind, name, namespace)
        except NotFound:
            self._reads[kind, name] = self.calls, None
            raise
        self._reads[kind, name] = self.calls, found
        return found

    async def list(
        self, kind: type[T], *, namespace: str | None = None, labels: Labels | None = None, fields: Fields | None = None
    ) -> Listed[T]:
        self.calls += 1
        found = await super().list(kind, namespace=namespace, labels=labels, fields=fields)
        name = next(iter((fields or {}).values()), "")
        self._reads[kind, name] = self.calls, found.items
        return found

    async def create(self, obj: T, *, dry_run: bool = False) -> T:
        asked = self._now()

        async def in_time() -> T:
            if self._now() - asked > GIVEN_UP_AFTER:
                raise Unavailable("timed out")
            return await self._truth.create(obj, dry_run=dry_run)

        name = obj.metadata.name  # type: ignore[attr-defined]  # every kind that is kept has metadata
        return await self._call(f"create {type(obj).__name__} {name}", in_time(), writes=not dry_run)

    def last(self, kind: type[Any], name: str, since: int = 0) -> Any:
        """What it read last of *kind* and *name* after so many calls; None where it knows nothing, or nothing fresh."""
        at, found = self._reads.get((kind, name), (-FRESH, None))
        return found if self.calls - at < FRESH and at > since else None
