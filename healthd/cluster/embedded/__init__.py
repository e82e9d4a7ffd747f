"""
A cluster in one SQLite file (or in memory) that behaves as an API server does.

`store` stores bytes, `rules` says what a write may change (pure), `watch` has the running watches, `cluster` combines
them into the verbs.
"""

from healthd.cluster.embedded.cluster import EmbeddedCluster
from healthd.cluster.embedded.store import DamagedStore, UnusableStore

__all__ = ["DamagedStore", "EmbeddedCluster", "UnusableStore"]
