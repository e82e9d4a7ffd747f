"""
The reconcile loop of all gangs: observe, decide, act, record.

A gang is reconciled when it is dirty, and now and then anyway. The cached snapshot shows whether there is anything to
do. If so, the gang is read again, and only the fresh snapshot (`healthd.controller.observer`) is decided and acted on,
until the only thing left is to wait. The process keeps only the cluster state and a few times. All else is stored in
the cluster, so this process or another can go on from there.

No gang waits for a checkpoint store: checkpoints are read in the background
(`healthd.controller.checkpoints.background_reads`), and the result is used at the next reconcile of the gang.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
import structlog

from healthd.cluster.port import AlreadyExists, ClusterError, Conflict, NotFound, Refused, TooManyRequests, Unavailable
from healthd.controller.act import perform, point_hint, record
from healthd.controller.cache.cluster_state import ClusterState, GangKey, ObjectKey, key_of
from healthd.controller.cache.informers import read_everything
from healthd.controller.checkpoints.background_reads import CheckpointReads
from healthd.controller.checkpoints.recovery_reads import RecoveryReads
from healthd.controller.dependencies import ReconcilerDependencies
from healthd.controller.events import emit_events
from healthd.controller.garbage_collector import GarbageCollector
from healthd.controller.gpu_time import GpuTimeRecorder
from healthd.controller.hangs import HangReporter
from healthd.controller.lost_recoveries import MADE_AGAIN, is_needed, make_again
from healthd.controller.metrics import measure_agents, measure_detection, measure_hangs, measure_move, measure_world
from healthd.controller.observer import Observer, Snapshot
from healthd.controller.planned_restarts import PlannedRestarts
from healthd.controller.progress import ProgressRecorder
from healthd.controller.rebuilds import Rebuilds
from healthd.controller.refused_claims import RefusedClaims
from healthd.controller.schedule import RETRY, SOON, Schedule
from healthd.core.api import LABEL_GANG, Cause, GangRef, Recovery
from healthd.core.api.model import ENDED, CauseKind
from healthd.core.config import Config
from healthd.core.recovery import breaker
from healthd.core.recovery.actions import Action, ClaimSpare, StartGang
from healthd.core.recovery.decide import Decision, decide, open_recovery
from healthd.core.recovery.gang import GangView, Root, RootOutcome
from healthd.core.recovery.nodes import foreign_signs
from healthd.core.recovery.nodes.spares import is_spare
from healthd.core.recovery.planned.restarts import is_still_wanted
from healthd.core.recovery.rebuilding import is_answered
from healthd.core.recovery.recovery_status import label_value
from healthd.core.recovery.root_state import left_stopped, lost_attempt
from healthd.telemetry.events import WARNING, about, about_gang
from healthd.telemetry.isolation import Isolation

log = structlog.get_logger()

MOVES = 32
"""Most moves in one reconcile. A recovery has about twenty in all; more in one go means that something undoes them."""


INVALID, LEFT_STOPPED = "GangInvalid", "GangLeftStopped"
"""Reasons of Events: what its owner wrote cannot be followed; no recovery will start it again."""


class _Ignored(NamedTuple):
    """Why healthd does nothing to a gang: the reason of its Event, and the words."""

    reason: str
    why: str


class Reconciler:
    """
    Guards every gang with the annotation `healthd.dev/restart: enabled`.

    With a *cluster_state* that a watch feeds, this only reconciles. Without one, each cycle reads everything first.
    Every write has a precondition.
    """

    def __init__(
        self, dependencies: ReconcilerDependencies, config: Config, *, cluster_state: ClusterState | None = None
    ) -> None:
        self.cluster_state = cluster_state or ClusterState(dependencies.adapters)
        self._is_fed = cluster_state is not None
        self.has_read = False
        """Where no watch feeds the cluster state: it was read once, so what is missing in it does not exist."""
        self._cluster = dependencies.cluster
        self._clock = dependencies.clock
        self._reader = dependencies.reader
        self._adapters = dependencies.adapters
        self._metrics = dependencies.metrics
        self._announce = dependencies.announce
        self._policy = config.recovery
        self._breaker = config.breaker
        self._look_every = config.recovery.look_every
        self._foreign = foreign_signs.rules_of(config.foreign)
        self._isolation = Isolation(self._metrics)
        self._schedule = Schedule(self._look_every, dependencies.jitter)
        self.reads = CheckpointReads(self._clock, self.cluster_state.dirty_keys.add, dependencies.jitter)
        """The caller of `reconcile_all` or `reconcile` must run these, too."""
        checkpoints = dependencies.checkpoints
        self._rebuilds = Rebuilds(self._cluster, self._adapters, dependencies.namespace)
        self._refused_claims = RefusedClaims()
        self._observer = Observer(
            dependencies,
            self.cluster_state,
            config,
            RecoveryReads(self.reads, checkpoints, self._look_every),
            self._rebuilds,
            self._refused_claims,
        )
        self._fresh_reader = self._observer.fresh_reader
        self._progress = ProgressRecorder(
            self._cluster,
            self._adapters,
            self.reads,
            checkpoints,
            self._look_every / 2,
            self._announce,
            dependencies.activity.missed_since,
        )
        self._hangs = HangReporter(
            self._cluster, self._adapters, config.hang, self._announce, self.cluster_state.recoveries
        )
        self._has_rhythms = dependencies.has_rhythms
        self._planned = PlannedRestarts(
            self.cluster_state,
            self._fresh_reader,
            self.reads,
            checkpoints,
            config.recovery,
            self._refused_claims,
        )
        self._gpu_time = GpuTimeRecorder(self._cluster, self._adapters, self._metrics)
        self._garbage_collector = GarbageCollector(
            self._cluster, self.cluster_state, self._fresh_reader, self._adapters, self._isolation
        )
        self._ignored: dict[str, _Ignored] = {}
        """By uid of the root: why it is left alone now, as was reported."""
        self._of_unknown_kinds: set[GangRef] = set()
        """Gangs of which it was logged that their kind is unknown."""
        self._collected: datetime | None = None
        self._measured: datetime | None = None

    async def reconcile_all(self, now: datetime) -> timedelta:
        """Reconcile every gang that is due, one after the other. Returns how long all gangs can wait."""
        await self.sync()
        for key in self.ready_keys(now):
            await self.reconcile(key, now)
        await self.collect_garbage(now)
        return self.next_wakeup(now)

    async def sync(self) -> None:
        """Read everything, where no watch feeds the cluster state. Raises ClusterError."""
        if not self._is_fed:
            await read_everything(self._reader, self.cluster_state, self._adapters)
            self.has_read = True

    def ready_keys(self, now: datetime) -> list[GangKey]:
        """The gangs to reconcile now: the dirty ones, and those whose time has come."""
        for key in self.cluster_state.dirty_keys:
            if self.cluster_state.gangs(key) or self.cluster_state.rootless(key):
                self._schedule.add(key, now)
        self.cluster_state.dirty_keys.clear()
        return self._schedule.ready_keys(now)

    def next_wakeup(self, now: datetime) -> timedelta:
        """How long until a gang is due, if nothing happens."""
        return self._schedule.next_wakeup(now)

    def pause(self, key: GangKey, until: datetime) -> None:
        """Leave a gang alone until then, whatever changes."""
        self._schedule.pause(key, until)

    def end_pause(self, key: GangKey) -> None:
        """A gang may be due at once."""
        self._schedule.end_pause(key)

    async def reconcile(self, key: GangKey, now: datetime) -> None:
        """Do what there is to do for one gang. An error with it does not affect the others."""
        with self._schedule.in_progress(key):
            wait = await self._reconcile_key(key)
        if wait is not None:
            self._schedule.add(key, now + wait)

    async def _reconcile_key(self, key: GangKey) -> timedelta | None:
        """Returns when to reconcile again; None for a gang that healthd no longer manages."""
        gangs, rootless = self.cluster_state.gangs(key), self.cluster_state.rootless(key)
        self.reads.drop_others(key, gangs)
        if not gangs and not rootless:
            self._schedule.succeeded(key)
            return None
        try:
            if rootless:
                await self._adapters[key.kind].discover(self._cluster, key.namespace, key.name, rootless)
            wait = min([await self._reconcile_gang(gang) for gang in gangs], default=self._look_every)
        except (ClusterError, OSError) as error:
            kind = type(error).__name__
            log.warning("gang.retry", gang=key.name, namespace=key.namespace, error=str(error), kind=kind)
            wait = self._schedule.failed(key, self._clock.now())
            self._report_stuck(key, gangs, error)
            return wait
        except Exception as error:  # a bug of ours with one gang must not leave the others unguarded
            log.exception("gang.failed", gang=key.name, namespace=key.namespace, error=str(error))
            self._isolation.count("gang")
            return self._schedule.failed(key, self._clock.now())
        self._schedule.succeeded(key)
        return wait

    async def _reconcile_gang(self, gang: GangRef) -> timedelta:
        if gang.kind not in self._adapters:
            self._report_unknown_kind(gang)
            return self._look_every
        with self.reads.attending(gang):
            await self._restore(gang)
            recovery = self.cluster_state.active(gang)
            seen = await self._observer.cached(gang, recovery)
            self._report_ignored(seen.view, is_recovering=recovery is not None)
            await self._maintain(seen)
            if recovery is not None:
                return await self._advance(recovery, seen)
            return await self._guard(gang, seen)

    async def _guard(self, gang: GangRef, seen: Snapshot) -> timedelta:
        """Record the silence, the progress and the GPU time of a gang without a recovery, or open one for a fault."""
        if await self._report_hang(seen):
            return SOON
        if not seen.faults:
            cause = None
            with self._isolation.of("gang", f"planned restart of {gang.namespace}/{gang.name}"):
                cause = await self._planned.cause(seen)
            if cause is not None:
                recovery = await self._open_planned(gang, cause)
                return await self._advance(recovery, None) if recovery else self._look_every
            if self._planned.awaits(seen.root):
                return self._look_every
            if not await self._progress.record(seen.root):
                with self._isolation.of("gang", f"GPU time of {gang.namespace}/{gang.name}"):
                    await self._gpu_time.record(seen.view, self.cluster_state.of_gang(gang), seen.now)
            return self._stagger(gang)
        recovery = await self._open(gang, seen.root, seen.faults)
        return await self._advance(recovery, None) if recovery else self._look_every

    async def _report_hang(self, seen: Snapshot) -> bool:
        """Report a silence that began or is over. True: the root was written. A worse fault does not wait for this."""
        if not self._has_rhythms or any(cause.kind is not CauseKind.HANG for cause in seen.faults):
            return False
        with self._isolation.of("gang", "its silence"):
            return await self._hangs.record(seen)
        return False

    async def _restore(self, gang: GangRef) -> None:
        """Make the gang's recovery again, if somebody deleted it and the gang still needs it. Raises ClusterError."""
        lost = self.cluster_state.lost(gang)
        if lost is None:
            return
        others = (await self._cluster.list(Recovery, namespace=gang.namespace)).items
        if is_needed(lost, await self._adapters[gang.kind].find(self._cluster, gang), others):
            made = await make_again(self._cluster, lost, self._clock.now())
            self.cluster_state.upsert(made)
            self._announce(about(made), WARNING, "MadeAgain", MADE_AGAIN)
        self.cluster_state.lost_recoveries.pop(key_of(gang), None)

    def _stagger(self, gang: GangRef) -> timedelta:
        """Gangs with nothing to do are reconciled spread over time, not all at the same moment."""
        return self._look_every * (0.5 + zlib.crc32(gang.uid.encode()) % 512 / 1024)

    async def _maintain(self, seen: Snapshot) -> None:
        """Do what a kind needs at every reconcile. On Conflict, another writer was faster and has done it."""
        if seen.root is not None and not seen.root.invalid:
            with suppress(Conflict, NotFound):
                await self._adapters[seen.root.ref.kind].maintain(self._cluster, seen.root, seen.view.pods)

    # A recovery -----------------------------------------------------------------------------------------------------

    async def _open(self, gang: GangRef, cached: Root | None, suspected: Sequence[Cause]) -> Recovery | None:
        """Open a recovery for a gang that seems to need one. None: it does not need one, or may not have one now."""
        was_hang = suspected[0].kind is CauseKind.HANG
        if was_hang and (cached is None or not await self._progress.is_silent(cached)):
            return None  # first: the store may not answer for hours, and a large gang has thousands of nodes to read
        snapshot = await self._observer.at_fault(gang)
        root, faults = snapshot.root, snapshot.faults
        if root is None or not faults or root.ending is RootOutcome.COMPLETE or not root.options.restart:
            return None
        if faults[0].kind is CauseKind.INTERRUPTED and cached is not None and root.generation > cached.generation:
            return None  # its change is on the way here, and may show that a member went because the gang was smaller
        if faults[0].kind is CauseKind.HANG and not was_hang:
            return None
        # Read last: another controller may have opened one while this one read, or was paused.
        earlier = await self._fresh_reader.recoveries(gang)
        if any(is_answered(root, each.status) for each in earlier):
            return None
        active = next((each for each in earlier if each.status.phase not in ENDED), None)
        return active or await self._create(root, faults[0], earlier)

    async def _open_planned(self, gang: GangRef, cause: Cause) -> Recovery | None:
        """Open a recovery for a gang that has no fault. None: something has happened meanwhile."""
        snapshot = await self._observer.at_fault(gang)
        root = snapshot.root
        if root is None or snapshot.faults or root.suspended or root.ending is not RootOutcome.NOT_ENDED:
            return None
        earlier = await self._fresh_reader.recoveries(gang)
        is_over = all(each.status.phase in ENDED for each in earlier)
        is_wanted = is_over and is_still_wanted(cause, earlier, snapshot.view, self._policy, snapshot.now)
        return await self._create(root, cause, earlier) if is_wanted else None

    async def _create(self, root: Root, cause: Cause, earlier: list[Recovery]) -> Recovery | None:
        others = {each.metadata.name for each in self.cluster_state.recoveries() if each.spec.gang.uid != root.ref.uid}
        wanted = open_recovery(root, cause, earlier, others)
        meta = msgspec.structs.replace(wanted.metadata, labels={LABEL_GANG: label_value(root.ref.name)})
        try:
            opened = await self._cluster.create(msgspec.structs.replace(wanted, metadata=meta))
        except AlreadyExists:
            again = await self._fresh_reader.recoveries(root.ref)
            if any(each.metadata.name == wanted.metadata.name for each in again):
                return None  # another controller saw the same fault first and created this recovery
            why = "it is of another gang, or cannot be read: delete it, or the gang is never recovered"
            raise Conflict(f"there is a recovery {wanted.metadata.name} already; {why}") from None
        self.cluster_state.upsert(opened)
        log.warning("recovery.opened", recovery=opened.metadata.name, cause=cause.kind, why=cause.message)
        return opened

    async def _advance(self, recovery: Recovery, seen: Snapshot | None) -> timedelta:
        """
        Observe, decide, then act or record, until *recovery* has to wait. *seen* is the cached snapshot, if there is
        one already.
        """
        is_fresh = False
        for _ in range(MOVES):
            if self._observer.may_wait_unseen(recovery):
                seen = seen or await self._observer.cached(recovery.spec.gang, recovery)
                decision = self._decide(recovery, seen)
                if decision.waits:
                    return self._wait(decision)
            seen = None
            snapshot = await self._observer.at_recovery(recovery, is_fresh=is_fresh)
            if snapshot.recovery is None:
                return self._look_every
            recovery = snapshot.recovery
            if snapshot.awaited:
                log.info("gang.waiting_for_termination", recovery=recovery.metadata.name, pods=len(snapshot.awaited))
                return RETRY
            decision = self._decide(recovery, snapshot)
            if decision.waits:
                return self._wait(decision)
            if is_fresh := decision.record is not None:
                recovery = await self._record(decision, recovery)
            else:
                recovery = await self._act(decision, recovery, snapshot)
        return SOON

    def _wait(self, decision: Decision) -> timedelta:
        return self._look_every if decision.recheck is None else max(decision.recheck, SOON)

    def _decide(self, recovery: Recovery, snapshot: Snapshot) -> Decision:
        refusal = self._refusal(recovery, snapshot)
        return decide(recovery, snapshot.view, snapshot.faults, self._policy, snapshot.now, refusal)

    def _refusal(self, recovery: Recovery, snapshot: Snapshot) -> str:
        """Why the breaker holds this recovery; empty when it does not, or has let it through before."""
        if recovery.status.let_through is not None:
            return ""
        known, outage, now = self.cluster_state.recoveries(), self._outage(snapshot.now), snapshot.now
        return breaker.refuses(recovery, known, outage, self._breaker, now, snapshot.view.terms)

    def _outage(self, now: datetime) -> breaker.Outage:
        return breaker.outage_of(self.cluster_state.nodes.values(), self.cluster_state.health, now)

    async def _act(self, decision: Decision, recovery: Recovery, snapshot: Snapshot) -> Recovery:
        """Do what was decided. Returns the recovery as it is afterwards. Raises ClusterError."""
        for action in decision.actions:
            if isinstance(action, StartGang):
                others = await self._fresh_reader.recoveries(recovery.spec.gang)
                recovery = await point_hint(self._cluster, recovery, others)
                self.cluster_state.upsert(recovery)
            if isinstance(action, ClaimSpare) and is_spare(snapshot.view.nodes[action.spare]):
                await self._claim(action, recovery, snapshot)
            else:
                await self._perform(action, recovery, snapshot)
        log.info("recovery.acted", recovery=recovery.metadata.name, did=decision.reason)
        return recovery

    async def _claim(self, action: ClaimSpare, recovery: Recovery, snapshot: Snapshot) -> None:
        """Claim a spare of the pool. Where the API server refuses that, the next decision leaves this spare out."""
        try:
            await self._perform(action, recovery, snapshot)
        except Refused as error:
            self._refused_claims.note(action.spare, error, self._clock.now())
            log.warning("spare.claim_refused", node=action.spare, error=str(error), so="it is left out for a while")
        else:
            self._refused_claims.forget(action.spare)

    async def _perform(self, action: Action, recovery: Recovery, snapshot: Snapshot) -> None:
        adapter = self._adapters[recovery.spec.gang.kind]
        changed = await perform(
            self._cluster, action, recovery=recovery, view=snapshot.view, adapter=adapter, rebuilds=self._rebuilds
        )
        if changed is not None:
            self.cluster_state.upsert(changed)

    async def _record(self, decision: Decision, recovery: Recovery) -> Recovery:
        """Record what was decided, and report it. Returns the recovery as it is afterwards. Raises ClusterError."""
        if decision.record is None:
            return recovery
        written = await record(self._cluster, recovery, decision.record, self._clock.now())
        self.cluster_state.upsert(written)
        await self._rebuilds.forget_used(recovery, written)
        with self._isolation.of("event", written.metadata.name):
            self._report_move(recovery, written, decision)
        return written

    # Reports ---------------------------------------------------------------------------------------------------------

    def _report_move(self, before: Recovery, after: Recovery, decision: Decision) -> None:
        if decision.event:
            self._announce(about(after), WARNING, decision.event, decision.reason)
        measure_detection(self._metrics, before, after)
        emit_events(self._announce, before, after, self._adapters[after.spec.gang.kind], self.cluster_state.nodes.get)
        for refused in after.status.rejected:
            if refused not in before.status.rejected:
                log.warning("checkpoint.rejected", path=refused.path, step=refused.step, why=refused.reason)
        if after.status.phase is before.status.phase:
            return
        log.info("recovery.phase", recovery=after.metadata.name, phase=after.status.phase, why=after.status.message)
        measure_move(self._metrics, before, after)

    def _report_ignored(self, view: GangView, *, is_recovering: bool) -> None:
        """Report once, in the log and on the root, why healthd does nothing to a gang that asks for restarts."""
        root = view.root
        if root is None:
            return
        before, now = self._ignored.pop(root.ref.uid, None), self._why_ignored(root)
        if now is None and not is_recovering and (why := lost_attempt(root, view.pods)):
            now = _Ignored(INVALID, why)
        if now is None:
            return
        self._ignored[root.ref.uid] = now
        if now != before:
            log.warning("gang.left_alone", gang=root.ref.name, namespace=root.ref.namespace, why=now.why)
            gang = about_gang(root.ref, self._adapters[root.ref.kind].kind)
            self._announce(gang, WARNING, now.reason, f"healthd does nothing to this gang: {now.why}")

    def _why_ignored(self, root: Root) -> _Ignored | None:
        if root.ending is not RootOutcome.NOT_ENDED:
            return None
        if root.invalid:
            return _Ignored(INVALID, "; ".join(root.invalid))
        why = left_stopped(root, [each.metadata.name for each in self.cluster_state.of_gang(root.ref)])
        return _Ignored(LEFT_STOPPED, why) if why else None

    def _report_stuck(self, key: GangKey, gangs: Collection[GangRef], error: Exception) -> None:
        """Report on the root and on its recovery what keeps healthd from going on with a gang."""
        if not self._schedule.is_stuck(key, self._clock.now()) or isinstance(error, Unavailable | TooManyRequests):
            return  # an error of the cluster is in no Event of one gang
        why = f"healthd cannot go on with this gang, and tries again: {error}"
        for gang in gangs:
            with self._isolation.of("event", f"{gang.namespace}/{gang.name}"):
                self._announce(about_gang(gang, self._adapters[gang.kind].kind), WARNING, "GangStuck", why)
                if recovery := self.cluster_state.active(gang):
                    self._announce(about(recovery), WARNING, "Stuck", why)

    def _report_unknown_kind(self, gang: GangRef) -> None:
        if gang in self._of_unknown_kinds:
            return
        self._of_unknown_kinds.add(gang)
        known = ", ".join(sorted(self._adapters))
        why = f"this version of healthd knows no gangs of the kind {gang.kind}, only {known}"
        log.error("gang.unknown_kind", gang=gang.name, namespace=gang.namespace, kind=gang.kind, why=why)
        for recovery in self.cluster_state.of_gang(gang):
            self._announce(about(recovery), WARNING, INVALID, f"healthd does nothing for this recovery: {why}")

    # Everything else -------------------------------------------------------------------------------------------------

    async def collect_garbage(self, now: datetime) -> bool:
        """
        Release what recoveries and ended gangs still hold, and set the gauges. False when something failed, which is
        done next time.
        """
        succeeded = False
        is_time = self._collected is None or now - self._collected >= timedelta(seconds=1)
        if is_time:
            self._collected = now
            self._schedule.add_missing(self.cluster_state.watched(), now)
            uids = {root.ref.uid for root in self.cluster_state.roots.values()}
            self._progress.forget_others(uids)
            self._hangs.forget_others(uids)
            self._planned.forget_others(uids)
            self._ignored = {uid: ignored for uid, ignored in self._ignored.items() if uid in uids}
        try:
            with self._isolation.of("tidy", "the cluster"):
                await self._garbage_collector.tidy(lambda nodes: foreign_signs.reader(nodes, self._foreign, now))
                if is_time:
                    await self._garbage_collector.forget_old(self._policy, now)
                    await self._rebuilds.clear(self._recovery, self._policy.keep_for, now)
                self._metrics.loop_succeeded("controller", now)
                succeeded = True
        except ClusterError as error:
            log.info("garbage_collection.retry", error=str(error))
        if is_time:  # last: metrics must not delay the work
            with self._isolation.of("metrics", "the cluster"):
                invalid = {uid for uid, ignored in self._ignored.items() if ignored.reason == INVALID}
                measure_world(self._metrics, self.cluster_state, invalid)
                self._measure_all_nodes(now)
        return succeeded

    def _recovery(self, namespace: str, name: str) -> Recovery | None:
        return self.cluster_state.get(Recovery, ObjectKey(namespace, name))

    def _measure_all_nodes(self, now: datetime) -> None:
        """Set the gauges that need a look at every node, less often than the others."""
        if self._measured is None or now - self._measured >= self._look_every:
            self._measured = now
            measure_agents(self._metrics, self.cluster_state, now)
            if self._has_rhythms:
                measure_hangs(self._metrics, self.cluster_state, now)
            self._gpu_time.measure(self.cluster_state, now)
            over = breaker.open_over(self.cluster_state.recoveries(), self._outage(now), self._breaker, now)
            self._metrics.show_breaker(over)
