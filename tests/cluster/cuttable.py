"""A cluster whose watches a test can end, and whose lists it can refuse, as a bad network does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, TypeVar

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import ClusterError, Event, Listed
from healthd.core.objects import Slim

T = TypeVar("T", bound=Slim)


class Cuttable(EmbeddedCluster):
    """Like the embedded cluster, except after `cut`."""

    _refusal: ClusterError | None = None
    _cut: asyncio.Future[None] | None = None

    def cut(self, why: ClusterError) -> None:
        """End all watches and refuse lists with *why*, until `mend`."""
        self._refusal = why
        if self._cut is not None:
            self._cut.set_exception(why)
            self._cut = None

    def mend(self) -> None:
        """Work again."""
        self._refusal = None

    async def list(self, kind: type[T], **selection: Any) -> Listed[T]:
        """As the embedded one."""
        if self._refusal:
            raise self._refusal
        return await super().list(kind, **selection)

    async def watch(self, kind: type[T], *, since: str, **selection: Any) -> AsyncIterator[Event[T]]:
        """As the embedded one, until it is cut."""
        self._cut = self._cut or asyncio.get_running_loop().create_future()
        cut = self._cut
        events: Any = super().watch(kind, since=since, **selection)
        async with aclosing(events):
            while True:
                step: asyncio.Future[Event[T]] = asyncio.ensure_future(anext(events))
                try:
                    await asyncio.wait((step, cut), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not step.done():
                        step.cancel()
                        await asyncio.gather(step, return_exceptions=True)
                if cut.done():
                    await cut
                yield step.result()
