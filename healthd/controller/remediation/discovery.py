"""Which APIs of other controllers a cluster serves, so which hands it has."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from healthd.clock import Clock
from healthd.cluster.port import Forbidden, NotFound, Reader
from healthd.core.api import CustomObject, Namespace, custom_type
from healthd.core.remediation.hands.description import NAMESPACE, HandDescription

ASK_AGAIN = timedelta(minutes=5)
_NO_OBJECT = "healthd-asks-whether-this-is-served"
_ALWAYS_SERVED = frozenset({("batch/v1", "Job"), ("v1", "Node"), ("v1", "Pod")})


def type_of(api: str, kind: str, *, namespaced: bool = True) -> type[CustomObject]:
    """The type of the objects of *kind* at *api*, group and version."""
    return custom_type(api, kind, f"{kind.lower()}s", namespaced=namespaced)


def asked_for(hand: HandDescription) -> Iterator[tuple[str, str]]:
    """The APIs by which *hand* is found and used, each with its kind; a namespace with its name."""
    yield from ((api, hand.kind) for api in hand.api)
    for sign in (sign.split() for sign in hand.found_by):
        if sign[0] != "label":
            yield sign[0], sign[1]


class Discovery:
    """Remembers what is served for `ASK_AGAIN`."""

    def __init__(self, cluster: Reader, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[bool, datetime]] = {}

    async def served(self, hand: HandDescription) -> set[tuple[str, str]]:
        """Of the APIs that matter to *hand*, those that are served. Raises ClusterError."""
        return {each for each in asked_for(hand) if await self._is_served(each)}

    async def _is_served(self, api: tuple[str, str]) -> bool:
        if api in _ALWAYS_SERVED:
            return True
        known, now = self._known.get(api), self._clock.now()
        if known is not None and timedelta(0) <= now - known[1] < ASK_AGAIN:
            return known[0]
        answer = await self._ask(*api)
        self._known[api] = answer, now
        return answer

    async def _ask(self, api: str, kind: str) -> bool:
        """Without the right to read a kind, or the namespace for its pods, healthd could not use it either."""
        try:
            if api == NAMESPACE:
                await self._cluster.get(Namespace, kind)
                return True
            await self._cluster.list(type_of(api, kind), fields={"metadata.name": _NO_OBJECT})
        except (NotFound, Forbidden):
            return False
        return True
