"""
The last line of defence: an error from one object is logged and counted, and stops nothing else.

Data that others wrote is bounded before it gets here (`healthd.core.untrusted`). An error that still happens is a bug
of ours, and it must not leave all other gangs unguarded.
"""

from __future__ import annotations

from types import TracebackType

import structlog

from healthd.cluster.port import ClusterError
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger()

REMEMBERED = 1000
"""Logged errors that are remembered, so that a lasting error is logged once."""


class Isolation:
    """Isolates errors to the objects that cause them."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics
        self._logged: dict[tuple[str, str], str] = {}

    def of(self, where: str, obj: object) -> Isolated:
        """
        Work on *obj*, or on what has this name. ClusterError is raised again; other errors are logged and counted.
        """
        return Isolated(self, where, obj)

    def count(self, where: str) -> None:
        """Count one more error that an object caused."""
        if self._metrics is not None:
            self._metrics.object_errors.labels(where).inc()

    def failed(self, where: str, obj: object, error: Exception) -> None:
        """Count *error*, and log it unless it is the one that this object caused last."""
        self.count(where)
        named = _named(obj)
        if self._logged.get((where, named)) != repr(error):
            log.error("object.failed", where=where, object=named, error=str(error), exc_info=error)
        self._logged[where, named] = repr(error)
        while len(self._logged) > REMEMBERED:
            del self._logged[next(iter(self._logged))]


class Isolated:
    """The context of work on one object. Not a generator: every object of every list passes through one."""

    __slots__ = ("_isolation", "_obj", "_where")

    def __init__(self, isolation: Isolation, where: str, obj: object) -> None:
        self._isolation = isolation
        self._where = where
        self._obj = obj

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is None or isinstance(error, ClusterError) or not isinstance(error, Exception):
            return False
        self._isolation.failed(self._where, self._obj, error)
        return True


def _named(obj: object) -> str:
    """The name of an object in the log. Made only for an error: it costs more than most work that is isolated."""
    if isinstance(obj, str):
        return obj
    meta = getattr(obj, "metadata", None)
    return f"{type(obj).__name__} {getattr(meta, 'namespace', '')}/{getattr(meta, 'name', '')}"
