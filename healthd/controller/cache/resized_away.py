"""
Which pods of a gang had no place after its owner made it smaller.

Once the gang is larger again, nothing else shows why those pods went. The watches of roots and of pods are apart, and
either may be behind. So a pod that seems to have kept its place may have been deleted while the gang was smaller. A
list after a gap in a watch shows only what came of all changes: the gang may have been smaller in between.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from healthd.core.api import Pod
from healthd.core.recovery.gang import Root
from healthd.core.recovery.members import with_seats
from healthd.core.untrusted import number_or

K = TypeVar("K", bound=Hashable)


class _Span(NamedTuple):
    """Versions between which the gang was smaller, or may have been; *until* is the first of the larger gang."""

    after: int
    until: int


class ResizedAway(Generic[K]):
    """The UIDs of those pods, by the key of their gang."""

    def __init__(self) -> None:
        self._uids: dict[K, set[str]] = {}
        self._returned: dict[K, dict[str, _Span]] = {}
        """Pods that seemed to be alive when their place came back, with the time in which they had none."""

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
        span = _Span(0, _version(new.resource_version))
        self._returned.setdefault(key, {}).update(dict.fromkeys(known & stay, span))

    def miss(self, key: K, old: Root, new: Root, here: Collection[Pod], gone: Collection[Pod]) -> None:
        """
        The gang changed more than once between *old* and *new*, and only these were seen: it may have been smaller.

        What was deleted meanwhile may have had no place. That is unknown, and unknown is no fault: a member that others
        wait for shows as a hang.
        """
        span = _Span(_version(old.resource_version), _version(new.resource_version))
        ending = [pod for pod in (*here, *gone) if pod.metadata.deletion_timestamp is not None]
        self._uids.setdefault(key, set()).update(pod.metadata.uid for pod in ending if _is_deleted_within(pod, span))
        alive = (pod.metadata.uid for pod in here if pod.metadata.deletion_timestamp is None)
        self._returned.setdefault(key, {}).update(dict.fromkeys(alive, span))

    def delete(self, keys: Iterable[K], pod: Pod) -> None:
        """The deletion of *pod*, which may be of one of these gangs, was seen."""
        for key in keys:
            span = self._returned.get(key, {}).pop(pod.metadata.uid, None)
            if span is not None and _is_deleted_within(pod, span):
                self._uids.setdefault(key, set()).add(pod.metadata.uid)

    def find_deleted(self, keys: Iterable[K], pod: Pod) -> None:
        """A list shows *pod* being deleted, in its last version: it may have been deleted in any version before."""
        for key in keys:
            span = self._returned.get(key, {}).pop(pod.metadata.uid, None)
            if span is not None and _is_deleted_within(pod, span._replace(until=_ANY)):
                self._uids.setdefault(key, set()).add(pod.metadata.uid)

    def list_pods(self, version: int) -> None:
        """All pods were listed. Those that were alive then kept their place in every gang that was larger by then."""
        for key, spans in list(self._returned.items()):
            self._returned[key] = {uid: span for uid, span in spans.items() if span.until > version}
            if not self._returned[key]:
                del self._returned[key]

    def forget_pod(self, key: K, uid: str) -> None:
        """The last state of a pod is not kept any more."""
        self._uids.get(key, set()).discard(uid)
        self._returned.get(key, {}).pop(uid, None)

    def forget_gang(self, key: K) -> None:
        """The gang is gone."""
        self._uids.pop(key, None)
        self._returned.pop(key, None)


_ANY = 2**63


def _is_deleted_within(pod: Pod, span: _Span) -> bool:
    """A pod that was evicted did not go for want of a place, and the others wait for it."""
    is_evicted = any(each.type == "DisruptionTarget" and each.status == "True" for each in pod.status.conditions)
    return not is_evicted and span.after < _version(pod.metadata.resource_version) < span.until


def _version(version: str) -> int:
    """A number that grows with each change; 0 when the server's versions are not numbers."""
    return number_or(version, 0, most=_ANY - 1)
