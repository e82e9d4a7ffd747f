"""
Which pods of a gang had no place after its owner made it smaller.

Once the gang is larger again, nothing else shows why those pods went. The watches of roots and of pods are apart, and
either may be behind. So a pod that seems to have kept its place may have been deleted while the gang was smaller.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Generic, TypeVar

from healthd.core.api import Pod
from healthd.core.recovery.gang import Root, with_seats
from healthd.core.untrusted import number_or

K = TypeVar("K", bound=Hashable)


class ResizedAway(Generic[K]):
    """The UIDs of those pods, by the key of their gang."""

    def __init__(self) -> None:
        self._uids: dict[K, set[str]] = {}
        self._returned: dict[K, dict[str, int]] = {}
        """Pods that seemed to be alive when their place came back, with the version of the root that brought it."""

    def of(self, key: K) -> Collection[str]:
        """The pods of one gang."""
        return self._uids.get(key, ())

    def resize(self, key: K, old: Root, new: Root, here: Collection[Pod], gone: Collection[Pod]) -> None:
        """The gang changed its size. *here* are its pods that exist, *gone* those that were deleted."""
        stay = {pod.metadata.uid for pod in with_seats(here, new) if pod.metadata.deletion_timestamp is None}
        go = {pod.metadata.uid for pod in (*here, *gone)}
        go -= {pod.metadata.uid for pod in with_seats(with_seats([*here, *gone], old), new)}
        known = self._uids.get(key, set())
        self._uids[key] = (known | go) - stay
        self._returned.setdefault(key, {}).update(dict.fromkeys(known & stay, _number(new.resource_version)))

    def delete(self, keys: Iterable[K], pod: Pod) -> None:
        """The deletion of *pod*, which may be of one of these gangs, was seen."""
        uid, version = pod.metadata.uid, _number(pod.metadata.resource_version)
        for key in keys:
            returned_at = self._returned.get(key, {}).pop(uid, 0)
            if 0 < version < returned_at:
                self._uids[key].add(uid)

    def forget_pod(self, key: K, uid: str) -> None:
        """The last state of a pod is not kept any more."""
        self._uids.get(key, set()).discard(uid)
        self._returned.get(key, {}).pop(uid, None)

    def forget_gang(self, key: K) -> None:
        """The gang is gone."""
        self._uids.pop(key, None)
        self._returned.pop(key, None)


def _number(version: str) -> int:
    """A number that grows with each change; 0 when the server's versions are not numbers."""
    return number_or(version, 0, most=2**63 - 1)
