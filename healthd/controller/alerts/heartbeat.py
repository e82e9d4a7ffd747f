"""Call the heartbeat service while the leader's reconcile loop turns. A loop of its own: it holds up nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

import structlog

from healthd.alerts.sink import Answer, Outcome
from healthd.clock import Clock
from healthd.cluster.waiting import within
from healthd.core.alerts.heartbeat import Due, LastBeat, due
from healthd.telemetry.metrics import BeatResult, Metrics

log = structlog.get_logger()

LOOK_EVERY = timedelta(seconds=1)
TIMEOUT = timedelta(seconds=15)
"""A service that has not answered by then has not heard."""


class HeartbeatSink(Protocol):
    """A service that pages when it is not called."""

    async def beat(self) -> Outcome:
        """Call it once. ACCEPTED when it heard."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


class Heartbeat:
    """The beats of one leader to *service*. *rounds* is how often its reconcile loop has turned."""

    def __init__(
        self,
        service: HeartbeatSink,
        clock: Clock,
        *,
        interval: timedelta,
        rounds: Callable[[], int],
        metrics: Metrics,
    ) -> None:
        self._service = service
        self._clock = clock
        self._interval = interval
        self._rounds = rounds
        self._metrics = metrics
        self._last: LastBeat | None = None
        self._is_withheld = False

    async def run(self) -> None:
        """Run until cancelled."""
        self._metrics.start_heartbeat_at_zero()
        while True:
            now, rounds = self._clock.now(), self._rounds()
            what = due(self._last, rounds, now, self._interval)
            if what is Due.SEND:
                self._is_withheld = False
                self._last = LastBeat(now, rounds, has_failed=not await self._send())
            elif what is Due.WITHHOLD and self._last is not None:
                self._withhold()
            await self._clock.sleep(LOOK_EVERY)

    async def _send(self) -> bool:
        """Whether the service heard."""
        try:
            outcome = await within(self._clock, TIMEOUT, self._service.beat())
        except TimeoutError:
            outcome = Outcome(Answer.RETRY, f"no answer within {TIMEOUT.total_seconds():.0f} s")
        except Exception as error:  # its text may hold the address, which is a secret
            outcome = Outcome(Answer.RETRY, f"error {type(error).__name__}")
        heard = outcome.answer is Answer.ACCEPTED
        if heard:
            self._metrics.heartbeat_heard.set(self._clock.now().timestamp())
        else:
            log.warning("heartbeat.not_sent", error=outcome.detail)
        self._metrics.heartbeats.labels(BeatResult.HEARD if heard else BeatResult.FAILED).inc()
        return heard

    def _withhold(self) -> None:
        """Said once, until the loop turns again."""
        if not self._is_withheld:
            log.error("heartbeat.withheld", why="the reconcile loop has not turned since the last beat")
            self._metrics.heartbeats.labels(BeatResult.WITHHELD).inc()
        self._is_withheld = True
