"""Which pods check nodes for healthd, and which devices a pod holds. Pure."""

from __future__ import annotations

from healthd.core.api import Pod
from healthd.core.api.pods import Container
from healthd.core.untrusted import number_or

NAMESPACE = "healthd-checks"
"""Where the pods that check nodes are. No other pod belongs there: it needs no right of healthd's own pods."""
LABEL_CHECK = "healthd.dev/node-check"
"""On such a pod, value `true`: the admission policy lets the controller create only such pods there."""


def is_check(pod: Pod) -> bool:
    """Whether *pod* checks a node for healthd. Its namespace counts: everybody may set a label."""
    return pod.metadata.namespace == NAMESPACE and LABEL_CHECK in pod.metadata.labels


def held_devices(container: Container) -> tuple[tuple[str, str], ...]:
    """The extended resources of *container*, such as `nvidia.com/gpu`, and how much it holds of each."""
    asked = {**container.resources.requests, **container.resources.limits}
    return tuple(sorted((name, amount) for name, amount in asked.items() if "/" in name and amount != "0"))


def devices_of(pod: Pod) -> set[str]:
    """The extended resources that *pod* holds."""
    return {name for container in pod.spec.containers for name, _ in held_devices(container)}


def amount_of(resource: str, pod: Pod) -> int:
    """How much of an extended *resource* the containers of *pod* hold. 0: nothing, or no whole number."""
    held = (dict(held_devices(container)) for container in pod.spec.containers)
    return sum(number_or(each.get(resource, ""), 0) for each in held)
