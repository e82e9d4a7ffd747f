"""
A cluster as an unlucky program meets it: answers get lost, preconditions fail, the caller dies between any two calls.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from healthd.cluster.port import Conflict, Event, Fields, Labels, Listed, NotFound, Unavailable
from healthd.core.api import Slim
from tests.simulation.ground_truth import GroundTruth
from tests.simulation.step_scheduler import TURN, Crashed

T = TypeVar("T", bound=Slim)
A = TypeVar("A")


class Fate(StrEnum):
    """What becomes of one call."""

    FINE = "fine"
    CONFLICT = "conflict"
    """Refused before it took effect."""
    LOST_BEFORE = "lost-before"
    """No answer, no effect."""
    LOST_AFTER = "lost-after"
    """No answer, yet it took effect."""
    CRASH_BEFORE = "crash-before"
    CRASH_AFTER = "crash-after"


_READ_FATES = (Fate.LOST_BEFORE, Fate.CRASH_BEFORE)
_WRITE_FATES = (Fate.CONFLICT, Fate.LOST_BEFORE, Fate.LOST_AFTER, Fate.CRASH_BEFORE, Fate.CRASH_AFTER)


@dataclass
class FaultDice:
    """How often calls go wrong. *is_out* ends all bad luck."""

    dice: random.Random
    per_write: float = 0.0
    per_read: float = 0.0
    per_turn: float = 0.0
    """How often an actor is overtaken before a call."""
    is_out: bool = False

    def fate(self, *, writes: bool) -> Fate:
        """What happens to the next call."""
        if self.is_out or self.dice.random() >= (self.per_write if writes else self.per_read):
            return Fate.FINE
        return self.dice.choice(_WRITE_FATES if writes else _READ_FATES)

    def pauses(self) -> bool:
        """Whether others go first."""
        return not self.is_out and self.per_turn > 0 and self.dice.random() < self.per_turn


class FaultyCluster:
    """A `Cluster` over the true one, for one actor. *note* gets every call and its fate."""

    def __init__(self, ground_truth: GroundTruth, luck: FaultDice, note: Callable[[str], None]) -> None:
        self._truth = ground_truth
        self._luck = luck
        self._note = note

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        return await self._call(f"get {kind.__name__} {name}", self._truth.get(kind, name, namespace), writes=False)

    async def list(
        self, kind: type[T], *, namespace: str | None = None, labels: Labels | None = None, fields: Fields | None = None
    ) -> Listed[T]:
        call = self._truth.list(kind, namespace=namespace, labels=labels, fields=fields)
        return await self._call(f"list {kind.__name__}", call, writes=False)

    def watch(
        self,
        kind: type[T],
        *,
        since: str,
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
    ) -> AsyncIterator[Event[T]]:
        raise NotImplementedError("the schedule decides who looks when; nothing watches")

    async def create(self, obj: T, *, dry_run: bool = False) -> T:
        name = obj.metadata.name  # type: ignore[attr-defined]  # every kind that is kept has metadata
        what = f"create {type(obj).__name__} {name}"
        return await self._call(what, self._truth.create(obj, dry_run=dry_run), writes=not dry_run)

    async def patch(
        self,
        kind: type[T],
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str = "",
        subresource: str = "",
        resource_version: str = "",
        uid: str = "",
    ) -> T:
        call = self._truth.patch(
            kind,
            name,
            patch,
            namespace=namespace,
            subresource=subresource,
            resource_version=resource_version,
            uid=uid,
        )
        return await self._call(f"patch {kind.__name__} {name} {subresource}", call, writes=True)

    async def delete(
        self,
        kind: type[T],
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        dependents_first: bool = False,
        dry_run: bool = False,
    ) -> None:
        call = self._truth.delete(
            kind,
            name,
            namespace=namespace,
            uid=uid,
            resource_version=resource_version,
            grace_seconds=grace_seconds,
            dependents_first=dependents_first,
            dry_run=dry_run,
        )
        await self._call(f"delete {kind.__name__} {name}", call, writes=not dry_run)

    async def _call(self, what: str, call: Coroutine[Any, Any, A], *, writes: bool) -> A:
        try:
            await TURN
            fate = self._luck.fate(writes=writes)
            self._note(f"{what} {fate}")
            match fate:
                case Fate.CONFLICT:
                    raise Conflict(f"{what}: somebody was faster")
                case Fate.LOST_BEFORE:
                    raise Unavailable(f"{what}: timed out")
                case Fate.CRASH_BEFORE:
                    raise Crashed(what)
            answer = await call
        finally:
            call.close()
        if fate is Fate.LOST_AFTER:
            raise Unavailable(f"{what}: timed out")
        if fate is Fate.CRASH_AFTER:
            raise Crashed(what)
        return answer


class StaleCache:
    """Reads of an earlier time, each kind from a time of its own, until `refresh`. What was never read is read now."""

    def __init__(self, ground_truth: GroundTruth) -> None:
        self._truth = ground_truth
        self._lists: dict[type[Slim], Listed[Any]] = {}

    def refresh(self, dice: random.Random, chance: float) -> None:
        """Let the kinds catch up, each by chance."""
        for kind in sorted(self._lists, key=lambda kind: kind.__name__):
            if dice.random() < chance:
                del self._lists[kind]

    def forget(self, kind: type[Slim]) -> None:
        """Let one kind catch up."""
        self._lists.pop(kind, None)

    async def list(
        self, kind: type[T], *, namespace: str | None = None, labels: Labels | None = None, fields: Fields | None = None
    ) -> Listed[T]:
        if namespace is not None or labels or fields:
            return await self._truth.list(kind, namespace=namespace, labels=labels, fields=fields)
        if kind not in self._lists:
            self._lists[kind] = await self._truth.list(kind)
        return self._lists[kind]

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        for item in (await self.list(kind)).items:
            metadata = item.metadata  # type: ignore[attr-defined]  # every kind that is kept has metadata
            if (metadata.name, metadata.namespace) == (name, namespace):
                return item
        raise NotFound(f"{kind.__name__} {name}")

    def watch(self, kind: type[T], **_: Any) -> AsyncIterator[Event[T]]:
        raise NotImplementedError("the schedule decides who looks when; nothing watches")

    async def create(self, obj: T, **_: Any) -> T:
        raise AssertionError("the controller wrote to the informer that it notices with")

    async def patch(self, kind: type[T], name: str, patch: Mapping[str, Any], **_: Any) -> T:
        raise AssertionError("the controller wrote to the informer that it notices with")

    async def delete(self, kind: type[T], name: str, **_: Any) -> None:
        raise AssertionError("the controller wrote to the informer that it notices with")
