"""Kill the controller that leads at an exact moment of a recovery, known by what it writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from healthd.core.model import Phase
from tests.kubernetes.gate import Moment, Request
from tests.kubernetes.replicas import Replica, Replicas


class When(StrEnum):
    """Where in a phase."""

    RECORDED = "on record"
    """The phase has been written, and whoever wrote it does not know."""
    ACTED = "acted"
    """So many acts of the phase have taken effect, and whoever did them does not know of the last one."""
    LEAVING = "before the next"
    """All is done, and the next phase is not written."""


@dataclass(frozen=True)
class Point:
    """A moment of a recovery."""

    phase: Phase
    when: When
    acts: int = 1
    """Counts for `ACTED`."""

    def __str__(self) -> str:
        times = f" {self.acts}x" if self.when is When.ACTED and self.acts > 1 else ""
        return f"{self.phase} {self.when}{times}"


class Progress:
    """
    Follows the recovery of one namespace through the writes of all *replicas*, and calls *then* once, at *point*.

    It is told which replica made the write. Whatever *then* does to its gate counts for this very write.
    """

    def __init__(self, replicas: Replicas, namespace: str, point: Point, then: Callable[[Replica], None]) -> None:
        self.reached_by: Replica | None = None
        self._here = f"/namespaces/{namespace}/"
        self._point = point
        self._then = then
        self._phase: Phase | None = None
        self._acts = 0
        for replica in replicas.all:
            replica.gate.watch = partial(self._watch, replica)

    def _watch(self, replica: Replica, moment: Moment, request: Request) -> None:
        if self.reached_by is not None or not self._concerns(request):
            return
        if self._is_there(moment, request):
            self.reached_by = replica
            self._then(replica)

    def _concerns(self, request: Request) -> bool:
        is_ours = self._here in request.path or (self._phase is not None and "/nodes/" in request.path)
        return is_ours and request.is_about_gangs

    def _is_there(self, moment: Moment, request: Request) -> bool:
        phase, point = recorded_phase(request), self._point
        if moment is Moment.COMING:
            return phase is not None and self._phase is point.phase is not phase and point.when is When.LEAVING
        if phase is not None:
            self._phase, self._acts = phase, 0
            return phase is point.phase and point.when is When.RECORDED
        self._acts += not request.path.endswith("/status")
        return self._phase is point.phase and point.when is When.ACTED and self._acts == point.acts


def recorded_phase(request: Request) -> Phase | None:
    """The phase that a write records."""
    if "recoveries" not in request.path:
        return None
    if request.method == "POST":
        return Phase.DETECTED
    phase = request.body.get("status", {}).get("phase")
    return Phase(phase) if phase else None
