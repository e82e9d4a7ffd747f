"""
A cluster in one SQLite file (or in memory) that behaves as an API server does.

`store` keeps bytes, `rules` says what a write may change (pure), `watch` knows who waits, `cluster` joins them to the
verbs.
"""

from healthd.cluster.embedded.cluster import EmbeddedCluster
from healthd.cluster.embedded.store import UnusableStore

__all__ = ["EmbeddedCluster", "UnusableStore"]
