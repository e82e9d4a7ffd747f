"""
One look at every source of this machine, side by side, each with a deadline; and its kernel log, read to the end.

A source that does not answer in time is told as trouble and left behind: what it would tell is unknown. Nothing is
judged here.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from healthd.core.model import KernelRecord
from healthd.core.readings import Look
from healthd.probes.klog.log import KernelLog
from healthd.probes.nvml.health import Nvml

QUIET = timedelta(milliseconds=300)
"""A kernel log that says nothing for so long was read to its end: every source hands over at once what there is."""
STARTS_SLOWLY = timedelta(seconds=3)
"""For the first word of journalctl, which is a process of its own."""
LONGEST = timedelta(seconds=10)
"""A log that is being flooded has no end."""


class Source(Protocol):
    """What is used of a probe."""

    @property
    def source(self) -> str: ...

    def look(self, now: datetime) -> Look: ...


@dataclass(frozen=True, slots=True)
class OnceAnswered:
    """A probe that tells what NVML's child said: asked once the child has spoken, which takes it a moment."""

    probe: Source
    nvml: Nvml
    patience: timedelta

    @property
    def source(self) -> str:
        """The probe's."""
        return self.probe.source

    def look(self, now: datetime) -> Look:
        """Blocks for up to *patience*. Without an answer by then there is nothing to tell, and why."""
        until = time.monotonic() + self.patience.total_seconds()
        while self.nvml.responds() is None and not self.nvml.look(now).trouble:
            if time.monotonic() > until:
                return Look(source=self.source, at=now, trouble=_silent(self.patience))
            self.nvml.wait(0.05)
        return self.probe.look(now)


def look_once(probes: Sequence[Source], now: datetime, deadline: timedelta) -> list[Look]:
    """What each of *probes* shows, in their order. Whoever does not look again calls `close`."""
    nvml = _nvml(probes)
    asked = [OnceAnswered(probe, nvml, deadline) if nvml and _is_nvml(probe) else probe for probe in probes]
    return _side_by_side(asked, now, deadline)


def close(probes: Sequence[Source]) -> None:
    """Let go of the driver: one that is open stands in the way of a GPU's reset."""
    if nvml := _nvml(probes):
        nvml.close()


def _nvml(probes: Sequence[Source]) -> Nvml | None:
    return next((probe for probe in probes if isinstance(probe, Nvml)), None)


def _is_nvml(probe: Source) -> bool:
    return probe.source.partition("-")[0] == Nvml.source


def _side_by_side(probes: Sequence[Source], now: datetime, deadline: timedelta) -> list[Look]:
    answers: SimpleQueue[tuple[int, Look]] = SimpleQueue()
    for number, probe in enumerate(probes):
        threading.Thread(target=_ask, args=(number, probe, now, answers), name=probe.source, daemon=True).start()
    # A little later than the sources' own deadlines, which can say more.
    ends = time.monotonic() + deadline.total_seconds() + 0.5
    looks: dict[int, Look] = {}
    while len(looks) < len(probes):
        try:
            number, look = answers.get(timeout=max(0.0, ends - time.monotonic()))
        except Empty:
            break
        looks[number] = look
    return [
        looks.get(number) or Look(source=probe.source, at=now, trouble=_silent(deadline))
        for number, probe in enumerate(probes)
    ]


def _ask(number: int, probe: Source, now: datetime, answers: SimpleQueue[tuple[int, Look]]) -> None:
    try:
        look = probe.look(now)
    except Exception as error:  # a fault of ours in one probe must not hide the others
        look = Look(source=probe.source, at=now, trouble=f"the probe failed: {error!r}")
    answers.put((number, look))


def _silent(deadline: timedelta) -> str:
    return f"it did not answer within {deadline.total_seconds():g} s"


class Heard(NamedTuple):
    """The records of a kernel log that may matter, and how many were lost while it was read."""

    records: list[KernelRecord]
    lost: int


async def read_to_end(log: KernelLog, *, quiet: timedelta = QUIET, longest: timedelta = LONGEST) -> Heard:
    """What *log* holds now. Raises OSError when it breaks."""
    records: list[KernelRecord] = []
    lost = 0
    ends = time.monotonic() + longest.total_seconds()
    patience = max(quiet, STARTS_SLOWLY) if log.source == "journal" else quiet
    async with aclosing(log.batches()) as batches:
        while (left := ends - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(min(left, patience.total_seconds())):
                    batch = await anext(batches)
            except (TimeoutError, StopAsyncIteration):
                break
            records += batch.records
            lost += batch.lost
            patience = quiet
    return Heard(records, lost)
