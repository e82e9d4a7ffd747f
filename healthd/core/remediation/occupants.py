"""Which pods keep a node from being repaired: healthd kills nothing that runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from healthd.core.api import Pod
from healthd.core.remediation.node_check import is_check

_MIRROR = "kubernetes.io/config.mirror"
_ENDED = frozenset({"Succeeded", "Failed"})


def occupants_of(pods: Iterable[Pod]) -> tuple[str, ...]:
    """
    The pods of one node that run and are not part of it, as `namespace/name`. A DaemonSet's and static ones are part of
    it. healthd's own check of the node holds nothing up.
    """
    return tuple(sorted(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods if _counts(pod)))


def _counts(pod: Pod) -> bool:
    if pod.status.phase in _ENDED or _MIRROR in pod.metadata.annotations or is_check(pod):
        return False
    return not any(owner.kind == "DaemonSet" and owner.controller for owner in pod.metadata.owner_references)
