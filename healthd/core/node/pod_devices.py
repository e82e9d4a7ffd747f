"""Which devices a pod holds: extended resources, such as `nvidia.com/gpu`. Claims of DRA are not read. Pure."""

from __future__ import annotations

from healthd.core.api import Node, Pod
from healthd.core.api.kubernetes.gpu_names import GPU_PREFIXES
from healthd.core.api.kubernetes.pods import Container
from healthd.core.untrusted import number_or


def held_devices(container: Container) -> tuple[tuple[str, str], ...]:
    """The extended resources of *container*, and how much it holds of each."""
    asked = {**container.resources.requests, **container.resources.limits}
    return tuple(sorted((name, amount) for name, amount in asked.items() if "/" in name and amount != "0"))


def devices_of(pod: Pod) -> set[str]:
    """The extended resources that *pod* holds."""
    return {name for container in pod.spec.containers for name, _ in held_devices(container)}


def amount_of(resource: str, pod: Pod) -> int:
    """How much of an extended *resource* the containers of *pod* hold. 0: nothing, or no whole number."""
    held = (dict(held_devices(container)) for container in pod.spec.containers)
    return sum(number_or(each.get(resource, ""), 0) for each in held)


def gpus_held(pod: Pod) -> int:
    """How many GPUs the containers of *pod* hold."""
    return sum(amount_of(name, pod) for name in devices_of(pod) if name.startswith(GPU_PREFIXES))


def has_all_gpus(pod: Pod, node: Node) -> bool:
    """Whether no other pod can have a GPU of its *node*."""
    offered = {name: amount for name, amount in node.status.capacity.items() if name.startswith(GPU_PREFIXES)}
    there = {name: number_or(amount, 0) for name, amount in offered.items() if amount != "0"}
    return bool(there) and all(0 < number <= amount_of(name, pod) for name, number in there.items())
