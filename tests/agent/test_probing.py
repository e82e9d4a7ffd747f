"""Looking at sources: each at its own pace, and none held up by another that hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from healthd.agent.probing import DEADLINE, Probe, Prober
from healthd.core.diagnosis.readings import Reading, Sample
from healthd.telemetry.metrics import Metrics
from tests.fakes import ManualClock, settle

SECOND = timedelta(seconds=1)
PACES = {"ethernet": SECOND, "infiniband": SECOND, "host": SECOND}
LOST = Reading("0000:3b:00.0", "nvml.state", "lost")


class Scripted:
    """A probe that does what it is set to do."""

    def __init__(self, source: str = "nvml", every: timedelta = SECOND, does: Callable[[], object] = str) -> None:
        self.source = source
        self.every = every
        self.does = does
        self.asked = 0

    def sample(self, now: datetime) -> Sample:
        self.asked += 1
        self.does()
        return Sample(source=self.source, at=now, readings=[LOST])


class RunningProber:
    """A prober at work, and the samples that it took."""

    def __init__(self, *probes: Probe) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.samples: asyncio.Queue[Sample] = asyncio.Queue()
        self.prober = Prober(probes, self.clock, lambda: 0.0, self.metrics, self.samples.put_nowait)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        work = asyncio.create_task(self.prober.run())
        try:
            yield
        finally:
            work.cancel()
            await asyncio.wait({work})

    async def seconds(self, count: int, last: str) -> list[Sample]:
        """All samples of so many seconds; *last* is looked at in each of them, after the others."""
        found: list[Sample] = []
        for _ in range(count):
            found.append(await self.samples.get())
            while found[-1].source != last:
                found.append(await self.samples.get())
            await self.clock.run_for(SECOND)
        return found

    def up(self, source: str) -> float | None:
        return self.metrics.registry.get_sample_value("healthd_probe_up", {"source": source})


async def test_probe_is_asked_again_after_its_time() -> None:
    probe = Scripted()
    probing = RunningProber(probe)
    async with probing.running():
        first = await probing.samples.get()
        await probing.clock.run_for(SECOND)
        second = await probing.samples.get()

    assert (second.at - first.at, probe.asked) == (SECOND, 2)
    assert first.readings == [LOST]
    assert probing.up("nvml") == 1


async def test_probe_that_hangs_is_reported_and_not_asked_again() -> None:
    free = threading.Event()
    hanging = Scripted(does=free.wait)
    probing = RunningProber(hanging)
    async with probing.running():
        while not hanging.asked:
            await settle()
        await probing.clock.run_for(3 * DEADLINE)
        samples = [probing.samples.get_nowait() for _ in range(probing.samples.qsize())]
        asked = hanging.asked
        free.set()
        answered = await probing.samples.get()

    assert asked == 1
    assert {sample.trouble for sample in samples} == {"it did not answer within 15 s"}
    assert answered.trouble == ""
    assert probing.up("nvml") == 1


async def test_source_that_hangs_holds_up_no_other() -> None:
    free = threading.Event()
    probing = RunningProber(Scripted("nvml", does=free.wait), Scripted("host"))
    async with probing.running():
        sources = []
        for _ in range(3):
            sources.append((await probing.samples.get()).source)
            await probing.clock.run_for(SECOND)
        free.set()

    assert sources == ["host", "host", "host"]


async def test_fault_of_a_probe_is_trouble_of_its_source_alone() -> None:
    def fails() -> None:
        raise ZeroDivisionError("a fault of ours")

    probing = RunningProber(Scripted(does=fails))
    async with probing.running():
        sample = await probing.samples.get()

    assert "a fault of ours" in sample.trouble
    assert sample.readings == ()
    assert probing.up("nvml") == 0


async def test_sources_that_are_due_together_are_read_in_one_thread() -> None:
    threads = set[int]()
    probes = [Scripted(source, every, lambda: threads.add(threading.get_ident())) for source, every in PACES.items()]
    probing = RunningProber(*probes)
    async with probing.running():
        for _ in range(10):
            for _ in probes:
                await probing.samples.get()
            await probing.clock.run_for(max(PACES.values()))

    assert len(threads) == 1


async def test_source_that_finds_something_is_read_more_often_from_then_on() -> None:
    probe = Scripted(every=10 * SECOND)
    probing = RunningProber(probe, Scripted("host"))
    async with probing.running():
        rare = [sample for sample in await probing.seconds(10, last="host") if sample.source == "nvml"]
        probe.does = lambda: setattr(probe, "every", SECOND)
        usual = [sample for sample in await probing.seconds(5, last="host") if sample.source == "nvml"]

    assert (len(rare), len(usual)) == (1, 5)


async def test_an_error_while_a_sample_is_ingested_ends_the_prober() -> None:
    def fails(sample: Sample) -> None:
        raise ZeroDivisionError("a fault of ours")

    clock = ManualClock()
    prober = Prober([Scripted()], clock, lambda: 0.0, Metrics(), fails)
    work = asyncio.create_task(prober.run())
    while not work.done():
        await clock.run_for(SECOND)

    assert isinstance(work.exception(), ZeroDivisionError)
