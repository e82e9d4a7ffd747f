"""What lies between one client and its cluster, for a test to cut: requests fail or hang, watches end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from healthd.cluster.port import Cluster, ClusterError, Event, Fields, Labels, Listed
from healthd.core.api import Slim

A = TypeVar("A")
T = TypeVar("T", bound=Slim)


class Link:
    """A `Cluster` that is *cluster* while the link is whole."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._refusal: ClusterError | None = None
        self._hangs = False
        self._broken: asyncio.Future[None] | None = None

    def cut(self, why: ClusterError) -> None:
        """Every request fails with *why*, and so does every watch that runs."""
        self._refusal = why
        if self._broken is not None:
            self._broken.set_exception(why)
            self._broken = None

    def hang(self) -> None:
        """No request is answered any more; a watch says nothing."""
        self._hangs = True

    def mend(self) -> None:
        """It works again, for new requests."""
        self._refusal, self._hangs = None, False

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        return await self._through(self._cluster.get(kind, name, namespace))

    async def list(
        self, kind: type[T], *, namespace: str | None = None, labels: Labels | None = None, fields: Fields | None = None
    ) -> Listed[T]:
        return await self._through(self._cluster.list(kind, namespace=namespace, labels=labels, fields=fields))

    async def create(self, obj: T, **how: Any) -> T:
        return await self._through(self._cluster.create(obj, **how))

    async def patch(self, kind: type[T], name: str, patch: Mapping[str, Any], **how: str) -> T:
        return await self._through(self._cluster.patch(kind, name, patch, **how))

    async def delete(self, kind: type[T], name: str, **how: Any) -> None:
        await self._through(self._cluster.delete(kind, name, **how))

    async def watch(
        self,
        kind: type[T],
        *,
        since: str,
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
    ) -> AsyncIterator[Event[T]]:
        self._broken = broken = self._broken or asyncio.get_running_loop().create_future()
        events: Any = self._cluster.watch(kind, since=since, namespace=namespace, labels=labels, fields=fields)
        async with aclosing(events):
            while event := await _unless(broken, anext(events)):
                if self._hangs:
                    await asyncio.Event().wait()
                yield event

    async def _through(self, call: Coroutine[Any, Any, A]) -> A:
        try:
            if self._hangs:
                await asyncio.Event().wait()
            if self._refusal:
                raise self._refusal
            return await call
        finally:
            call.close()


async def _unless(broken: asyncio.Future[None], step: Coroutine[Any, Any, A]) -> A:
    """The outcome of *step*, or the exception of *broken* when that is set first."""
    going = asyncio.ensure_future(step)
    try:
        await asyncio.wait((going, broken), return_when=asyncio.FIRST_COMPLETED)
        if broken.done():
            broken.result()
        return going.result()
    finally:
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
