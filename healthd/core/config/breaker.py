"""When so much fails at once that restarts are held."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from msgspec import Meta

from healthd.core.config.base import Policy, span


class BreakerPolicy(Policy, frozen=True, kw_only=True):
    """
    When restarts are held, because many faults at once are a broken switch, store or healthd itself.

    A gang that lost a member is stopped and waits. A gang that still runs, runs on.
    """

    restarts: Annotated[
        int,
        Meta(
            description="When so many recoveries of a namespace have begun within `window`, the next one is held until "
            "the window has passed.",
            ge=1,
        ),
    ] = 10
    per_other_namespace: Annotated[
        int,
        Meta(
            description="So many recoveries at most of each other namespace count with those of its own, so that the "
            "faults of one tenant hold no other, and faults in several namespaces hold all. For a gang that lost "
            "hardware only those that lost hardware count. 0: namespaces never hold each other.",
            ge=0,
        ),
    ] = 3
    window: Annotated[
        timedelta,
        span("The time over which `restarts` counts.", at_least=timedelta(seconds=1)),
    ] = timedelta(minutes=10)
    unhealthy_share: Annotated[
        float,
        Meta(
            description="Recoveries of all namespaces are held while more than this share of all nodes with GPUs are "
            "in quarantine, not ready or unhealthy, and became so within the last hour. One in ten at once is hardly "
            "ever ten broken machines, and spares for them would hardly be there. Fewer than three nodes never hold: "
            "in a small cluster two are soon one in ten. 1 never holds.",
            gt=0,
            le=1,
        ),
    ] = 0.1
