"""`healthd explain` reads from the Events of a cluster what is refused to a recovery."""

from __future__ import annotations

from typing import Any

import pytest

from healthd.cli.refusals import read_refusal
from healthd.cli.target.target import Target
from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Forbidden
from healthd.core.api import Job, ObjectMeta, Occurrence
from healthd.core.api.model import Phase
from healthd.core.report.explain import explain
from healthd.core.report.explain_text import explain_sections
from healthd.telemetry.events import WARNING, about_gang
from tests.core.gangs import a_recovery_in
from tests.fakes import START, ManualClock, counting_uids

STARTING = a_recovery_in(Phase.STARTING)


class WithoutTheRight:
    """A cluster whose Events this user may not read."""

    async def list(self, *_: object, **__: object) -> Any:
        raise Forbidden("events is forbidden")


@pytest.fixture
async def found() -> Target:
    """A cluster that has refused the start."""
    cluster = EmbeddedCluster.open(None, clock=ManualClock(), new_uid=counting_uids())
    gang = STARTING.spec.gang
    await cluster.create(
        Occurrence(
            metadata=ObjectMeta(name="train.1", namespace="default"),
            involved_object=about_gang(gang, Job),
            type=WARNING,
            reason="GangStuck",
            message="site rule: no start at night",
            last_timestamp=START,
        )
    )
    return Target(cluster, None, "lab", None)


async def test_what_is_refused_stands_beside_what_is_tried(found: Target) -> None:
    refusal = await read_refusal(STARTING, found)
    now = next(each for each in explain_sections(explain(STARTING, {}, {}), refusal=refusal) if each.title == "Now")

    said = " ".join(" ".join(now.lines).split())
    assert "it is at work: so it was" in said
    assert "something was refused, and is tried again: at 00:00:00 UTC: site rule: no start at night" in said


async def test_without_the_right_to_events_nothing_is_said_of_them() -> None:
    cluster: Any = WithoutTheRight()

    assert await read_refusal(STARTING, Target(cluster, None, "lab", None)) == ""
