"""What the agents publish of the ranks of a real gang."""

from __future__ import annotations

from typing import NamedTuple

from healthd.clock import SystemClock
from healthd.core.node import work_request
from tests.kubernetes.real.scenario import RANKS, RealStage


class Seen(NamedTuple):
    """What an agent publishes of a rank."""

    state: str
    shows_polling: bool
    """Whether it would be seen if the rank only polled."""


WORKS = Seen("working", shows_polling=True)


def until_rhythms_known(stage: RealStage) -> None:
    """Return when the rhythm of each rank of the first attempt is published. Raises LabError."""
    stage.until_running(0)
    _have_agents_publish(stage)
    stage.until("the rhythm of each rank known", lambda: len(seen_of(stage)) == RANKS)


def seen_of(stage: RealStage) -> dict[str, Seen]:
    """What is published of each rank of the first attempt."""
    found = {}
    for rank, life in stage.ranks_of(0).items():
        uid = stage.pod_on(life.node)["metadata"]["uid"]
        health = stage.control_plane.api.get(f"/apis/healthd.dev/v1alpha1/nodehealths/{life.node}")
        for rhythm in health["status"].get("rhythms", []):
            if rhythm["uid"] == uid:
                found[rank] = Seen(rhythm["state"], rhythm.get("showsPolling", False))
    return found


def _have_agents_publish(stage: RealStage) -> None:
    """Ask as the controller does. By themselves agents publish a rhythm that became known within five minutes."""
    asked = work_request.patch(SystemClock().now() + work_request.LONGEST)
    for node in stage.nodes_of(0):
        stage.control_plane.api.patch(f"/api/v1/nodes/{node}", asked)
