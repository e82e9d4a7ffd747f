"""Fakes for tests of clusters: a connection that never changes, and the compaction of a history."""

from __future__ import annotations

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.remote import Access


class FixedConnection:
    """A connection to an API server whose access never changes."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def access(self, *, fresh: bool = False) -> Access:
        """Always the same access."""
        return self._access


def compact(cluster: EmbeddedCluster, before: str) -> None:
    """Delete the history older than version *before*, as an API server does by itself every few minutes."""
    with cluster._store.transaction():
        cluster._store.trim(int(before) - 1)
