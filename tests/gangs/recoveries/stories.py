"""
The scenarios that every kind plays. Each is a claim: it raises AssertionError where it does not hold.

The words of `STORIES` are the columns of the table in docs/gangs.md.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from healthd.core.api import Recovery
from healthd.core.api.model import CauseKind, Phase
from tests.checkpoints.builders import shard_name
from tests.gangs.recoveries.gangs import SHAPES
from tests.gangs.recoveries.stage import NEXT, SAVED, Stage, hint
from tests.kubernetes.breakpoints import Breakpoint, Point, When
from tests.kubernetes.replicas import Replica
from tests.kubernetes.scenario import MEMBERS
from tests.lab.kinds.gangs import KINDS
from tests.lab.programs import wait_until

Story = Callable[[Stage], Awaitable[None]]

SLOW = "4s"
_PAUSED = 90
"""Seconds within which a moment of a recovery comes."""
_LATER = 2.0
"""Seconds after the start of a gang, from which on times in whole seconds tell what came before it."""


async def fault_under_a_member(stage: Stage) -> None:
    """The gang runs again whole, on the spare, and every new pod knows where to resume."""
    await stage.play()
    bad = stage.node_of_other()

    stage.scenario.break_gpu(bad)

    assert_moved(stage, bad, await stage.until_recovered())


async def fault_under_the_first(stage: Stage) -> None:
    """The same, where the master, the head or the launcher runs."""
    await stage.play()
    bad = stage.node_of_first()

    stage.scenario.break_gpu(bad)

    assert_moved(stage, bad, await stage.until_recovered())


async def fault_while_it_starts(stage: Stage) -> None:
    """A node breaks before the first member runs."""
    await stage.play(runs=False, notes={"lab.healthd.dev/starting-takes": SLOW})
    scenario, count = stage.scenario, MEMBERS + stage.scenario.gang.beside
    placed = "all members to have a node"
    await scenario.until(placed, lambda: sum(bool(pod.spec.node_name) for pod in scenario.living()) == count)
    bad = stage.node_of_other()

    scenario.break_gpu(bad)

    assert_moved(stage, bad, await stage.until_recovered())


async def second_fault_meanwhile(stage: Stage) -> None:
    """A second node breaks while the gang is stopped: there is still one restart."""
    await stage.play(spares=2)
    scenario = stage.scenario
    first, second = sorted({pod.spec.node_name for pod in scenario.living()})[:2]
    async with moment(stage, Point(Phase.FENCING, When.RECORDED), first):
        scenario.break_gpu(second)
        await scenario.until("the second node to be bad", lambda: second in scenario.unhealthy())

    recovery = await stage.until_recovered()

    assert set(recovery.status.replacements) == {first, second}
    assert_started_once(stage, recovery)


async def user_suspends(stage: Stage, point: Point) -> None:
    """What the user suspends stays suspended."""
    await stage.play()
    async with moment(stage, point, stage.node_of_other()):
        stage.patch(KINDS[stage.kind].stop)

    await stage.scenario.until_phase(Phase.SUPERSEDED)
    await stage.scenario.until("no pod to live", lambda: not stage.scenario.living())


async def user_deletes(stage: Stage, point: Point) -> None:
    """What the user deletes is not made again, and the spare is free."""
    await stage.play()
    scenario = stage.scenario
    async with moment(stage, point, stage.node_of_other()):
        scenario.kubectl("delete", KINDS[stage.kind].deleted, "--wait=false")

    await scenario.until_phase(Phase.SUPERSEDED)
    await scenario.until("no pod to live", lambda: not scenario.living())
    spare = scenario.spares[0]
    await scenario.until(
        "the spare to be free",
        lambda: [taint.key for taint in scenario.node(spare).spec.taints] == ["healthd.dev/spare"],
    )


async def controller_is_killed(stage: Stage, point: Point) -> None:
    """The standby goes on, and there is one restart."""
    await stage.play(controllers=2, lease="5s")
    await stage.replicas.leader()
    bad = stage.node_of_other()
    breakpoint_at = Breakpoint(stage.replicas, stage.scenario.namespace, point, Replica.kill)

    stage.scenario.break_gpu(bad)
    recovery = await stage.until_recovered()

    assert breakpoint_at.caught is not None, "on a busy machine the lead may have moved before"
    assert_moved(stage, bad, recovery)


async def no_spare(stage: Stage) -> None:
    """It waits, says for what, and goes on when there is a spare."""
    await stage.play(spares=0)
    bad = stage.node_of_other()

    stage.scenario.break_gpu(bad)
    held = await stage.scenario.until_phase(Phase.HELD)
    assert "no spare" in held.status.message
    spares = stage.scenario.add_spares(1)
    await stage.scenario.give_agents(spares)
    stage.scenario.spares += spares

    assert_moved(stage, bad, await stage.until_recovered())


async def shrinks_and_grows_back(stage: Stage) -> None:
    """Without a spare it goes on with one member less, and is whole again right after a save when the node is good."""
    await stage.play(spares=0, elastic=True)
    scenario, bad = stage.scenario, stage.node_of_other()

    scenario.break_gpu(bad)
    smaller = await stage.until_recovered(missing=1)
    assert bad not in {pod.spec.node_name for pod in scenario.living()}
    scenario.repair(bad)
    saved = await stage.save_until_it_grows(NEXT)
    larger = await stage.until_recovered(attempt=2, step=saved + 100)

    assert bad in {pod.spec.node_name for pod in scenario.living()}
    assert smaller.status.attempts[-1].shrunk is not None
    assert larger.spec.cause.kind is CauseKind.CAPACITY
    assert larger.status.attempts[-1].shrunk is None
    assert larger.status.checkpoint is not None
    assert larger.status.checkpoint.step in (saved - 1, saved)
    assert len(scenario.recoveries()) == 2
    assert scenario.ranks.overlaps == []
    assert stage.counted() == {}


async def newest_checkpoint_is_torn(stage: Stage) -> None:
    """It resumes from the one before."""
    await stage.play()
    os.truncate(stage.save(SAVED + 100) / shard_name(3, 4), 100)
    bad = stage.node_of_other()

    stage.scenario.break_gpu(bad)

    assert_moved(stage, bad, await stage.until_recovered())


async def ignores_sigterm(stage: Stage) -> None:
    """No new pod begins before the last old one has ended, and no operator sees an old one that is not removed yet."""
    await stage.play(notes={"lab.healthd.dev/stopping-takes": SLOW, "lab.healthd.dev/leaving-takes": SLOW})
    bad = stage.node_of_other()

    stage.scenario.break_gpu(bad)

    assert_moved(stage, bad, await stage.until_recovered())


async def member_fails(stage: Stage) -> None:
    """
    The program of one member fails: all begin anew, also the one whose controller never makes it again.

    Not in the second in which it started: times are whole seconds, and one that is replaced then has lost nothing.
    """
    await stage.play()
    scenario = stage.scenario
    failing = next(pod for pod in scenario.living() if not stage.is_first(pod))
    await asyncio.to_thread(wait_until, "healthd to know the gang", stage.is_known, limit=_PAUSED)
    await asyncio.to_thread(wait_until, "it to have begun", lambda: stage.is_older_than(_LATER), limit=_PAUSED)

    scenario.simulated.end_containers(scenario.namespace, failing.metadata.name, exit_code=1)

    assert_started_once(stage, await stage.until_recovered(), counts=True)


async def finishes_in_the_same_second(stage: Stage) -> None:
    """A gang that completes while healthd is about to stop it is complete, and not started again."""
    await stage.play()
    scenario = stage.scenario
    async with moment(stage, Point(Phase.STOPPING, When.RECORDED), stage.node_of_other()):
        for pod in scenario.living():
            scenario.simulated.end_containers(scenario.namespace, pod.metadata.name, exit_code=0)
        await asyncio.to_thread(wait_until, "the gang to be complete", stage.is_complete, limit=_PAUSED)

    await scenario.until_phase(Phase.SUPERSEDED)
    assert {attempt for begun in scenario.ranks.starts.values() for attempt in begun} == {0}
    assert not scenario.living()
    assert stage.is_complete()


async def quota_is_taken(stage: Stage) -> None:
    """The recovery says that it waits for its queue, and goes on when the quota is back."""
    await stage.play()
    bad = stage.node_of_other()
    async with moment(stage, Point(Phase.FENCING, When.RECORDED), bad):
        stage.take_quota()

    held = await stage.scenario.until_phase(Phase.HELD)
    stage.give_quota_back()

    assert "its queue does not let it run: it waits in Kueue's queue 'train': " in held.status.message
    assert_moved(stage, bad, await stage.until_recovered())


STORIES: Mapping[str, Story] = {
    "node of a member": fault_under_a_member,
    "node of the first": fault_under_the_first,
    "while it starts": fault_while_it_starts,
    "a second fault": second_fault_meanwhile,
    "suspended by its user": partial(user_suspends, point=Point(Phase.STARTING, When.LEAVING)),
    "deleted by its user": partial(user_deletes, point=Point(Phase.FENCING, When.RECORDED)),
    "killed while stopping": partial(controller_is_killed, point=Point(Phase.STOPPING, When.ACTED)),
    "killed while starting": partial(controller_is_killed, point=Point(Phase.STARTING, When.ACTED)),
    "no spare": no_spare,
    "smaller, and grown back": shrinks_and_grows_back,
    "a torn checkpoint": newest_checkpoint_is_torn,
    "SIGTERM ignored": ignores_sigterm,
    "a member fails": member_fails,
    "finished meanwhile": finishes_in_the_same_second,
    "its quota is taken": quota_is_taken,
}


def applies(kind: str, story: str) -> bool:
    """Whether a kind can play it at all."""
    shape = SHAPES[kind]
    can = {
        "finished meanwhile": shape.ends,
        "node of the first": shape.first is not None,
        "its quota is taken": shape.is_queued,
        "smaller, and grown back": shape.elastic is not None,
        "suspended by its user": bool(KINDS[kind].patched),
    }
    return can.get(story, True)


class moment:  # noqa: N801 - used as a function
    """In the block the controllers stand still at *point* of the recovery for *bad*."""

    def __init__(self, stage: Stage, point: Point, bad: str) -> None:
        self._stage = stage
        self._bad = bad
        namespace = stage.scenario.namespace
        self._at = Breakpoint(stage.replicas, namespace, point, lambda replica: replica.proxy.hold())

    async def __aenter__(self) -> None:
        self._stage.scenario.break_gpu(self._bad)
        async with asyncio.timeout(_PAUSED):
            await self._at.sprung.wait()

    async def __aexit__(self, *_: object) -> None:
        for replica in self._stage.replicas.all:
            replica.proxy.release()


def assert_moved(stage: Stage, bad: str, recovery: Recovery) -> None:
    """From *bad* to the spare, once, with the hint in every pod, and nothing counted against its owner's limits."""
    scenario = stage.scenario
    assert bad not in {pod.spec.node_name for pod in scenario.living()}
    assert recovery.status.replacements == {bad: scenario.spares[0]}
    assert_started_once(stage, recovery)


def assert_started_once(stage: Stage, recovery: Recovery, *, counts: bool = False) -> None:
    """Attempt 1 and no other, of which every pod knows; and no limit of the owner *counts* what happened."""
    scenario = stage.scenario
    count = MEMBERS + scenario.gang.beside
    assert stage.hints() == [hint(SAVED, stage.saved / f"step-{SAVED:06}")] * count
    assert [(attempt.number, len(attempt.ran_on)) for attempt in recovery.status.attempts] == [(1, count)]
    assert recovery.status.confirmed_step == NEXT
    assert len(scenario.recoveries()) == 1
    assert scenario.ranks.overlaps == []
    assert counts or stage.counted() == {}


def is_reserved(stage: Stage, spare: str) -> bool:
    """It is kept for a gang."""
    return [taint.key for taint in stage.scenario.node(spare).spec.taints] != ["healthd.dev/spare"]
