"""
Ask the agents of nodes to publish the newest minutes of the work of their pods, by an annotation of the node that each
agent watches anyway. Nothing waits for the answer: an agent of an older healthd gives none.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import structlog

from healthd.cluster.port import Cluster, ClusterError
from healthd.controller.cache.cluster_state import ClusterState
from healthd.core.node import work_request

log = structlog.get_logger()

MOST = 64
"""Nodes that are asked in one pass: a job for the whole cluster may make many gangs slower at once."""


class WorkRequests:
    """Those of the leader. A node that could not be asked is asked no second time: the next question comes anyway."""

    def __init__(self, cluster: Cluster, cluster_state: ClusterState) -> None:
        self._cluster = cluster
        self._cluster_state = cluster_state
        self._left = MOST
        self._is_refused = False

    def begin_pass(self) -> None:
        """A further pass over all gangs begins."""
        self._left = MOST

    async def ask(self, names: Iterable[str], until: datetime) -> None:
        """Ask the agents of these nodes, *until* a time that is not far."""
        for name in names:
            node = self._cluster_state.nodes.get(name)
            if node is None or not self._left:
                continue
            self._left -= 1
            try:
                patched = await self._cluster.patch(type(node), name, work_request.patch(until), uid=node.metadata.uid)
            except ClusterError as error:  # such as an older admission policy
                if not self._is_refused:  # a lasting error is logged once; its words name another node each time
                    log.warning("stragglers.not_asked", node=name, error=str(error))
                self._is_refused = True
                return
            self._is_refused = False
            self._cluster_state.upsert(patched)
