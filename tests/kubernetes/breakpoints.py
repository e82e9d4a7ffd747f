"""Exact moments of a recovery, known by what its controller writes: to kill it there, or to do something else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from healthd.core.api.model import Phase
from tests.kubernetes.api_proxy import Moment, Request
from tests.kubernetes.replicas import Replica, Replicas


class When(StrEnum):
    """Where in a phase."""

    RECORDED = "on record"
    """The phase has been written, and its writer does not know."""
    ACTING = "acting"
    """The act with this number is on its way, and has not arrived."""
    ACTED = "acted"
    """So many acts of the phase have taken effect, and their author does not know of the last one."""
    LEAVING = "before the next"
    """All is done, and the next phase is not written."""


@dataclass(frozen=True)
class Point:
    """A moment of a recovery."""

    phase: Phase
    when: When
    acts: int = 1
    """Counts for `ACTING` and `ACTED`."""

    def __str__(self) -> str:
        times = f" {self.acts}x" if self.acts > 1 else ""
        return f"{self.phase} {self.when}{times}"


class Breakpoint:
    """
    Follows the recovery of one namespace through the writes of all *replicas*, and calls *then* once, at *point*.

    It gets the replica that made the write. Whatever *then* does to its proxy counts for this very write.
    """

    def __init__(self, replicas: Replicas, namespace: str, point: Point, then: Callable[[Replica], None]) -> None:
        self.sprung = asyncio.Event()
        self.caught: Replica | None = None
        """Who made the write."""
        self._here = f"/namespaces/{namespace}/"
        self._point = point
        self._then = then
        self._phase: Phase | None = None
        self._acts = 0
        for replica in replicas.all:
            replica.proxy.watch = partial(self._watch, replica)

    def _watch(self, replica: Replica, moment: Moment, request: Request) -> None:
        if self.caught is None and self._concerns(request) and self._is_there(moment, request):
            self.caught = replica
            self._then(replica)
            self.sprung.set()

    def _concerns(self, request: Request) -> bool:
        is_ours = self._here in request.path or (self._phase is not None and "/nodes/" in request.path)
        return is_ours and request.is_about_gangs

    def _is_there(self, moment: Moment, request: Request) -> bool:
        phase, point = recorded_phase(request), self._point
        is_act = phase is None and not request.path.endswith("/status")
        is_done = moment is Moment.DONE
        was = self._phase
        if is_done and phase is not None:
            self._phase, self._acts = phase, 0
        number = self._acts = self._acts + (is_act and is_done)
        match point.when:
            case When.RECORDED:
                return is_done and phase is point.phase
            case When.LEAVING:
                return not is_done and phase is not None and was is point.phase is not phase
            case When.ACTING:
                return not is_done and is_act and was is point.phase and number + 1 == point.acts
            case When.ACTED:
                return is_done and is_act and was is point.phase and number == point.acts


def recorded_phase(request: Request) -> Phase | None:
    """The phase that a write records."""
    if "recoveries" not in request.path:
        return None
    if request.method == "POST":
        return Phase.DETECTED
    phase = request.body.get("status", {}).get("phase")
    return Phase(phase) if phase else None
