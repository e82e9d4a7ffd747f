"""Which pods keep a node from being repaired: healthd kills nothing that runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from healthd.core.api import Pod
from healthd.core.node.check_pods import is_check
from healthd.core.node.pod_devices import devices_of

_MIRROR = "kubernetes.io/config.mirror"
_ENDED = frozenset({"Succeeded", "Failed"})


def occupants_of(pods: Iterable[Pod]) -> tuple[str, ...]:
    """
    The pods of one node that run and are not part of it, as `namespace/name`. A DaemonSet's and static ones are part of
    it. healthd's own check of the node holds nothing up.
    """
    return tuple(sorted(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods if _counts(pod)))


def users_of(pods: Iterable[Pod], resource: str) -> tuple[str, ...]:
    """The pods that hold *resource*, such as `nvidia.com/gpu`, and are no check of healthd, as `namespace/name`."""
    using = (
        pod for pod in pods if pod.status.phase not in _ENDED and not is_check(pod) and resource in devices_of(pod)
    )
    return tuple(sorted(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in using))


def _counts(pod: Pod) -> bool:
    if pod.status.phase in _ENDED or _MIRROR in pod.metadata.annotations or is_check(pod):
        return False
    return not any(owner.kind == "DaemonSet" and owner.controller for owner in pod.metadata.owner_references)
