"""
The controller's request to an agent: publish the newest minutes of the work of your pods, and soon. It is an annotation
of the node, which the agent watches anyway. An older agent does not know it, and goes on as before.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from healthd.core.api import ANNOTATION_PUBLISH_WORK, Node
from healthd.core.untrusted import moment_or_none

LONGEST = timedelta(minutes=3)
"""No request lasts longer, whatever the annotation says."""


def patch(until: datetime) -> dict[str, Any]:
    """What the controller writes: the time until which the agent is asked."""
    stamp = until.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"metadata": {"annotations": {ANNOTATION_PUBLISH_WORK: stamp}}}


def read(node: Node, now: datetime) -> datetime | None:
    """Until when the agent of *node* is asked. None: it is not, or what the annotation says makes no sense."""
    until = moment_or_none(node.metadata.annotations.get(ANNOTATION_PUBLISH_WORK, ""))
    return until if until is not None and now < until <= now + LONGEST else None
