"""Which pods check nodes for healthd, and which devices a pod holds. Pure."""

from __future__ import annotations

from healthd.core.api import Pod
from healthd.core.untrusted import number_or

NAMESPACE = "healthd-checks"
"""Where the pods that check nodes are. No other pod belongs there: it needs no right of healthd's own pods."""
LABEL_CHECK = "healthd.dev/node-check"
"""On such a pod, value `true`: the admission policy lets the controller create only such pods there."""


def is_check(pod: Pod) -> bool:
    """Whether *pod* checks a node for healthd. Its namespace counts: everybody may set a label."""
    return pod.metadata.namespace == NAMESPACE and LABEL_CHECK in pod.metadata.labels


def amount_of(resource: str, pod: Pod) -> int:
    """How many of an extended *resource* the containers of *pod* hold. 0: none, or not a number."""
    amounts = (
        c.resources.limits.get(resource) or c.resources.requests.get(resource) or "0" for c in pod.spec.containers
    )
    return sum(number_or(amount, 0) for amount in amounts)


def devices_of(pod: Pod) -> set[str]:
    """The extended resources that *pod* holds, such as `nvidia.com/gpu`. A limit without a request counts as one."""
    asked = (amounts for c in pod.spec.containers for amounts in (c.resources.requests, c.resources.limits))
    return {name for amounts in asked for name, amount in amounts.items() if "/" in name and amount != "0"}
