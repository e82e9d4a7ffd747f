"""Which pods check nodes for healthd. Pure."""

from __future__ import annotations

from healthd.core.api import Pod

NAMESPACE = "healthd-checks"
"""Where the pods that check nodes are. No other pod belongs there: it needs no right of healthd's own pods."""
LABEL_CHECK = "healthd.dev/node-check"
"""On such a pod, value `true`: the admission policy lets the controller create only such pods there."""


def is_check(pod: Pod) -> bool:
    """Whether *pod* checks a node for healthd. Its namespace counts: everybody may set a label."""
    return pod.metadata.namespace == NAMESPACE and LABEL_CHECK in pod.metadata.labels
