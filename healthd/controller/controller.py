"""
The controller of all gangs: observe → decide → act → record.

One cycle looks at the whole world, moves every recovery as far as it will go without waiting, and says when time alone
could change something. Nothing is kept between cycles but a few times of looking: whoever runs the next cycle, this
process or another, finds everything in the cluster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
import structlog

from healthd.clock import Clock
from healthd.cluster.port import AlreadyExists, Cluster, ClusterError
from healthd.controller.act import perform, record, release_pod, settle
from healthd.controller.measure import measure_move, measure_world
from healthd.controller.observe import World, observe
from healthd.controller.ports import Activity, Checkpoints, NoActivity
from healthd.core import breaker, spares
from healthd.core.acts import FindCheckpoint
from healthd.core.choosing import choose_checkpoint
from healthd.core.faults import find_faults
from healthd.core.gang import Ending, GangView, Root, attempt_of, will_not_run
from healthd.core.model import ENDED, CauseKind, Phase
from healthd.core.objects import ANNOTATION_PROGRESS, FINALIZER_FENCE, Cause, Pod, Recovery
from healthd.core.policy import HangPolicy, RecoveryPolicy
from healthd.core.progress import advance
from healthd.core.recovery import Decision, decide, open_recovery
from healthd.core.spares import ReturnSpare, SettleSpare
from healthd.gangs.adapter import GangAdapter
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger()

AT_ONCE = timedelta(0)
MOVES_PER_CYCLE = 32
"""A recovery has some twenty moves in all; more in one cycle means that something undoes them."""


class Controller:
    """
    Watches over every gang that `healthd.dev/restart: enabled` marks.

    *mirror* may serve reads from a cache and be stale: it is used to notice. What is decided and done about a gang is
    always read from *cluster*, and every write has a precondition.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        adapters: Mapping[str, GangAdapter[Any]],
        checkpoints: Checkpoints,
        *,
        recovery: RecoveryPolicy,
        hang: HangPolicy,
        metrics: Metrics,
        mirror: Cluster | None = None,
        activity: Activity | None = None,
        look_every: timedelta = timedelta(seconds=10),
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._mirror = mirror or cluster
        self._adapters = adapters
        self._checkpoints = checkpoints
        self._activity = activity or NoActivity()
        self._recovery = recovery
        self._hang = hang
        self._metrics = metrics
        self._look_every = look_every
        self._looked: dict[str, datetime] = {}

    async def cycle(self, now: datetime) -> timedelta:
        """One look at everything. Returns how long the world may be left alone unless something changes."""
        world = await observe(self._mirror, self._adapters)
        waits = [await self._attend_safely(uid, world, now) for uid in self._gangs(world)]
        await self._tidy(world)
        measure_world(self._metrics, world)
        self._metrics.loop_succeeded("controller", now)
        return min([self._look_every, *waits])

    def _gangs(self, world: World) -> list[str]:
        watched = {uid for uid, root in world.roots.items() if root.options.restart}
        return sorted(watched | {r.spec.gang.uid for r in world.recoveries.values() if r.status.phase not in ENDED})

    async def _attend_safely(self, uid: str, world: World, now: datetime) -> timedelta:
        """Trouble with one gang is no trouble for the others."""
        try:
            return await self._attend(uid, world, now)
        except (ClusterError, OSError) as error:
            log.warning("gang.retry", gang=uid, error=str(error), kind=type(error).__name__)
            return timedelta(seconds=1)

    async def _attend(self, uid: str, noticed: World, now: datetime) -> timedelta:
        """Look, and where something is to be done, look freshly and do it until there is nothing left but to wait."""
        if noticed.active(uid) is None and not self._faults(noticed.view(uid), now):
            # Only now: a store that fails or is slow must not keep a fault from being seen.
            await self._look_at_progress(noticed.roots[uid], now)
            return self._look_every
        for _ in range(MOVES_PER_CYCLE):
            world = await observe(self._cluster, self._adapters)
            wait = await self._move(uid, world, self._clock.now())
            if wait is not AT_ONCE:
                return wait
        return AT_ONCE

    async def _move(self, uid: str, world: World, now: datetime) -> timedelta:
        active = world.active(uid)
        if active is None:
            return await self._open(uid, world, now)
        root = await self._adapters[active.spec.gang.kind].find(self._cluster, active.spec.gang)
        view = await self._look_closer(dataclasses.replace(world.view(uid), root=root), active)
        decision = decide(active, view, self._faults(view, now), self._recovery, now)
        if decision.acts == (FindCheckpoint(),) and root is not None:
            decision = await self._find_checkpoint(active, root, world, now)
        return await self._carry_out(decision, active, root, world)

    async def _open(self, uid: str, world: World, now: datetime) -> timedelta:
        root = world.roots.get(uid)
        faults = self._faults(world.view(uid), now)
        if root is None or not faults or root.ending is not Ending.NOT_ENDED:
            return self._look_every
        if faults[0].kind is CauseKind.HANG and not await self._is_silent(root):
            return self._look_every
        if refusal := breaker.refuses(world.recoveries.values(), self._recovery, now):
            log.error("recovery.refused", gang=root.ref.name, why=refusal.reason, cause=faults[0].message)
            return refusal.recheck
        try:
            opened = await self._cluster.create(open_recovery(root, faults[0], world.of_gang(uid)))
        except AlreadyExists:
            # Another controller saw the same fault first; its recovery is this one.
            return self._look_every
        log.warning("recovery.opened", recovery=opened.metadata.name, cause=faults[0].kind, why=faults[0].message)
        return AT_ONCE

    async def _carry_out(self, decision: Decision, active: Recovery, root: Root | None, world: World) -> timedelta:
        if decision.record is not None:
            written = await record(self._cluster, active, decision.record)
            self._tell(active, written)
            return AT_ONCE
        if not decision.acts or root is None:
            return self._look_every if decision.recheck is None else max(decision.recheck, timedelta(milliseconds=1))
        for act in decision.acts:
            if not isinstance(act, FindCheckpoint):
                adapter = self._adapters[active.spec.gang.kind]
                await perform(self._cluster, act, recovery=active, root=root, world=world, adapter=adapter)
        log.info("recovery.acted", recovery=active.metadata.name, did=decision.reason)
        return AT_ONCE

    async def _find_checkpoint(self, active: Recovery, root: Root, world: World, now: datetime) -> Decision:
        answer = await self._checkpoints.latest(root)
        earlier = [r for r in world.of_gang(root.ref.uid) if r.metadata.name != active.metadata.name]
        previous = earlier[0] if earlier else None
        return choose_checkpoint(active, root, answer.found, answer.rejected, previous, self._recovery, now)

    async def _look_closer(self, view: GangView, active: Recovery) -> GangView:
        """Where a new step would end the recovery, see whether there is one that is whole; see signs of life, too."""
        root, status = view.root, active.status
        view = dataclasses.replace(view, last_activity=self._activity.last(view.pods))
        if root is None or status.phase is not Phase.CONFIRMING or not root.options.checkpoint:
            return view
        resumed_at = status.checkpoint.step if status.checkpoint else -1
        answer = await self._checkpoints.latest(root, newer_than=resumed_at if resumed_at >= 0 else None)
        return dataclasses.replace(view, newest=answer.found)

    def _faults(self, view: GangView, now: datetime) -> list[Cause]:
        seen = dataclasses.replace(view, last_activity=self._activity.last(view.pods))
        return find_faults(seen, self._hang, now)

    async def _look_at_progress(self, root: Root, now: datetime) -> None:
        """Note a new step on the root, at most once per `look_every`: the gang's rhythm is learned from it."""
        looked = self._looked.get(root.ref.uid)
        if not root.options.checkpoint or root.suspended or (looked and now - looked < self._look_every):
            return
        self._looked[root.ref.uid] = now
        await self._note_step(root)

    async def _is_silent(self, root: Root) -> bool:
        """
        Whether the store, asked now, shows the step on record and no other. Raises OSError.

        What is on record may be old because nobody looked: no controller ran, or the store did not answer.
        """
        return await self._note_step(root) == root.progress.step

    async def _note_step(self, root: Root) -> int | None:
        """The newest step, noted on the root where it is another one than before; None when there is none to see."""
        step = await self._checkpoints.newest_step(root)
        if step is None:
            return None
        # The store may have taken minutes; the step is as new as the answer.
        progress = advance(root.progress, step, root.attempt, self._clock.now())
        if progress != root.progress:
            note = {ANNOTATION_PROGRESS: msgspec.json.encode(progress).decode()}
            await self._adapters[root.ref.kind].note(self._cluster, root, note)
        return step

    async def _tidy(self, noticed: World) -> None:
        """Give back what recoveries and ended gangs still hold. Never urgent: what fails is done next time."""
        if not _loose_spares(noticed) and not _loose_pods(noticed):
            return
        try:
            world = await observe(self._cluster, self._adapters)
            for step in _loose_spares(world):
                await settle(self._cluster, step, world)
                log.info("spare.settled", node=step.node, why=step.reason)
            for pod in _loose_pods(world):
                await release_pod(self._cluster, pod)
        except ClusterError as error:
            log.info("tidy.retry", error=str(error))

    def _tell(self, before: Recovery, after: Recovery) -> None:
        for refused in after.status.rejected:
            if refused not in before.status.rejected:
                log.warning("checkpoint.rejected", path=refused.path, step=refused.step, why=refused.reason)
        if after.status.phase is before.status.phase:
            return
        log.info("recovery.phase", recovery=after.metadata.name, phase=after.status.phase, why=after.status.message)
        measure_move(self._metrics, before, after)


def _loose_spares(world: World) -> list[ReturnSpare | SettleSpare]:
    """What to do about claims whose time is over."""
    active = {uid: recovery for uid in world.roots if (recovery := world.active(uid)) is not None}
    placements = {uid: root.placement.values() for uid, root in world.roots.items() if not _is_over(root)}
    plans = [*placements.values(), *(recovery.status.placement.values() for recovery in active.values())]
    wanted = {node for plan in plans for node in plan}
    return spares.settle(
        world.nodes, world.health, placements=placements, recovering=active, busy=world.busy_nodes() | wanted
    )


def _loose_pods(world: World) -> list[Pod]:
    """Ended pods that no fence needs: of gangs that ended or are gone, and of attempts that are history."""
    pods = list(world.strays)
    for uid, root in world.roots.items():
        if world.active(uid) is None:
            over = root.ending is not Ending.NOT_ENDED or root.deleting
            pods += [pod for pod in world.pods.get(uid, ()) if over or attempt_of(pod) < root.attempt]
    return [pod for pod in pods if will_not_run(pod) and FINALIZER_FENCE in pod.metadata.finalizers]


def _is_over(root: Root) -> bool:
    """It will not run again by itself: it ended, or healthd gave it up (a gang that is being recovered aside)."""
    return root.ending is not Ending.NOT_ENDED or root.deleting or (root.suspended and bool(root.stopped_by))
