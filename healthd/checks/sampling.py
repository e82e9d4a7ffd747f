"""
One sample of every source of this machine, in parallel, each with a deadline; and its kernel log, read to the end.

A source that does not answer in time is reported as failed and abandoned: its readings are unknown. Nothing is judged
here.
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

from healthd.core.api.model import KernelRecord
from healthd.core.diagnosis.readings import Sample
from healthd.probes.klog.log import KernelLog
from healthd.probes.nvml.health import Nvml

QUIET = timedelta(milliseconds=400)
"""A kernel log without a record for this long was read to its end: every source returns existing records at once."""
FIRST = timedelta(seconds=3)
"""For the first record from a thread or journalctl: a kernel's log is never empty. Files are read at once."""
LONGEST = timedelta(seconds=10)
"""For a log in a flood, which has no end."""


class ProbeSource(Protocol):
    """What this module uses of a probe."""

    @property
    def source(self) -> str: ...

    def sample(self, now: datetime) -> Sample: ...


@dataclass(frozen=True, slots=True)
class OnceAnswered:
    """A probe of NVML's child: sampled once the child has answered, which takes it a moment."""

    probe: ProbeSource
    nvml: Nvml
    patience: timedelta

    @property
    def source(self) -> str:
        """The source of the probe."""
        return self.probe.source

    def sample(self, now: datetime) -> Sample:
        """Blocks for up to *patience*. Without an answer by then, the sample has no readings, and the reason."""
        until = time.monotonic() + self.patience.total_seconds()
        while self.nvml.responds() is None and not self.nvml.sample(now).trouble:
            if time.monotonic() > until:
                return Sample(
                    source=self.source, at=now, trouble=f"it did not answer within {self.patience.total_seconds():g} s"
                )
            self.nvml.wait(0.05)
        return self.probe.sample(now)


class Sampler:
    """Samples *probes*, once or repeatedly. A source whose read has not returned is not read again before it has."""

    def __init__(self, probes: Sequence[ProbeSource], deadline: timedelta) -> None:
        self._nvml = next((probe for probe in probes if isinstance(probe, Nvml)), None)
        self._probes = [self._patient(probe, deadline) for probe in probes]
        self._deadline = deadline
        self._threads: dict[int, threading.Thread] = {}

    def sample(self, now: datetime) -> list[Sample]:
        """A sample of each probe, in their order."""
        answers: SimpleQueue[tuple[int, Sample]] = SimpleQueue()
        asked = [number for number in range(len(self._probes)) if not self._is_out(number)]
        for number in asked:
            work = (number, self._probes[number], now, answers)
            self._threads[number] = threading.Thread(target=_ask, args=work, daemon=True)
            self._threads[number].start()
        samples = _collected(answers, len(asked), self._deadline)
        return [
            samples.get(number) or Sample(source=probe.source, at=now, trouble=_silent(self._deadline))
            for number, probe in enumerate(self._probes)
        ]

    def close(self) -> None:
        """Close the driver: an open one prevents a GPU's reset."""
        if self._nvml:
            self._nvml.close()

    def _patient(self, probe: ProbeSource, deadline: timedelta) -> ProbeSource:
        is_from_the_child = self._nvml is not None and probe.source.partition("-")[0] == Nvml.source
        return OnceAnswered(probe, self._nvml, deadline) if self._nvml and is_from_the_child else probe

    def _is_out(self, number: int) -> bool:
        return number in self._threads and self._threads[number].is_alive()


def _collected(answers: SimpleQueue[tuple[int, Sample]], count: int, deadline: timedelta) -> dict[int, Sample]:
    # A little longer than the sources' own deadlines, whose errors are more precise.
    ends = time.monotonic() + deadline.total_seconds() + 0.5
    samples: dict[int, Sample] = {}
    while len(samples) < count:
        try:
            number, sample = answers.get(timeout=max(0.0, ends - time.monotonic()))
        except Empty:
            break
        samples[number] = sample
    return samples


def _ask(number: int, probe: ProbeSource, now: datetime, answers: SimpleQueue[tuple[int, Sample]]) -> None:
    try:
        sample = probe.sample(now)
    except Exception as error:  # a bug in one probe must not hide the others
        sample = Sample(source=probe.source, at=now, trouble=f"the probe failed: {error!r}")
    answers.put((number, sample))


def _silent(deadline: timedelta) -> str:
    return f"it did not answer within {deadline.total_seconds():g} s"


class LogRead(NamedTuple):
    """The records of a kernel log that may matter, and how many were lost while it was read."""

    records: list[KernelRecord]
    lost: int


async def read_to_end(log: KernelLog, *, quiet: timedelta = QUIET, longest: timedelta = LONGEST) -> LogRead:
    """What *log* holds now. Raises OSError when it breaks."""
    records: list[KernelRecord] = []
    lost = 0
    ends = time.monotonic() + longest.total_seconds()
    patience = quiet if log.source == "file" else max(quiet, FIRST)
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
    return LogRead(records, lost)
