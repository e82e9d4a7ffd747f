"""Ranks that the others wait for, by the reports of agents: what is recorded and reported, also by a new leader."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Conflict, Forbidden
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.cache.informers import read_everything
from healthd.controller.fleet.stragglers import Stragglers
from healthd.core.api import (
    ANNOTATION_HANG,
    ANNOTATION_RESTART,
    ANNOTATION_STRAGGLERS,
    Job,
    Node,
    NodeHealth,
    NodeHealthStatus,
    ObjectReference,
    Pod,
)
from healthd.core.api.health import MemberState, PodRhythm
from healthd.core.config import HangPolicy
from healthd.core.config.gangs import StragglerMode
from healthd.core.hang.straggler import Straggler
from healthd.core.node import work_request
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import Metrics
from tests.builders import A_CONTAINER, a_finding, a_job, a_node, a_nodehealth, a_pod
from tests.core.hang.published import LENGTH, Agents
from tests.fakes import START, ManualClock, counting_uids

pytestmark = pytest.mark.slow

RANKS = 8
EVEN = {str(rank): 4.0 for rank in range(RANKS)}
SLOW = {str(rank): 4.0 if rank == 5 else 3.6 for rank in range(RANKS)}


class Gang:
    """A Job of eight pods on eight nodes, their agents, and a controller that compares them after each window."""

    container = A_CONTAINER
    """Of each pod."""

    def __init__(self, policy: HangPolicy | None = None) -> None:
        self.clock = ManualClock()
        self.cluster = EmbeddedCluster.open(None, clock=self.clock, new_uid=counting_uids())
        self.agents = Agents(RANKS)
        self.reported: list[tuple[str, str]] = []
        self.policy = policy or HangPolicy()
        self.error: type[Exception] | None = None
        """What writes to the root end with."""
        self.node_error: type[Exception] | None = None
        """The same of writes to nodes."""

    async def open(self, notes: Mapping[str, str] | None = None) -> None:
        job = await self.cluster.create(
            a_job("train", ranks=RANKS, annotations={ANNOTATION_RESTART: "enabled", **(notes or {})})
        )
        started = {"status": {"active": RANKS, "startTime": START.isoformat()}}
        await self.cluster.patch(Job, "train", started, namespace="default", subresource="status")
        for rank in range(RANKS):
            await self.cluster.create(a_node(f"node-{rank}"))
            await self.cluster.create(a_nodehealth(f"node-{rank}", status=NodeHealthStatus(seen_at=START)))
            await self.start(rank, job)
        self.lead()

    async def start(self, rank: int, job: Job) -> None:
        labels = {"batch.kubernetes.io/job-name": "train"}
        pod = a_pod(
            f"train-{rank}", node=f"node-{rank}", index=rank, owner=job, labels=labels, container=self.container
        )
        await self.cluster.create(pod)
        running = {"status": {"phase": "Running"}}
        await self.cluster.patch(Pod, f"train-{rank}", running, namespace="default", subresource="status")

    def lead(self) -> None:
        """A controller takes over."""
        self.state, self.metrics = ClusterState(ADAPTERS), Metrics()
        link: Any = Link(self)
        self.stragglers = Stragglers(
            link,
            self.clock,
            self.state,
            ADAPTERS,
            self.policy,
            self.metrics,
            self._hear,
        )

    def _hear(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        del kind
        assert about.name == "train"
        self.reported.append((reason, message))

    async def run(self, windows: int, cores: Mapping[str, float], without: tuple[str, ...] = ()) -> None:
        """So many windows; the last of them are published."""
        for number in range(windows):
            self.agents.work(1, cores)
            await self.clock.run_for(timedelta(seconds=LENGTH))
            if windows - number <= 60:
                await self.publish(without)
                await self.compare()

    async def publish(self, without: tuple[str, ...] = ()) -> None:
        for name, each in self.agents.published.items():
            pod = await self.cluster.get(Pod, f"train-{name}", "default")
            work = None if name in without else each.work
            rhythm = PodRhythm(
                uid=pod.metadata.uid,
                state=MemberState.WORKING,
                period=1.0,
                allowed=10.0,
                work=work,
                recent=each.recent,
            )
            status = {"rhythms": [msgspec.to_builtins(rhythm)], "seenAt": each.seen_at.isoformat()}
            await self.cluster.patch(NodeHealth, f"node-{name}", {"status": status}, subresource="status")

    async def compare(self) -> None:
        await read_everything(self.cluster, self.state, ADAPTERS)
        await self.stragglers.compare()

    async def asked(self) -> set[str]:
        """The ranks whose agents are asked for the newest minutes."""
        nodes = (await self.cluster.list(Node)).items
        return {node.metadata.name.removeprefix("node-") for node in nodes if work_request.read(node, self.clock.now())}

    async def record(self) -> list[Straggler]:
        notes = (await self.cluster.get(Job, "train", "default")).metadata.annotations
        return msgspec.json.decode(notes.get(ANNOTATION_STRAGGLERS, "[]"), type=list[Straggler])

    @property
    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.reported]


class Link:
    """The cluster; writes to the root fail while the scenario says so."""

    def __init__(self, gang: Gang) -> None:
        self._gang = gang

    def __getattr__(self, name: str) -> object:
        return self._patch if name == "patch" else getattr(self._gang.cluster, name)

    async def _patch(self, kind: type[Any], *args: Any, **options: Any) -> object:
        error = self._gang.node_error if kind is Node else self._gang.error
        if error is not None:
            raise error(f"{args[0]} is refused")
        return await self._gang.cluster.patch(kind, *args, **options)


async def test_a_slow_rank_is_reported_and_recorded_once_with_pod_node_and_finding_and_so_is_its_end() -> None:
    gang = Gang()
    await gang.open()
    await gang.run(80, EVEN)
    hot = msgspec.to_builtins(a_finding("host-cpu-throttled", device="node", message="a processor is too hot"))
    await gang.cluster.patch(NodeHealth, "node-5", {"status": {"findings": [hot]}}, subresource="status")
    await gang.run(20, SLOW)

    [(reason, message)] = gang.reported
    assert reason == "GangStraggler"
    assert message.startswith(
        "rank 5 (pod train-5, node node-5) makes its gang about 11% slower (90% sure): it works, "
    )
    assert message.endswith("; its node has node/host-cpu-throttled: a processor is too hot")
    [recorded] = await gang.record()
    assert (recorded.rank, recorded.node, recorded.ended_at) == ("5", "node-5", None)

    await gang.run(30, EVEN)
    assert gang.reasons == ["GangStraggler", "GangStragglerOver"]
    assert gang.reported[1][1] == "rank 5 keeps up with the others again, after 5 minutes"
    assert [each.ended_at is None for each in await gang.record()] == [False]
    assert gang.stragglers.present(next(iter(gang.state.roots.values()))) == []


async def test_a_finding_that_the_nodes_of_its_peers_have_too_is_not_cited() -> None:
    gang = Gang()
    await gang.open()
    await gang.run(80, EVEN)
    unset = msgspec.to_builtins(a_finding("clock-free-running", device="node", message="it runs free"))
    for rank in range(RANKS):
        patch = {"status": {"findings": [unset]}}
        await gang.cluster.patch(NodeHealth, f"node-{rank}", patch, subresource="status")
    await gang.run(20, SLOW)

    [(_, message)] = gang.reported
    assert message.endswith("it has more to do on the processor, or its processor is slower")


async def test_agents_are_asked_where_a_rank_may_be_slow_and_the_answer_names_it_within_two_minutes() -> None:
    gang = Gang()
    await gang.open()
    await gang.run(80, EVEN)
    began, asked = gang.clock.now(), list[set[str]]()
    for number in range(1, 9):
        gang.agents.writing = {"3", "4", "5", "6"} if number == 3 else set()
        gang.agents.asked = await gang.asked()
        asked.append(gang.agents.asked)
        await gang.run(1, SLOW)

    assert gang.reasons == ["GangStraggler"]
    [recorded] = await gang.record()
    assert recorded.rank == "5"
    assert recorded.seen_at - began <= timedelta(minutes=2)
    assert asked[:5] == [set()] * 5
    assert [len(each) for each in asked[5:]] == [4, 8, 0]


async def test_a_question_that_is_refused_stops_no_comparison_and_is_logged_once() -> None:
    """By an older admission policy, whose words name another node each time."""
    gang = Gang()
    await gang.open()
    await gang.run(80, EVEN)
    gang.node_error = Forbidden
    with capture_logs() as logged:
        await gang.run(20, SLOW)
        for node in ("node-1", "node-2"):
            await gang.stragglers._requests.ask([node], gang.clock.now())

    assert [entry["event"] for entry in logged if entry["log_level"] == "warning"].count("stragglers.not_asked") == 1
    assert gang.reasons == ["GangStraggler"]
    assert await gang.asked() == set()


async def test_a_clock_that_was_ahead_for_a_moment_hides_no_slow_rank() -> None:
    gang = Gang()
    await gang.open()
    await gang.run(80, EVEN)
    gang.clock.advance(timedelta(hours=2))
    await gang.compare()
    gang.clock.advance(-timedelta(hours=2))

    await gang.run(60, EVEN)
    await gang.run(20, SLOW)

    assert gang.reasons == ["GangStraggler"]


async def test_the_metric_shows_it_while_it_is_slow() -> None:
    gang = Gang()
    await gang.open()
    await gang.run(80, EVEN)
    await gang.run(20, SLOW)
    gang.stragglers.show()

    name = "healthd_gang_straggler_since_timestamp_seconds"
    labels = {"namespace": "default", "gang": "train", "rank": "5", "node": "node-5"}
    [recorded] = await gang.record()
    assert gang.metrics.registry.get_sample_value(name, labels) == recorded.since.timestamp()


async def test_a_new_leader_reports_it_no_second_time_and_reports_its_end() -> None:
    gang = Gang()
    await gang.open()
    await gang.run(80, EVEN)
    await gang.run(20, SLOW)
    gang.lead()
    await gang.run(20, SLOW)
    assert gang.reasons == ["GangStraggler"]

    await gang.run(30, EVEN)
    assert gang.reasons == ["GangStraggler", "GangStragglerOver"]


@pytest.mark.parametrize("without", [("3",), ("5",), tuple(EVEN)])
async def test_a_pod_whose_agent_publishes_no_work_makes_its_gang_unknown(without: tuple[str, ...]) -> None:
    """Such as an agent of an older healthd."""
    gang = Gang()
    await gang.open()
    await gang.run(80, EVEN, without)
    await gang.run(40, SLOW, without)

    assert gang.reported == []


async def test_an_agent_of_a_node_that_is_not_ready_makes_its_gang_unknown() -> None:
    gang = Gang()
    await gang.open()
    await gang.run(80, EVEN)
    conditions = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    await gang.cluster.patch(type(a_node("node-0")), "node-0", conditions, subresource="status")
    await gang.run(40, SLOW)

    assert gang.reported == []


async def test_where_the_record_is_refused_it_is_reported_once_all_the_same() -> None:
    gang = Gang()
    await gang.open()
    await gang.run(80, EVEN)
    gang.error = Forbidden
    await gang.run(30, SLOW)

    assert gang.reasons == ["GangStraggler"]


async def test_where_another_write_came_first_it_is_recorded_and_reported_later() -> None:
    gang = Gang()
    await gang.open()
    await gang.run(80, EVEN)
    gang.error = Conflict
    await gang.run(20, SLOW)
    assert gang.reported == []

    gang.error = None
    await gang.run(1, SLOW)
    assert gang.reasons == ["GangStraggler"]
    assert len(await gang.record()) == 1


async def test_pods_that_were_made_anew_end_it() -> None:
    gang = Gang()
    await gang.open()
    await gang.run(80, EVEN)
    await gang.run(20, SLOW)
    await gang.cluster.delete(Pod, "train-2", namespace="default", grace_seconds=0)
    await gang.start(2, await gang.cluster.get(Job, "train", "default"))
    await gang.compare()

    assert gang.reasons == ["GangStraggler", "GangStragglerOver"]
    assert "was stopped with the others" in gang.reported[1][1]
    assert [each.was_stopped for each in await gang.record()] == [True]


@pytest.mark.parametrize(
    ("policy", "notes"),
    [
        (HangPolicy(stragglers=StragglerMode.IGNORE), {}),
        (HangPolicy(), {ANNOTATION_HANG: "ignore"}),
        (HangPolicy(), {ANNOTATION_HANG: "what?"}),
        (HangPolicy(), {ANNOTATION_RESTART: "no"}),
    ],
)
async def test_a_gang_that_is_not_to_be_looked_at_is_not_compared(policy: HangPolicy, notes: dict[str, str]) -> None:
    gang = Gang(policy)
    await gang.open(notes)
    await gang.run(80, EVEN)
    await gang.run(20, SLOW)

    assert gang.reported == []


async def test_a_record_that_its_owner_made_up_is_no_straggler_for_long() -> None:
    made_up = Straggler(rank="4", slower=900, since=START, seen_at=START, ran=1, starved=0, peers_ran=1,
                        peers_starved=0, confidence=1)  # fmt: skip
    gang = Gang()
    await gang.open({ANNOTATION_STRAGGLERS: msgspec.json.encode([made_up]).decode()})
    await gang.run(80, EVEN)

    assert gang.reasons == ["GangStragglerOver"]


@pytest.mark.parametrize("text", ["{", "null", '[{"rank": 5}]', "[" * 9000, '[{"rank": "' + "x" * 999 + '"}]'])
async def test_a_record_that_cannot_be_read_is_written_anew(text: str) -> None:
    gang = Gang()
    await gang.open({ANNOTATION_STRAGGLERS: text})
    await gang.run(80, EVEN)
    await gang.run(20, SLOW)

    assert gang.reasons == ["GangStraggler"]
    assert len(await gang.record()) == 1
