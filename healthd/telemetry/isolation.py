"""
The last line of defence: an error that one object brings out is logged, counted, and ends nothing.

What others wrote is bounded before it gets here (`healthd.core.untrusted`). What comes through all the same is a fault
of ours, and it must not leave every other gang unguarded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from healthd.cluster.port import ClusterError
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger()

REMEMBERED = 1000
"""Errors that were logged, of which is remembered that they were: one that lasts is logged once."""


class Isolation:
    """Keeps errors with the objects that brought them out."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics
        self._said: dict[tuple[str, str], str] = {}

    @contextmanager
    def of(self, where: str, named: str) -> Iterator[None]:
        """Do something about the object that is *named* so. Errors of the cluster are raised, others are not."""
        try:
            yield
        except ClusterError:
            raise
        except Exception as error:
            self.count(where)
            if self._said.get((where, named)) != repr(error):
                log.exception("object.failed", where=where, object=named, error=str(error))
            self._said[where, named] = repr(error)
            while len(self._said) > REMEMBERED:
                del self._said[next(iter(self._said))]

    def count(self, where: str) -> None:
        """One more error that one object brought out."""
        if self._metrics is not None:
            self._metrics.object_errors.labels(where).inc()


def named(obj: object) -> str:
    """An object as a log names it."""
    meta = getattr(obj, "metadata", None)
    return f"{type(obj).__name__} {getattr(meta, 'namespace', '')}/{getattr(meta, 'name', '')}"
