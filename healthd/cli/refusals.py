"""What stands in the way of a recovery of a cluster, for `healthd explain`."""

from __future__ import annotations

from healthd.cli.target.target import Target
from healthd.cluster.port import Forbidden, NotFound
from healthd.core.api import Occurrence, Recovery
from healthd.core.api.model import ENDED
from healthd.core.report.refusals import refusal_of


async def read_refusal(recovery: Recovery, found: Target) -> str:
    """The last refusal that its Events name. Empty where there is none, it has ended, or Events may not be read."""
    if recovery.status.phase in ENDED:
        return ""
    try:
        events = (await found.cluster.list(Occurrence, namespace=recovery.metadata.namespace)).items
    except (NotFound, Forbidden):
        return ""
    return refusal_of(recovery, events)
