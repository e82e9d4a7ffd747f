"""
A cluster behind a real API server, over HTTP.

`cluster` has the verbs, `watching` the watch, `http` requests; `wire`, `addresses` and `answers` are pure. Where the
API server is and who we are: `in_cluster` for pods, `kubeconfig` for people. Only the latter needs the package
`kubernetes`: it takes 21 MB of memory (63 MB against 42 in all) and over 100 MB of disk, so it is optional.
"""

from __future__ import annotations

from pathlib import Path

from healthd.clock import Clock
from healthd.cluster.port import Unusable
from healthd.cluster.remote.cluster import RemoteCluster, connect
from healthd.cluster.remote.connection import Access, Connection, Fixed
from healthd.cluster.remote.http import Limits
from healthd.cluster.remote.in_cluster import in_cluster

__all__ = ["Access", "Connection", "Fixed", "Limits", "RemoteCluster", "connect", "from_kubeconfig", "in_cluster"]


def from_kubeconfig(path: Path | None = None, context: str | None = None, *, clock: Clock) -> Connection:
    """
    The access by *path* and *context*; None: as kubectl chooses ($KUBECONFIG, ~/.kube/config; the current context).

    Raises Unusable where the package that reads it is not installed.
    """
    try:
        from healthd.cluster.remote import kubeconfig
    except ModuleNotFoundError as error:
        raise Unusable(f"reading a kubeconfig needs `pip install 'healthd[kubeconfig]'`: {error}") from error
    return kubeconfig.from_kubeconfig(path, context, clock=clock)
