"""The agent of a node as it is put together, on an embedded cluster and with a kernel log of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
import pytest

from healthd.agent import probing
from healthd.agent.daemon import READ_PODS_EVERY, REPORT_WITHIN, AgentDaemon, NodeSources
from healthd.agent.probing import Probe
from healthd.agent.rhythms import Usages
from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Unavailable, Unusable
from healthd.core.api import (
    ANNOTATION_QUARANTINE,
    Device,
    KernelLogCursor,
    Nic,
    Node,
    NodeHealth,
    Occurrence,
    PodRhythm,
    Slim,
)
from healthd.core.api.model import Verdict
from healthd.core.config import Config, HangPolicy, HttpPolicy, ProbesPolicy
from healthd.core.config.gangs import StragglerMode
from healthd.core.diagnosis.readings import Reading, Sample
from healthd.core.hang.samples import Stall, Usage
from healthd.core.node import work_request
from healthd.core.node.pod_liveness import PodTasks
from healthd.core.node.reporting import quiet_pods
from healthd.probes.errors import CannotRead
from healthd.probes.klog.kmsg import open_kmsg
from healthd.probes.klog.log import KernelLog
from healthd.probes.klog.pipe import KernelLogPipe
from healthd.probes.nvml.inventory import NvmlInventory
from healthd.telemetry.address import AddressError
from healthd.threads import Call
from tests.agent.request_log import CountingCluster
from tests.builders import a_node
from tests.fakes import START, ManualClock, counting_uids, settle

T = TypeVar("T", bound=Slim)

OFF_THE_BUS = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
PATIENCE = 60
GPU = Device(pci="0000:3b:00.0", uuid="GPU-1")


PORT = Nic(pci="0000:5c:00.0", port=1, device="mlx5_0", rail=0)


class Gauge:
    """A source that tells the state of one device."""

    every = timedelta(seconds=1)

    def __init__(self, source: str, device: str, reading: str, state: str = "") -> None:
        self.source = source
        self.state = state
        self._device, self._reading = device, reading

    def sample(self, now: datetime) -> Sample:
        """As it is; nothing where it has no state."""
        readings = [Reading(self._device, self._reading, self.state)] if self.state else []
        return Sample(source=self.source, at=now, readings=readings)


class Machine:
    """What the daemon reads, turned by the test."""

    def __init__(self, clock: ManualClock) -> None:
        self.pipe = KernelLogPipe(clock)
        self.refusal: CannotRead | None = None
        self.pods: list[PodTasks] | None = None
        self.usages: Usages | None = None
        self.inventory = NvmlInventory(devices=[GPU])
        self.nics: list[Nic] | None = []
        self.gpu = Gauge("nvml", GPU.pci, "nvml.state", "ok")
        self.port = Gauge("infiniband", PORT.pci, "ib.state")
        self.there_before: list[Device | Nic] = []
        """What the agent knew to be there when it began to sample."""
        self.opened = 0
        self._clock = clock

    def sources(self) -> NodeSources:
        """As the daemon takes them."""
        return NodeSources(
            boot_id="boot-1",
            open_kernel_log=self._open,
            read_inventory=lambda: self.inventory,
            read_pods=self._read_pods,
            pod_usages=self.usages,
            read_nics=self._read_nics,
            make_probes=self._make_probes,
        )

    def _read_nics(self) -> Sequence[Nic]:
        if self.nics is None:
            raise FileNotFoundError(2, "No such file or directory", "/nowhere/class")
        return self.nics

    def _make_probes(self, gpus: Sequence[Device], nics: Sequence[Nic]) -> Sequence[Probe]:
        self.there_before = [*gpus, *nics]
        return [self.gpu, self.port]

    def _open(self, cursor: KernelLogCursor) -> KernelLog:
        if self.refusal:
            raise self.refusal
        self.opened += 1
        time = self.pipe.kernel_time
        return open_kmsg(fd=self.pipe.fd, clock=self._clock, boot_id="boot-1", cursor=cursor, kernel_time=time)

    def _read_pods(self) -> list[PodTasks]:
        if self.pods is None:
            raise CannotRead("/sys/fs/cgroup", "it is not mounted", "mount it")
        return self.pods


class Node1:
    """A cluster with `node-a`, its machine and its agent."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ground_truth = EmbeddedCluster.open(None, clock=self.clock, new_uid=counting_uids())
        self.cluster = CountingCluster(self.ground_truth)
        self.machine = Machine(self.clock)
        self.daemon = self.new_daemon()

    def new_daemon(self, config: Config | None = None) -> AgentDaemon:
        """Another life of the agent."""
        return AgentDaemon(
            "node-a", config or Config(), self.machine.sources(), self.cluster, self.clock, jitter=lambda: 0.0
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[AgentDaemon]:
        """The daemon, until the block ends; then it is asked to stop."""
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            group.create_task(self.daemon.run())
            yield self.daemon
            self.daemon.stop()

    async def until(self, kind: type[T], holds: Callable[[Any], bool]) -> T:
        """The object of `node-a`, once it is so."""
        listed = await self.ground_truth.list(kind, fields={"metadata.name": "node-a"})
        if listed.items and holds(listed.items[0]):
            return listed.items[0]
        events: Any = self.ground_truth.watch(kind, since=listed.resource_version, fields={"metadata.name": "node-a"})
        async with aclosing(events):
            async for event in events:
                if event.obj is not None and holds(event.obj):
                    found: T = event.obj
                    return found
        raise AssertionError("the watch ended")

    async def in_time(self, holds: Callable[[NodeHealth], bool]) -> NodeHealth:
        """The report for which *holds* is true, as time goes by. What is read in threads may be late by this clock."""
        while not holds(health := await self.ground_truth.get(NodeHealth, "node-a")):
            await self.clock.run_for(timedelta(seconds=10))
        return health

    async def until_verdict(self, verdict: Verdict) -> NodeHealth:
        """The report with it."""
        return await self.until(NodeHealth, lambda health: health.status.verdict is verdict)

    async def until_reported(self) -> NodeHealth:
        """The report of a quarantine, which makes way for the cordons of other nodes first."""
        await self.until(Node, is_quarantined)
        await self.clock.run_for(REPORT_WITHIN)
        return await self.until_verdict(Verdict.UNHEALTHY)

    def records_read(self) -> float:
        """How many the agent has taken in."""
        [counter] = self.daemon.metrics.kernel_records.collect()
        return counter.samples[0].value

    def troubles(self) -> dict[str, str]:
        """What `/readyz` would say."""
        return {name: why for name, check in self.daemon.ready_checks.items() if (why := check())}


@pytest.fixture
async def node() -> AsyncIterator[Node1]:
    """A node whose agent does not run yet."""
    world = Node1()
    await world.ground_truth.create(a_node())
    yield world
    world.machine.pipe.close()


def is_quarantined(node: Node) -> bool:
    """Whether healthd took it out of service."""
    return ANNOTATION_QUARANTINE in node.metadata.annotations


async def test_a_record_of_the_kernel_becomes_a_cordon_and_a_report(node: Node1) -> None:
    async with node.running():
        await node.until_verdict(Verdict.HEALTHY)
        node.machine.pipe.write(OFF_THE_BUS)
        health = await node.until_reported()

    assert [finding.rule for finding in health.status.findings] == ["xid-79"]


async def test_a_state_that_a_probe_reads_becomes_a_cordon_once_it_has_held(node: Node1) -> None:
    async with node.running():
        await node.until_verdict(Verdict.HEALTHY)
        node.machine.gpu.state = "lost"
        while not is_quarantined(await node.ground_truth.get(Node, "node-a")):
            await node.clock.run_for(timedelta(seconds=1))
        health = await node.until_reported()

    assert [finding.rule for finding in health.status.findings] == ["nvml-gpu-lost"]


async def test_the_network_ports_of_the_node_are_in_its_report(node: Node1) -> None:
    node.machine.nics = [Nic(pci="0000:5c:00.0", port=1, device="mlx5_0", rail=0)]
    async with node.running():
        health = await node.until(NodeHealth, lambda health: bool(health.status.nics))

    assert health.status.nics == node.machine.nics


async def test_ports_that_cannot_be_read_keep_no_agent_from_its_work(node: Node1) -> None:
    node.machine.nics = None
    async with node.running():
        await node.until_verdict(Verdict.HEALTHY)
        node.machine.pipe.write(OFF_THE_BUS)
        quarantined = await node.until(Node, is_quarantined)

    assert quarantined.spec.unschedulable


async def test_what_was_there_earlier_in_this_boot_is_known_to_the_next_life(node: Node1) -> None:
    node.machine.nics = [PORT]
    async with node.running():
        await node.until(NodeHealth, lambda health: bool(health.status.nics and health.status.inventory))
    first = node.machine.there_before
    node.daemon = node.new_daemon()
    async with node.running():
        while node.machine.there_before == first:
            await settle()

    assert first == []
    assert node.machine.there_before == [GPU, *(node.machine.nics or [])]


async def test_an_agent_that_works_is_ready(node: Node1) -> None:
    async with node.running():
        await node.until_verdict(Verdict.HEALTHY)
        troubles = node.troubles()

    assert troubles == {}


async def test_the_gpus_of_the_node_are_in_its_report(node: Node1) -> None:
    async with node.running():
        health = await node.until(NodeHealth, lambda health: bool(health.status.inventory))

    assert health.status.inventory == [GPU]


async def test_a_list_without_gpus_does_not_make_those_forgotten_that_were_there(node: Node1) -> None:
    async with node.running():
        await node.until(NodeHealth, lambda health: bool(health.status.inventory))
    node.machine.inventory = NvmlInventory()
    node.daemon = node.new_daemon()
    async with node.running():
        await node.until_verdict(Verdict.HEALTHY)

    assert (await node.ground_truth.get(NodeHealth, "node-a")).status.inventory == [GPU]


async def test_devices_whose_driver_is_loaded_later_are_in_the_report_too(node: Node1) -> None:
    node.machine.inventory = NvmlInventory(reason="NVML: Driver Not Loaded")
    node.machine.gpu.state = ""
    async with node.running():
        before = await node.until_verdict(Verdict.HEALTHY)
        node.machine.inventory = NvmlInventory(devices=[GPU])
        node.machine.nics = [PORT]
        node.machine.gpu.state, node.machine.port.state = "ok", "ACTIVE"
        health = await node.in_time(lambda health: bool(health.status.inventory and health.status.nics))

    assert (before.status.inventory, before.status.nics) == ([], [])
    assert (health.status.inventory, health.status.nics) == ([GPU], [PORT])


async def test_a_gpu_that_is_not_listed_again_is_not_forgotten(node: Node1) -> None:
    other = msgspec.structs.replace(GPU, pci="0000:5e:00.0", uuid="GPU-2")
    node.machine.inventory = NvmlInventory(devices=[other])
    async with node.running():
        await node.until(NodeHealth, lambda health: bool(health.status.inventory))
        node.machine.inventory = NvmlInventory(devices=[GPU])
        health = await node.in_time(lambda health: GPU in health.status.inventory)

    assert health.status.inventory == [other, GPU]


async def test_a_node_with_gpus_is_unknown_until_nvml_has_answered(node: Node1) -> None:
    node.machine.gpu.state = ""
    node.daemon = node.new_daemon(Config(probes=ProbesPolicy(gpus=8)))
    async with node.running():
        health = await node.until(NodeHealth, lambda health: "nvml cannot be read" in health.status.message)

    assert health.status.verdict is Verdict.UNKNOWN


async def test_a_node_without_gpus_is_no_trouble(node: Node1) -> None:
    node.machine.inventory = NvmlInventory(reason="NVML: Shared Library Not Found")
    async with node.running():
        health = await node.until_verdict(Verdict.HEALTHY)

    assert health.status.inventory == []


async def test_an_agent_without_the_log_is_blind_and_says_so_until_it_gets_it(node: Node1) -> None:
    node.machine.refusal = CannotRead("/run/healthd/kmsg.sock", "no opener", "start it")
    async with node.running():
        await node.until_verdict(Verdict.UNKNOWN)
        troubles = node.troubles()
        node.machine.refusal = None
        await node.clock.run_for(timedelta(seconds=30))
        await node.until_verdict(Verdict.HEALTHY)

    assert "no opener" in troubles["kernel_log"]
    assert node.machine.opened == 1


async def test_a_log_that_broke_is_opened_again_and_nothing_is_judged_twice(node: Node1) -> None:
    async with node.running():
        node.machine.pipe.write(OFF_THE_BUS)
        await node.until_reported()
        broken, node.machine.pipe = node.machine.pipe, KernelLogPipe(node.clock)
        node.machine.pipe.write(OFF_THE_BUS)  # the same record, which a fresh descriptor shows again
        node.machine.pipe.write("NVRM: Xid (PCI:0000:5e:00): 79, pid=1, GPU has fallen off the bus.")
        broken.close()
        while node.machine.opened < 2:
            await node.clock.run_for(timedelta(seconds=1))
        health = await node.until(NodeHealth, lambda health: len(health.status.findings) == 2)

    assert [finding.count for finding in health.status.findings] == [1, 1]


async def test_pods_that_end_are_published(node: Node1) -> None:
    node.machine.pods = [PodTasks("uid-1", 4)]
    async with node.running():
        while not (await node.until(NodeHealth, lambda _: True)).status.live_pods:
            await node.clock.run_for(READ_PODS_EVERY)
        node.machine.pods = []
        while not (health := await node.until(NodeHealth, lambda _: True)).status.gone_pods:
            await node.clock.run_for(READ_PODS_EVERY)

    assert ([end.uid for end in health.status.gone_pods], health.status.live_pods) == (["uid-1"], [])


class InTheLoop:
    """A worker without a thread: what is read belongs to the second in which it was due, on any machine."""

    def __init__(self, name: str) -> None:
        self.name = name

    def submit(self, calls: Sequence[Call[Any]]) -> None:
        """Make *calls* now, and hand on their answers in the next turn of the event loop."""
        for call in calls:
            asyncio.get_running_loop().call_soon(call.then, *outcome(call))


def outcome(call: Call[Any]) -> tuple[Any, Exception | None]:
    """What it answers, or what it raises."""
    try:
        return call.work(), None
    except Exception as error:
        return None, error


@pytest.fixture
def without_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent reads in its event loop."""
    monkeypatch.setattr(probing, "Worker", InTheLoop)


class Rank:
    """A pod that trains by the clock, until it hangs."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.hung_at: datetime | None = None
        self.waits_since: datetime | None = None

    def processor_times(self) -> Mapping[str, float]:
        """It uses a core, or a tenth less since it has to wait for others."""
        now = self.hung_at or self._clock.now()
        less = 0.1 * (now - self.waits_since).total_seconds() if self.waits_since else 0.0
        return {"rank": (now - START).total_seconds() - less}

    def read(self, uids: Collection[str]) -> Mapping[str, Usage]:
        """With the page faults of its work."""
        seconds = self.processor_times()["rank"]
        return dict.fromkeys(uids, Usage(cpu=seconds, faults=60 * seconds))

    def stalls(self, uids: Collection[str]) -> Mapping[str, Stall]:
        """Of a container that is frozen."""
        return dict.fromkeys(uids, Stall(frozen=True))


def _value(gauge: Any) -> float:
    [family] = gauge.collect()
    return float(family.samples[0].value)


class Broken(Rank):
    """A bug."""

    def read(self, uids: Collection[str]) -> Mapping[str, Usage]:
        """Fails."""
        raise RuntimeError(f"no {uids}")


async def until_silent(node: Node1) -> list[PodRhythm]:
    """What is published once a pod is silent."""
    while not quiet_pods(rhythms := (await node.until(NodeHealth, lambda _: True)).status.rhythms):
        await node.clock.run_for(timedelta(seconds=1))
        await settle()
    return rhythms


@pytest.mark.usefixtures("without_thread")
async def test_a_pod_that_falls_silent_is_published_and_a_new_life_of_the_agent_withdraws_it(node: Node1) -> None:
    node.machine.usages = rank = Rank(node.clock)
    node.daemon = node.new_daemon()
    async with node.running():
        await node.until_verdict(Verdict.HEALTHY)
        for _ in range(90):
            await node.clock.run_for(timedelta(seconds=1))
            await settle()
        rank.hung_at = node.clock.now()
        [silent] = await until_silent(node)
        seen = node.clock.now()
        shown = (_value(node.daemon.metrics.pods_sampled), _value(node.daemon.metrics.pods_silent))
    node.daemon = node.new_daemon()
    async with node.running():
        await node.until(NodeHealth, lambda health: not health.status.rhythms)

    assert (silent.uid, silent.state) == ("rank", "silent")
    assert shown == (1, 1)
    assert seen - rank.hung_at <= timedelta(seconds=20)


class Starting(Rank):
    """A pod that begins after the agent, and hangs before its rhythm is known."""

    def processor_times(self) -> Mapping[str, float]:
        """It is there once the agent has looked, and works for 40 s."""
        seconds = (self._clock.now() - START).total_seconds()
        return {"agent": 0.0, "rank": min(seconds, 40.0)} if seconds > 5 else {"agent": 0.0}

    def read(self, uids: Collection[str]) -> Mapping[str, Usage]:
        """As of any pod."""
        return super().read(uids) if uids else {}


@pytest.mark.usefixtures("without_thread")
async def test_a_pod_that_is_idle_in_its_start_is_published_and_counts_as_none_whose_rhythm_is_known(
    node: Node1,
) -> None:
    node.machine.usages = Starting(node.clock)
    node.daemon = node.new_daemon()
    async with node.running():
        await node.until_verdict(Verdict.HEALTHY)
        [silent] = await until_silent(node)
        shown = (_value(node.daemon.metrics.pods_sampled), _value(node.daemon.metrics.pods_silent))

    assert silent.is_start
    assert shown == (0, 0)


@pytest.mark.slow
@pytest.mark.usefixtures("without_thread")
async def test_the_work_of_a_pod_is_written_every_few_minutes_and_soon_where_it_changes(node: Node1) -> None:
    node.machine.usages = rank = Rank(node.clock)
    node.daemon = node.new_daemon()
    written = list[datetime]()
    async with node.running():
        await node.until_verdict(Verdict.HEALTHY)
        for _ in range(12 * 60):
            if node.clock.now() - START > timedelta(minutes=8) and rank.waits_since is None:
                rank.waits_since = node.clock.now()
            await node.clock.run_for(timedelta(seconds=1))
            await settle()
            status = (await node.ground_truth.get(NodeHealth, "node-a")).status
            if status.rhythms and status.rhythms[0].work and status.seen_at and status.seen_at not in written:
                written.append(status.seen_at)

    assert rank.waits_since
    before = [at for at in written if at <= rank.waits_since]
    after = [at for at in written if at > rank.waits_since]
    assert 2 <= len(before) <= 5
    assert after[0] - rank.waits_since <= timedelta(seconds=60)
    assert all(b - a >= timedelta(seconds=30) for a, b in pairwise(written))
    assert 4 <= len(after) <= 9


@pytest.mark.slow
@pytest.mark.usefixtures("without_thread")
async def test_an_agent_that_is_asked_for_the_newest_minutes_of_its_pods_publishes_them_at_once_and_for_so_long(
    node: Node1,
) -> None:
    node.machine.usages = Rank(node.clock)
    node.daemon = node.new_daemon()
    answers = list[tuple[datetime, datetime]]()
    async with node.running():
        await node.until_verdict(Verdict.HEALTHY)
        await _pass(node, timedelta(minutes=5))
        asked_at = node.clock.now()
        await node.ground_truth.patch(Node, "node-a", work_request.patch(asked_at + timedelta(seconds=30)))
        for _ in range(90):
            await _pass(node, timedelta(seconds=1))
            [rhythm] = (await node.ground_truth.get(NodeHealth, "node-a")).status.rhythms
            if rhythm.recent is not None and rhythm.recent.end not in {end for end, _ in answers}:
                answers.append((rhythm.recent.end, node.clock.now()))

    ends, seen = zip(*answers, strict=True)
    assert seen[0] - asked_at <= timedelta(seconds=3)
    assert seen[0] - ends[0] <= timedelta(seconds=10)
    assert 3 <= len(answers) <= 4
    assert max(seen) <= asked_at + timedelta(seconds=32)
    assert all(b - a == timedelta(seconds=10) for a, b in pairwise(ends[1:]))


async def _pass(node: Node1, time: timedelta) -> None:
    for _ in range(int(time.total_seconds())):
        await node.clock.run_for(timedelta(seconds=1))
        await settle()


@pytest.mark.slow
@pytest.mark.usefixtures("without_thread")
async def test_where_stragglers_are_ignored_the_work_of_pods_is_not_published(node: Node1) -> None:
    node.machine.usages = Rank(node.clock)
    node.daemon = node.new_daemon(Config(hang=HangPolicy(stragglers=StragglerMode.IGNORE)))
    async with node.running():
        await node.until_verdict(Verdict.HEALTHY)
        for _ in range(7 * 60):
            await node.clock.run_for(timedelta(seconds=1))
            await settle()
        [rhythm] = (await node.ground_truth.get(NodeHealth, "node-a")).status.rhythms

    assert rhythm.work is None


async def test_an_agent_goes_on_when_rhythms_cannot_be_sampled(node: Node1) -> None:
    node.machine.usages = Broken(node.clock)
    node.daemon = node.new_daemon()
    async with node.running():
        await node.until_verdict(Verdict.HEALTHY)
        await node.clock.run_for(timedelta(seconds=5))
        node.machine.pipe.write(OFF_THE_BUS)
        quarantined = await node.until(Node, is_quarantined)

    assert quarantined.spec.unschedulable


async def test_what_was_read_before_the_end_is_written_down(node: Node1) -> None:
    async with node.running():
        await node.until_verdict(Verdict.HEALTHY)
        node.machine.pipe.write("usb 1-1: new device")
        node.machine.pipe.write(OFF_THE_BUS)
        health = await node.until_reported()
        node.machine.pipe.write("NVRM: not worth a write", priority=6)
        while node.records_read() < 3:
            await settle()

    assert health.status.cursor.sequence == 1
    assert (await node.ground_truth.get(NodeHealth, "node-a")).status.cursor.sequence == 2


async def test_an_agent_that_starts_without_an_api_server_begins_when_it_is_there(node: Node1) -> None:
    node.cluster.trouble = Unavailable("connection refused")
    async with node.running():
        await settle()
        troubles = node.troubles()
        node.cluster.trouble = None
        node.machine.pipe.write(OFF_THE_BUS)
        await node.clock.run_for(timedelta(minutes=1))
        await node.until(Node, is_quarantined)

    assert set(troubles) == {"state", "watch", "kernel_log"}
    assert troubles["watch"] == "connection refused"


async def test_a_configuration_that_can_never_work_ends_it(node: Node1) -> None:
    node.cluster.trouble = Unusable("there is no service account")
    with pytest.raises(ExceptionGroup) as ended:
        await node.daemon.run()

    assert ended.group_contains(Unusable, match="no service account")


async def test_an_address_that_is_taken_ends_it(node: Node1) -> None:
    daemon = node.new_daemon(Config(http=HttpPolicy(address="192.0.2.1:1")))
    with pytest.raises(AddressError, match="no such address"):
        await daemon.run()


async def test_kubectl_describe_shows_on_the_node_why_it_is_out_of_service(node: Node1) -> None:
    async with node.running():
        await node.until_verdict(Verdict.HEALTHY)
        node.machine.pipe.write(OFF_THE_BUS)
        await node.until(Node, is_quarantined)
    [event] = (await node.ground_truth.list(Occurrence)).items

    assert (event.involved_object.name, event.reason) == ("node-a", "Quarantined")
    assert (event.metadata.namespace, event.source.component) == ("default", "healthd-agent")
