"""What an agent that watches its node asks of the API server: little, and on the way to a cordon nothing in vain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from healthd.agent.agent import CHECK_AGAIN, Agent
from healthd.agent.budget_slots import take_slots
from healthd.agent.dependencies import AgentDependencies
from healthd.agent.judge import NodeFacts
from healthd.agent.node_view import STALE_AFTER, WatchedNode
from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Conflict, Unavailable
from healthd.core.api import (
    ANNOTATION_QUARANTINE,
    ANNOTATION_REPAIRED,
    Condition,
    KernelLogCursor,
    Lease,
    Node,
    NodeHealth,
    PodRhythm,
    Taint,
)
from healthd.core.api.health import MemberState
from healthd.core.api.model import KernelRecord
from healthd.core.backoff import Jitter
from healthd.core.config import QuarantinePolicy
from healthd.core.diagnosis.readings import RecordBatch
from healthd.core.node.pod_liveness import PodTasks
from healthd.telemetry.metrics import Metrics
from tests.agent.request_log import CountingCluster
from tests.builders import a_node
from tests.fakes import ManualClock, counting_uids, settle

OFF_THE_BUS = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
A_REPORT = ["patch NodeHealth/status", "patch Node/status"]
SECOND = timedelta(seconds=1)


class Watching:
    """The node `node-a`, guarded by an agent that watches it, and whatever others do to it."""

    def __init__(self, policy: QuarantinePolicy) -> None:
        self.clock = ManualClock()
        self.ground_truth = EmbeddedCluster.open(None, clock=self.clock, new_uid=counting_uids())
        self.cluster = CountingCluster(self.ground_truth)
        self.wakes = 0
        self.metrics = Metrics()
        self.view = WatchedNode(
            self.cluster, self.clock, "node-a", self._wake, jitter=lambda: 0.0, metrics=self.metrics
        )
        self.policy = policy
        self.sequence = 0
        self.agent = self.another_life()

    def _wake(self) -> None:
        self.wakes += 1

    def another_life(self, *, jitter: Jitter = lambda: 0.0, report_within: timedelta = timedelta(0)) -> Agent:
        """The agent, as it is before it has loaded anything."""
        return Agent(
            AgentDependencies(
                node=NodeFacts(name="node-a", boot_id="boot-1"),
                cluster=self.cluster,
                clock=self.clock,
                metrics=self.metrics,
                view=self.view,
                jitter=jitter,
                report_within=report_within,
                quarantine=self.policy,
            )
        )

    async def begin(self) -> None:
        """A first round, as after the start of an agent."""
        await settle()
        await self.agent.load(self.clock.now())
        await self.look()
        self.cluster.noted()

    def hear(self, text: str = OFF_THE_BUS, *, count: int = 1) -> None:
        """The kernel writes *text*, the last of *count* records."""
        self.sequence += count
        record = KernelRecord(sequence=self.sequence, at=self.clock.now(), text=text, boot_id="boot-1")
        self.agent.state.ingest_records(RecordBatch(records=[record], last_sequence=self.sequence), self.clock.now())

    async def look(self) -> timedelta:
        """One cycle, with all that the watch has shown until then."""
        await settle()
        again = await self.agent.cycle(self.clock.now())
        await settle()
        return again

    async def sample_until(self, end: timedelta) -> None:
        """Cycles as often as the agent wants them, for so long."""
        passed = timedelta(0)
        while passed < end:
            wait = max(await self.look(), SECOND)
            self.clock.advance(wait)
            passed += wait

    async def node(self) -> Node:
        """The node as it stands."""
        return await self.ground_truth.get(Node, "node-a")

    async def is_quarantined(self) -> bool:
        """Whether healthd took it out of service."""
        return ANNOTATION_QUARANTINE in (await self.node()).metadata.annotations

    async def write(self, patch: dict[str, Any], subresource: str = "") -> None:
        """Somebody else writes to the node."""
        await self.ground_truth.patch(Node, "node-a", patch, subresource=subresource)


@pytest.fixture
def policy() -> QuarantinePolicy:
    """The usual one; a module of tests may want another."""
    return QuarantinePolicy()


@pytest.fixture
async def watching(policy: QuarantinePolicy) -> AsyncIterator[Watching]:
    """An agent that has been idle for a moment."""
    world = Watching(policy)
    await world.ground_truth.create(a_node())
    following = asyncio.create_task(world.view.follow())
    await world.begin()
    yield world
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_an_idle_agent_asks_for_nothing(watching: Watching) -> None:
    await watching.sample_until(timedelta(minutes=50))

    assert watching.cluster.noted() == []


async def test_now_and_then_its_report_and_its_conditions_show_that_it_lives(watching: Watching) -> None:
    await watching.sample_until(timedelta(hours=10))

    asked = watching.cluster.noted()
    assert set(asked) == {"patch Node/status", "patch NodeHealth/status"}
    assert len(asked) <= 20
    seen_at = (await watching.ground_truth.get(NodeHealth, "node-a")).status.seen_at
    assert seen_at is not None
    assert watching.clock.now() - seen_at <= timedelta(hours=1, minutes=1)
    heartbeats = {condition.last_heartbeat_time for condition in (await watching.node()).status.conditions}
    assert watching.clock.now() - max(time for time in heartbeats if time) <= timedelta(hours=1, minutes=1)


async def test_from_the_record_to_the_cordon_it_makes_two_requests(watching: Watching) -> None:
    watching.hear()
    await watching.look()

    assert watching.cluster.noted() == ["create Lease", "patch Node", *A_REPORT]
    assert await watching.is_quarantined()


async def test_a_node_that_changed_meanwhile_costs_one_read_and_no_second_slot(watching: Watching) -> None:
    async def meddle(request: str) -> None:
        if request == "patch Node":
            watching.cluster.before = None
            await watching.write({"metadata": {"annotations": {"example.com/note": "mine"}}})

    watching.cluster.before = meddle
    watching.hear()
    await watching.look()

    assert watching.cluster.noted() == ["create Lease", "patch Node", "get Node", "patch Node", *A_REPORT]
    assert (await watching.node()).metadata.annotations["example.com/note"] == "mine"


async def test_a_quarantined_node_asks_for_nothing_but_its_slots_now_and_then(watching: Watching) -> None:
    watching.hear()
    await watching.look()
    watching.cluster.noted()
    await watching.sample_until(timedelta(minutes=30))

    asked = watching.cluster.noted()
    assert set(asked) == {"list Lease"}
    assert len(asked) <= 6


async def test_conditions_and_taints_of_others_survive(watching: Watching) -> None:
    pressure = {"type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure"}
    await watching.write({"status": {"conditions": [pressure]}}, "status")
    await watching.write({"spec": {"taints": [{"key": "example.com/slow", "effect": "NoSchedule"}]}})
    watching.hear()
    await watching.look()

    node = await watching.node()
    assert Condition(type="DiskPressure", status="False", reason="KubeletHasNoDiskPressure") in node.status.conditions
    assert Taint(key="example.com/slow", effect="NoSchedule") in node.spec.taints


async def test_the_taint_that_the_node_controller_adds_to_a_cordon_goes_with_it_alone(watching: Watching) -> None:
    watching.hear()
    await watching.look()
    ours = (await watching.node()).spec.taints
    theirs = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    taints = [theirs, *({"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in ours)]
    await watching.write({"spec": {"taints": taints}})
    watching.clock.advance(SECOND)
    await watching.write({"metadata": {"annotations": {ANNOTATION_REPAIRED: watching.clock.now().isoformat()}}})
    await watching.look()

    node = await watching.node()
    assert (node.spec.unschedulable, [taint.key for taint in node.spec.taints]) == (
        False,
        ["node.kubernetes.io/unschedulable"],
    )


async def test_a_cordon_of_somebody_else_is_left_alone(watching: Watching) -> None:
    await watching.write({"spec": {"unschedulable": True, "taints": [{"key": "example.com/x", "effect": "NoExecute"}]}})
    await watching.sample_until(timedelta(minutes=10))

    assert watching.cluster.noted() == []


class TestWithTheBudgetUsedUp:
    """Another node holds the only slot."""

    @pytest.fixture
    def policy(self) -> QuarantinePolicy:
        """A budget of one."""
        return QuarantinePolicy(budget=1)

    async def take_all(self, watching: Watching) -> None:
        """The other node takes it."""
        other = await watching.ground_truth.create(a_node("node-b"))
        await take_slots(watching.ground_truth, other, watching.policy, watching.clock.now())

    async def test_a_refused_agent_asks_twice_and_says_why(self, watching: Watching) -> None:
        await self.take_all(watching)
        watching.hear()
        await watching.look()

        assert watching.cluster.noted() == ["create Lease", "list Lease", *A_REPORT]
        health = await watching.ground_truth.get(NodeHealth, "node-a")
        assert health.status.message.endswith("Not quarantined: the budget of cluster, 1 nodes, is used up.")

    async def test_it_asks_again_more_and_more_rarely(self, watching: Watching) -> None:
        await self.take_all(watching)
        watching.hear()
        await watching.sample_until(timedelta(hours=1))

        assert watching.cluster.noted().count("create Lease") < 20

    async def test_it_gets_the_slot_that_becomes_free(self, watching: Watching) -> None:
        await self.take_all(watching)
        watching.hear()
        await watching.sample_until(timedelta(hours=1))
        [taken] = (await watching.ground_truth.list(Lease)).items
        await watching.ground_truth.delete(Lease, taken.metadata.name, namespace=taken.metadata.namespace)
        await watching.sample_until(timedelta(minutes=6))

        assert await watching.is_quarantined()
        health = await watching.ground_truth.get(NodeHealth, "node-a")
        assert "Not quarantined" not in health.status.message

    async def test_a_finding_that_is_repaired_no_longer_asks(self, watching: Watching) -> None:
        await self.take_all(watching)
        watching.hear()
        await watching.look()
        watching.clock.advance(SECOND)
        await watching.write({"metadata": {"annotations": {ANNOTATION_REPAIRED: watching.clock.now().isoformat()}}})
        await watching.look()
        watching.cluster.noted()
        await watching.sample_until(timedelta(minutes=30))

        assert watching.cluster.noted() == []


async def test_a_slot_whose_answer_was_lost_is_found_again(watching: Watching) -> None:
    async def lose_the_answer(request: str) -> None:
        if request == "create Lease":
            watching.cluster.before = None
            await take_slots(watching.ground_truth, await watching.node(), watching.policy, watching.clock.now())
            raise Unavailable("timed out")

    watching.cluster.before = lose_the_answer
    watching.hear()
    await watching.look()
    await watching.look()

    assert await watching.is_quarantined()
    assert len((await watching.ground_truth.list(Lease)).items) == 1


async def test_a_slot_whose_return_was_refused_is_given_back_all_the_same(watching: Watching) -> None:
    async def refuse_once(request: str) -> None:
        if request == "delete Lease":
            watching.cluster.before = None
            raise Conflict("the object has been modified")

    watching.hear()
    await watching.look()
    watching.cluster.before = refuse_once
    watching.clock.advance(SECOND)
    await watching.write({"metadata": {"annotations": {ANNOTATION_REPAIRED: watching.clock.now().isoformat()}}})
    await watching.look()

    assert (await watching.ground_truth.list(Lease)).items == []


async def test_what_is_found_while_the_api_server_is_away_is_done_when_it_is_back(watching: Watching) -> None:
    watching.cluster.trouble = Unavailable("connection refused")
    watching.hear()
    waits = [await watching.look() for _ in range(8)]
    watching.cluster.trouble = None
    await watching.look()

    assert waits[0] < waits[3] < waits[7] <= timedelta(seconds=30)
    assert await watching.is_quarantined()


async def test_what_was_repaired_while_the_api_server_was_away_is_not_done(watching: Watching) -> None:
    watching.cluster.trouble = Unavailable("connection refused")
    watching.hear()
    await watching.look()
    watching.clock.advance(SECOND)
    await watching.write({"metadata": {"annotations": {ANNOTATION_REPAIRED: watching.clock.now().isoformat()}}})
    watching.cluster.trouble = None
    await watching.look()

    assert not await watching.is_quarantined()


async def test_a_record_that_was_judged_but_not_published_is_judged_by_the_next_life(watching: Watching) -> None:
    watching.cluster.trouble = Unavailable("connection refused")
    watching.hear()
    await watching.look()
    watching.cluster.trouble = None
    watching.agent = watching.another_life()
    await watching.agent.load(watching.clock.now())
    before = watching.agent.state.cursor.sequence
    watching.hear(count=0)
    await watching.look()

    assert before < watching.sequence
    [finding] = (await watching.ground_truth.get(NodeHealth, "node-a")).status.findings
    assert finding.count == 1
    assert await watching.is_quarantined()


async def test_boring_records_move_the_stored_cursor_only_before_the_ring_could_lose_them(watching: Watching) -> None:
    watching.hear("usb 1-1: new device")
    await watching.sample_until(timedelta(minutes=2))
    watching.cluster.noted()
    watching.hear("usb 1-1: new device")
    await watching.sample_until(timedelta(minutes=30))
    assert watching.cluster.noted() == []

    watching.hear("usb 1-1: new device", count=300)
    await watching.sample_until(timedelta(minutes=2))

    assert watching.cluster.noted() == ["patch NodeHealth/status"]
    stored = (await watching.ground_truth.get(NodeHealth, "node-a")).status.cursor
    assert stored == KernelLogCursor(boot_id="boot-1", sequence=watching.sequence, source="kmsg")


async def test_an_agent_that_ends_writes_its_cursor_down(watching: Watching) -> None:
    watching.hear("usb 1-1: new device")
    await watching.agent.report_all(watching.clock.now())

    assert (await watching.ground_truth.get(NodeHealth, "node-a")).status.cursor.sequence == watching.sequence


async def test_a_storm_of_the_same_fault_is_written_twice_a_minute(watching: Watching) -> None:
    watching.hear()
    await watching.look()
    watching.cluster.noted()
    for _ in range(120):
        watching.hear()
        watching.clock.advance(SECOND)
        await watching.look()

    assert watching.cluster.noted().count("patch NodeHealth/status") == 4


async def test_pods_that_come_and_go_are_published_as_proof(watching: Watching) -> None:
    watching.agent.state.ingest_pods([PodTasks("uid-of-a-pod", 3)], watching.clock.now())
    await watching.sample_until(timedelta(seconds=3))
    assert (await watching.ground_truth.get(NodeHealth, "node-a")).status.live_pods == ["uid-of-a-pod"]

    watching.agent.state.ingest_pods([], watching.clock.now())
    await watching.sample_until(timedelta(seconds=3))

    status = (await watching.ground_truth.get(NodeHealth, "node-a")).status
    assert (status.live_pods, [end.uid for end in status.gone_pods]) == ([], ["uid-of-a-pod"])


async def test_a_gang_that_falls_silent_costs_one_write_and_what_was_silent_is_unknown_when_it_is_not_sampled(
    watching: Watching,
) -> None:
    works = [PodRhythm(uid=uid, state=MemberState.WORKING, period=2) for uid in ("a", "b")]
    silent = [PodRhythm(uid=uid, state=MemberState.SILENT, since=watching.clock.now()) for uid in ("a", "b")]
    watching.agent.state.ingest_rhythms(works, watching.clock.now())
    await watching.sample_until(timedelta(seconds=3))
    watching.cluster.noted()
    assert watching.agent.state.ingest_rhythms(silent, watching.clock.now())
    await watching.look()

    assert watching.cluster.noted() == ["patch NodeHealth/status"]
    assert (await watching.ground_truth.get(NodeHealth, "node-a")).status.rhythms == silent

    await watching.sample_until(timedelta(minutes=2))
    assert (await watching.ground_truth.get(NodeHealth, "node-a")).status.rhythms == []


async def test_the_next_life_knows_which_pods_were_alive(watching: Watching) -> None:
    watching.agent.state.ingest_pods([PodTasks("uid-of-a-pod", 3)], watching.clock.now())
    await watching.sample_until(timedelta(seconds=3))
    watching.agent = watching.another_life()
    await watching.agent.load(watching.clock.now())
    watching.agent.state.ingest_pods([], watching.clock.now())
    await watching.sample_until(timedelta(seconds=3))

    assert [end.uid for end in (await watching.ground_truth.get(NodeHealth, "node-a")).status.gone_pods] == [
        "uid-of-a-pod"
    ]


async def test_a_node_that_is_made_anew_gets_a_report_of_its_own(watching: Watching) -> None:
    watching.hear()
    await watching.look()
    await watching.ground_truth.delete(Node, "node-a")
    await watching.look()
    await watching.ground_truth.create(a_node())
    watching.clock.advance(timedelta(minutes=1))
    await watching.look()

    assert await watching.is_quarantined()
    health = await watching.ground_truth.get(NodeHealth, "node-a")
    assert health.metadata.owner_references[0].uid == (await watching.node()).metadata.uid


async def test_a_change_of_the_node_wakes_the_agent(watching: Watching) -> None:
    before = watching.wakes
    await watching.write({"metadata": {"annotations": {ANNOTATION_REPAIRED: "2026-01-01T00:00:00Z"}}})
    await settle()

    assert watching.wakes == before + 1


async def test_the_echo_of_its_own_write_does_not_take_the_agent_back_in_time(watching: Watching) -> None:
    watching.hear()
    again = await watching.agent.cycle(watching.clock.now())  # the watch has shown nothing of it yet
    node = await watching.view.node()
    await settle()

    assert again <= CHECK_AGAIN
    assert ANNOTATION_QUARANTINE in node.metadata.annotations
    assert await watching.view.node() == await watching.node()


async def test_a_watch_that_says_nothing_for_long_is_trouble(watching: Watching) -> None:
    assert watching.view.trouble() is None
    watching.clock.advance(STALE_AFTER)

    assert "has sent nothing for 240 s" in (watching.view.trouble() or "")


async def test_a_node_that_left_the_cluster_is_trouble(watching: Watching) -> None:
    await watching.ground_truth.delete(Node, "node-a")
    await settle()

    assert watching.view.trouble() == "there is no node node-a in the cluster"


async def test_a_watch_that_breaks_is_made_again_after_a_wait(watching: Watching) -> None:
    watching.cluster.trouble = Unavailable("connection reset")
    await watching.write({"metadata": {"annotations": {"a": "1"}}})
    await settle()
    watching.cluster.noted()
    watching.cluster.trouble = None
    await watching.clock.run_for(timedelta(seconds=2))

    assert watching.cluster.noted() == ["list Node", "watch Node"]
    assert (await watching.view.node()).metadata.annotations == {"a": "1"}


async def test_where_asked_to_the_report_waits_for_the_cordons_of_others(watching: Watching) -> None:
    agent = watching.another_life(report_within=4 * SECOND, jitter=lambda: 0.5)
    await agent.load(watching.clock.now())
    watching.agent = agent
    watching.hear()
    again = await watching.look()
    first = watching.cluster.noted()
    watching.clock.advance(again)
    await watching.look()

    assert again == 3 * SECOND
    assert first[-2:] == ["create Lease", "patch Node"]
    assert watching.cluster.noted() == A_REPORT
