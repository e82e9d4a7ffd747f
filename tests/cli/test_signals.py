"""What `healthd run` makes of signals; what they do to ranks is tested from outside."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from signal import SIGHUP, SIGINT, SIGTERM

import pytest

from healthd.cli.commands.run import until_signal


class Signalled:
    """A runtime to which *signals* come one after the other; it ends after *enough* calls of `stop`."""

    def __init__(self, signals: Sequence[signal.Signals], enough: int) -> None:
        self.stops: list[str] = []
        self._signals = signals
        self._enough = enough
        self._over = asyncio.Event()

    async def run(self) -> int:
        for number in self._signals:
            signal.raise_signal(number)
        await self._over.wait()
        return 0

    def stop(self, by: str = "") -> None:
        self.stops.append(by)
        if len(self.stops) >= self._enough:
            self._over.set()


@pytest.mark.parametrize(
    ("signals", "stops"),
    [([SIGINT], 1), ([SIGINT, SIGINT], 2), ([SIGTERM, SIGTERM], 1), ([SIGHUP, SIGTERM], 1), ([SIGTERM, SIGINT], 2)],
)
async def test_only_a_further_ctrl_c_takes_the_grace_away(signals: Sequence[signal.Signals], stops: int) -> None:
    runtime = Signalled(signals, enough=stops)

    assert await until_signal(runtime) == 128 + signals[0]
    assert len(runtime.stops) == stops
    assert signals[0].name in runtime.stops[0]
