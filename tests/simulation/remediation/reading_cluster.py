"""A cluster that remembers what its program read last, and how long ago."""

from __future__ import annotations

from typing import Any, TypeVar

from healthd.cluster.port import Fields, Labels, Listed, NotFound
from healthd.core.api import Slim
from tests.simulation.faulty_cluster import FaultyCluster

T = TypeVar("T", bound=Slim)
FRESH = 12
"""Calls after which a read is old: so many lie between the last look before a request and the request."""


class ReadingCluster(FaultyCluster):
    """A cluster for one controller, which remembers what it read last."""

    calls = 0

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
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

    def last(self, kind: type[Any], name: str) -> Any:
        """What it read last of *kind* and *name*; None where it knows nothing, or nothing fresh."""
        at, found = self._reads.get((kind, name), (-FRESH, None))
        return found if self.calls - at < FRESH else None
