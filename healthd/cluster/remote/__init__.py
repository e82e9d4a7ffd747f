"""
A cluster behind a real API server, over HTTP.

`cluster` has the verbs, `watching` the watch, `http` requests; `wire`, `addresses` and `answers` are pure. The address
and the credentials come from `in_cluster` for pods, `kubeconfig` for people. Only `kubeconfig` needs the package
`kubernetes`: it takes 21 MB of memory (63 MB against 42 in all) and over 100 MB of disk, so pods do not use it.
"""

from __future__ import annotations

from healthd.cluster.remote.cluster import RemoteCluster, connect
from healthd.cluster.remote.connection import Access, Connection
from healthd.cluster.remote.http import ClientLimits
from healthd.cluster.remote.in_cluster import in_cluster

__all__ = ["Access", "ClientLimits", "Connection", "RemoteCluster", "connect", "in_cluster"]
