"""A cluster that notes every request, and lets a test step in between."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from healthd.cluster.port import Cluster, ClusterError


class CountingCluster:
    """Passes everything on to *cluster*; while *trouble* is set, every request fails with it instead."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster: Any = cluster
        self.requests: list[str] = []
        self.trouble: ClusterError | None = None
        self.before: Callable[[str], Awaitable[None]] | None = None
        """Called with each request, before it is made."""

    async def get(self, kind: type[Any], *where: Any, **given: Any) -> Any:
        """Noted as `get Kind`."""
        return await self._pass_on("get", kind, *where, **given)

    async def list(self, kind: type[Any], **given: Any) -> Any:
        """Noted as `list Kind`."""
        return await self._pass_on("list", kind, **given)

    async def patch(self, kind: type[Any], *where: Any, **given: Any) -> Any:
        """Noted as `patch Kind`, with `/status` where that is written."""
        return await self._pass_on("patch", kind, *where, **given)

    async def delete(self, kind: type[Any], *where: Any, **given: Any) -> Any:
        """Noted as `delete Kind`."""
        return await self._pass_on("delete", kind, *where, **given)

    async def create(self, obj: Any, **how: Any) -> Any:
        """Noted as `create Kind`."""
        await self._note(f"create {type(obj).__name__}")
        return await self._cluster.create(obj, **how)

    async def watch(self, kind: type[Any], **given: Any) -> AsyncIterator[Any]:
        """Noted as `watch Kind` when it begins; it breaks with the next event while there is trouble."""
        await self._note(f"watch {kind.__name__}")
        async for event in self._cluster.watch(kind, **given):
            if self.trouble:
                raise self.trouble
            yield event

    def noted(self) -> builtins.list[str]:
        """The requests since the last call."""
        noted, self.requests = self.requests, []
        return noted

    async def _pass_on(self, verb: str, kind: type[Any], *where: Any, **given: Any) -> Any:
        subresource = f"/{given['subresource']}" if given.get("subresource") else ""
        await self._note(f"{verb} {kind.__name__}{subresource}")
        return await getattr(self._cluster, verb)(kind, *where, **given)

    async def _note(self, request: str) -> None:
        self.requests.append(request)
        if self.trouble:
            raise self.trouble
        if self.before:
            await self.before(request)
