"""
The last line of defence: an error from one object is logged and counted, and stops nothing else.

Data that others wrote is bounded before it gets here (`healthd.core.untrusted`). An error that still happens is a bug
of ours, and it must not leave all other gangs unguarded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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

    @contextmanager
    def of(self, where: str, named: str) -> Iterator[None]:
        """Work on the object *named* so. ClusterError is raised again; other errors are logged and counted."""
        try:
            yield
        except ClusterError:
            raise
        except Exception as error:
            self.count(where)
            if self._logged.get((where, named)) != repr(error):
                log.exception("object.failed", where=where, object=named, error=str(error))
            self._logged[where, named] = repr(error)
            while len(self._logged) > REMEMBERED:
                del self._logged[next(iter(self._logged))]

    def count(self, where: str) -> None:
        """Count one more error that an object caused."""
        if self._metrics is not None:
            self._metrics.object_errors.labels(where).inc()


def named(obj: object) -> str:
    """The name of an object in the log."""
    meta = getattr(obj, "metadata", None)
    return f"{type(obj).__name__} {getattr(meta, 'namespace', '')}/{getattr(meta, 'name', '')}"
