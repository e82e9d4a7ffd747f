"""
The controller of all gangs: observe → decide → act → record.

No gang waits for a checkpoint store. Its checkpoints are read in the background
(`healthd.controller.checkpoints.background_reads`), and the result is used at the next reconcile of the gang.

A gang is reconciled when it is dirty, and now and then anyway. The cached view shows whether there is anything to do.
If so, the gang is read again (`healthd.controller.fresh_reads`), and only the fresh read is decided and acted on, until
the only thing left is to wait. The process keeps only the cluster state and a few times. All else is stored in the
cluster, so this process or another can go on from there.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import structlog

from healthd.clock import Clock
from healthd.cluster.port import AlreadyExists, Cluster, ClusterError, Conflict, NotFound, Reader
from healthd.controller.act import perform, point_hint, record
from healthd.controller.checkpoints.background_reads import CheckpointReads, Purpose, Read, question_of
from healthd.controller.cluster_state import ClusterState, GangKey
from healthd.controller.events import emit_events
from healthd.controller.fresh_reads import FreshReader, GatherReads, Snapshot, one_by_one, phase_of
from healthd.controller.garbage_collector import GarbageCollector
from healthd.controller.informers import read_everything
from healthd.controller.metrics import measure_move, measure_world
from healthd.controller.ports import (
    Activity,
    CheckpointAnswer,
    Checkpoints,
    NoActivity,
    UnknownWitnesses,
    Witnesses,
)
from healthd.core.api import ANNOTATION_PROGRESS, LABEL_GANG, Cause, ChosenCheckpoint, GangRef, Recovery
from healthd.core.api.model import ENDED, CauseKind, Phase
from healthd.core.backoff import Backoff, Jitter, no_jitter
from healthd.core.config import ForeignPolicy, HangPolicy, RecoveryPolicy
from healthd.core.node.reporting import silence
from healthd.core.recovery import breaker, foreign_signs
from healthd.core.recovery.actions import FindCheckpoint, ReadAhead, StartGang
from healthd.core.recovery.decide import Decision, decide, open_recovery, stopped_at
from healthd.core.recovery.faults import find_faults
from healthd.core.recovery.gang import Ending, GangView, Root, left_stopped
from healthd.core.recovery.progress import advance
from healthd.core.recovery.recovery_status import label_value
from healthd.core.recovery.resume_point import (
    ASK_AGAIN,
    await_answer,
    await_read,
    choose_checkpoint,
    doubted,
    tell_unread,
    unread,
    why_unread,
)
from healthd.gangs.adapter import GangAdapter
from healthd.telemetry.events import WARNING, Announce, about, about_gang, silently
from healthd.telemetry.isolation import Isolation
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger()

MOVES = 32
"""Most moves in one reconcile. A recovery has about twenty in all; more in one go means that something undoes them."""
SOON = timedelta(milliseconds=1)
"""There is nothing to wait for, but other gangs come first."""
RETRY, RETRY_MOST = timedelta(seconds=1), timedelta(seconds=30)
"""Backoff after an error with one gang: the first wait, and the longest; doubled in between."""
FRESH = timedelta(seconds=30)
"""How long a verification stays valid until the gang resumes from it: the program may remove old checkpoints."""
SLOW = timedelta(seconds=10)
"""A verification that takes longer is reported."""
HEAR_AGAIN = timedelta(milliseconds=20)
"""How often the reports of the witnesses are read while a recovery waits for them; an answer takes less time."""
MAY_BE_HARDWARE = frozenset({Phase.STOPPING, Phase.FENCING, Phase.CHOOSING})
"""Phases in which the cause is not yet settled."""
MAY_WAIT_UNSEEN = frozenset({Phase.STOPPING, Phase.STARTING, Phase.CONFIRMING})
"""Phases with many events that change nothing: the cached view shows that a recovery must wait, with no fresh read."""


class Reconciler:
    """
    Guards every gang with the annotation `healthd.dev/restart: enabled`.

    With a *cluster_state* that a watch feeds, this only reconciles. Without one, each cycle reads everything from
    *informer*, which may be stale, or from *cluster*. Decisions use reads from *cluster*, and every write has a
    precondition.
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
        cluster_state: ClusterState | None = None,
        informer: Reader | None = None,
        activity: Activity | None = None,
        witnesses: Witnesses | None = None,
        foreign: ForeignPolicy | None = None,
        look_every: timedelta = timedelta(seconds=10),
        together: GatherReads = one_by_one,
        jitter: Jitter = no_jitter,
        announce: Announce = silently,
    ) -> None:
        self.cluster_state = cluster_state or ClusterState(adapters)
        self._is_fed = cluster_state is not None
        self._cluster = cluster
        self._clock = clock
        self._informer = informer or cluster
        self._adapters = adapters
        self._checkpoints = checkpoints
        self._activity = activity or NoActivity()
        self._witnesses = witnesses or UnknownWitnesses()
        self._recovery = recovery
        self._hang = hang
        self._foreign = foreign_signs.rules_of(foreign or ForeignPolicy())
        self._metrics = metrics
        self._look_every = look_every
        self._jitter = jitter
        self._announce = announce
        self._fresh_reader = FreshReader(cluster, self.cluster_state, adapters, together, self._faults)
        self._isolation = Isolation(metrics)
        self.reads = CheckpointReads(clock, self.cluster_state.dirty_keys.add, jitter)
        """The caller of `reconcile_all` or `reconcile` must run these, too."""
        self._garbage_collector = GarbageCollector(
            cluster, self.cluster_state, self._fresh_reader, adapters, self._isolation
        )
        self._ready_at: dict[GangKey, datetime] = {}
        self._in_progress: set[GangKey] = set()
        self._failing: dict[GangKey, Backoff] = {}
        self._ignored: dict[str, str] = {}
        """By uid of the root: the reason that was last logged."""
        self._of_unknown_kinds: set[GangRef] = set()
        """Gangs of which it was logged that their kind is unknown."""
        self._unsure: set[str] = set()
        """Uids of gangs that may hang, while their store cannot be read to confirm it."""
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
            await read_everything(self._informer, self.cluster_state, self._adapters)

    def ready_keys(self, now: datetime) -> list[GangKey]:
        """The gangs to reconcile now: the dirty ones, and those whose time has come."""
        for key in self.cluster_state.dirty_keys:
            if self.cluster_state.gangs(key) or self.cluster_state.rootless(key):
                self._ready_at[key] = min(now, self._ready_at.get(key, now))
        self.cluster_state.dirty_keys.clear()
        return sorted(key for key, at in self._ready_at.items() if at <= now and key not in self._in_progress)

    def next_wakeup(self, now: datetime) -> timedelta:
        """How long until a gang is due, if nothing happens."""
        waiting = (at for key, at in self._ready_at.items() if key not in self._in_progress)
        first = min(waiting, default=now + self._look_every)
        return min(self._look_every, max(SOON, first - now))

    async def reconcile(self, key: GangKey, now: datetime) -> None:
        """Do what there is to do for one gang. An error with it does not affect the others."""
        self._ready_at.pop(key, None)
        self._in_progress.add(key)
        try:
            wait = await self._reconcile_key(key)
        finally:
            self._in_progress.discard(key)
        if wait is not None:
            # A change in the meantime has already made the gang due again.
            self._ready_at[key] = min(now + wait, self._ready_at.get(key, now + wait))

    async def _reconcile_key(self, key: GangKey) -> timedelta | None:
        """Returns when to reconcile again; None for a gang that healthd no longer manages."""
        gangs, rootless = self.cluster_state.gangs(key), self.cluster_state.rootless(key)
        self.reads.drop_others(key, gangs)
        if not gangs and not rootless:
            self._failing.pop(key, None)
            return None
        try:
            if rootless:
                await self._adapters[key.kind].discover(self._cluster, key.namespace, key.name, rootless)
            wait = min([await self._reconcile_gang(gang) for gang in gangs], default=self._look_every)
        except (ClusterError, OSError) as error:
            log.warning("gang.retry", gang=key.name, error=str(error), kind=type(error).__name__)
            return self._retry(key)
        except Exception as error:  # a bug of ours with one gang must not leave the others unguarded
            log.exception("gang.failed", gang=key.name, namespace=key.namespace, error=str(error))
            self._isolation.count("gang")
            return self._retry(key)
        self._failing.pop(key, None)
        return wait

    def _retry(self, key: GangKey) -> timedelta:
        return self._failing.setdefault(key, Backoff(RETRY, RETRY_MOST, self._jitter)).next()

    async def _reconcile_gang(self, gang: GangRef) -> timedelta:
        if gang.kind not in self._adapters:
            if gang not in self._of_unknown_kinds:
                note = "this version of healthd cannot read it"
                log.error("gang.unknown_kind", gang=gang.name, kind=gang.kind, note=note)
            self._of_unknown_kinds.add(gang)
            return self._look_every
        with self.reads.attending(gang):
            return await self._reconcile_known(gang)

    async def _reconcile_known(self, gang: GangRef) -> timedelta:
        noticed = await self._cached_view(gang)
        self._report_ignored(noticed.root)
        await self._maintain(noticed)
        active = self.cluster_state.active(gang)
        if active is None:
            if not self._faults(noticed):
                await self._note_progress(noticed.root)
                return self._stagger(gang)
            active = await self._open(gang)
        return await self._advance(active) if active else self._look_every

    async def _maintain(self, noticed: GangView) -> None:
        """Do what a kind needs at every reconcile. On Conflict, another writer was faster and has done it."""
        if noticed.root is not None and not noticed.root.invalid:
            with suppress(Conflict, NotFound):
                await self._adapters[noticed.root.ref.kind].maintain(self._cluster, noticed.root, noticed.pods)

    def _report_ignored(self, root: Root | None) -> None:
        """Report once, in the log and on the root, why healthd does nothing to a gang that asks for restarts."""
        if root is None or root.ending is not Ending.NOT_ENDED:
            return
        why = "; ".join(root.invalid) or left_stopped(
            root, [r.metadata.name for r in self.cluster_state.of_gang(root.ref)]
        )
        if self._ignored.get(root.ref.uid, "") == why:
            return
        self._ignored[root.ref.uid] = why
        if why:
            log.warning("gang.left_alone", gang=root.ref.name, namespace=root.ref.namespace, why=why)
            gang = about_gang(root.ref, self._adapters[root.ref.kind].kind)
            reason = "GangInvalid" if root.invalid else "GangLeftStopped"
            self._announce(gang, WARNING, reason, f"healthd does nothing to this gang: {why}")

    def _stagger(self, gang: GangRef) -> timedelta:
        """Gangs with nothing to do are reconciled spread over time, not all at the same moment."""
        return self._look_every * (0.5 + zlib.crc32(gang.uid.encode()) % 512 / 1024)

    async def _cached_view(self, gang: GangRef) -> GangView:
        view = self.cluster_state.view(gang)
        if view.root is None:
            return view
        root = await self._adapters[gang.kind].complete(self._informer, view.root)
        return dataclasses.replace(view, root=root)

    # A recovery -----------------------------------------------------------------------------------------------------

    async def _open(self, gang: GangRef) -> Recovery | None:
        """Open a recovery for a gang that seems to need one. None: it does not need one, or may not have one now."""
        view = await self._fresh_reader.at_fault(gang)
        root, faults = view.root, self._faults(view)
        if root is None or not faults or root.ending is not Ending.NOT_ENDED or not root.options.restart:
            return None
        if faults[0].kind is CauseKind.HANG and not await self._is_silent(root):
            return None
        # Read last: another controller may have opened one while this one read, or was paused.
        earlier = await self._fresh_reader.recoveries(gang)
        active = next((each for each in earlier if each.status.phase not in ENDED), None)
        return active or await self._create(root, faults[0], earlier)

    async def _create(self, root: Root, cause: Cause, earlier: list[Recovery]) -> Recovery | None:
        others = {each.metadata.name for each in self.cluster_state.recoveries() if each.spec.gang.uid != root.ref.uid}
        wanted = open_recovery(root, cause, earlier, others)
        meta = msgspec.structs.replace(wanted.metadata, labels={LABEL_GANG: label_value(root.ref.name)})
        try:
            opened = await self._cluster.create(msgspec.structs.replace(wanted, metadata=meta))
        except AlreadyExists:
            # Another controller saw the same fault first and created this recovery.
            return None
        self.cluster_state.upsert(opened)
        log.warning("recovery.opened", recovery=opened.metadata.name, cause=cause.kind, why=cause.message)
        return opened

    async def _advance(self, active: Recovery) -> timedelta:
        """Advance a recovery until it has to wait."""
        is_fresh = False
        for _ in range(MOVES):
            if phase_of(active) in MAY_WAIT_UNSEEN and active.status.timeline and not self._fresh_reader.booted(active):
                view = await self._cached_view(active.spec.gang)
                decision = await self._decide(active, view)
                if decision.record is None and not decision.actions:
                    return self._wait(decision)
            snapshot = await self._fresh_reader.at_recovery(active, is_fresh=is_fresh)
            if snapshot.recovery is None:
                return self._look_every
            self.cluster_state.upsert(snapshot.recovery)
            if snapshot.awaited:
                log.info("gang.waiting_for_termination", recovery=active.metadata.name, pods=len(snapshot.awaited))
                return RETRY
            decision = await self._decide(snapshot.recovery, snapshot.view)
            if decision.actions == (ReadAhead(),) and snapshot.root is not None:
                await self._ask_for_checkpoint(snapshot.recovery, snapshot.root)
                is_asked = self._witnesses.ask(stopped_at(snapshot.recovery))
                return min(self._wait(decision), HEAR_AGAIN) if is_asked else self._wait(decision)
            if decision.actions == (FindCheckpoint(),) and snapshot.root is not None:
                decision = await self._find_checkpoint(snapshot.recovery, snapshot.root)
            if decision.record is None and not decision.actions:
                return self._wait(decision)
            active, is_fresh = await self._execute(decision, snapshot.recovery, snapshot), decision.record is not None
        return SOON

    def _wait(self, decision: Decision) -> timedelta:
        return self._look_every if decision.recheck is None else max(decision.recheck, SOON)

    async def _decide(self, active: Recovery, view: GangView) -> Decision:
        view = self._with_newest(view, active)
        now = self._clock.now()
        view = dataclasses.replace(
            self._with_signs(view, now), busy=self.cluster_state.busy_nodes(), is_silent=silence(view.health, now)
        )
        decision = decide(active, view, self._faults(view), self._recovery, now, self._refusal(active, view, now))
        if view.root is not None and decision.record is None and not decision.actions:
            return tell_unread(active, self._why_unread(view.root, active)) or decision
        return decision

    def _why_unread(self, root: Root, active: Recovery) -> str | None:
        """Why the checkpoints of a started gang cannot be read; None when they have not been read."""
        read = self._read_newer(root, active)
        if read is None or read.ended is None or read.is_passing:
            return None
        return why_unread(root, unread(root, read.error) if read.error else read.answer.rejected)

    def _refusal(self, active: Recovery, view: GangView, now: datetime) -> str:
        """Why the breaker holds this recovery; empty when it does not, or has let it through before."""
        if active.status.let_through is not None:
            return ""
        known, outage = self.cluster_state.recoveries(), self._outage(now)
        return breaker.refuses(active, known, outage, self._recovery, now, view.terms)

    def _outage(self, now: datetime) -> breaker.Outage:
        return breaker.outage_of(self.cluster_state.nodes.values(), self.cluster_state.health, self._recovery, now)

    async def _execute(self, decision: Decision, active: Recovery, snapshot: Snapshot) -> Recovery:
        """Write or do what was decided. Returns the recovery as it is afterwards. Raises ClusterError."""
        if decision.record is not None:
            written = await record(self._cluster, active, decision.record, self._clock.now())
            self.cluster_state.upsert(written)
            with self._isolation.of("event", written.metadata.name):
                self._report_move(active, written)
            return written
        adapter = self._adapters[active.spec.gang.kind]
        for action in decision.actions:
            if isinstance(action, StartGang):
                active = await point_hint(self._cluster, active, await self._fresh_reader.recoveries(active.spec.gang))
                self.cluster_state.upsert(active)
            if not isinstance(action, FindCheckpoint | ReadAhead):
                changed = await perform(self._cluster, action, recovery=active, view=snapshot.view, adapter=adapter)
                if changed is not None:
                    self.cluster_state.upsert(changed)
        log.info("recovery.acted", recovery=active.metadata.name, did=decision.reason)
        return active

    async def _find_checkpoint(self, active: Recovery, root: Root) -> Decision:
        """The decision that follows from a read of the checkpoints; it is to wait until there is a read."""
        read, previous = await self._ask_for_checkpoint(active, root)
        if read is not None and read.ended is None:
            return self._await_read(read, active)
        answer = self._answer_of(read, root)
        if answer is None:
            return Decision(reason="the checkpoints are read again in a moment", recheck=ASK_AGAIN)
        if read is not None and answer.pending:
            self.reads.again(read, ASK_AGAIN)
            return await_answer(active, answer.pending)
        now = self._clock.now()
        decision = choose_checkpoint(active, root, answer.found, answer.rejected, previous, self._recovery, now)
        if read is not None and decision.record is not None and decision.record.phase is not Phase.HELD:
            self.reads.use(read)
        return decision

    async def _ask_for_checkpoint(self, active: Recovery, root: Root) -> tuple[Read | None, Recovery | None]:
        """The read of the checkpoints to resume from, and the gang's recovery before this one."""
        known = await self._fresh_reader.recoveries(root.ref)
        earlier = [each for each in known if each.metadata.name != active.metadata.name]
        previous = earlier[0] if earlier else None
        read = self._read(Purpose.RESUME, root, active, doubted=doubted(active, previous), every=self._look_every)
        return read, previous

    def _await_read(self, read: Read, active: Recovery) -> Decision:
        waited = self._clock.now() - read.asked
        if waited < SLOW:
            return Decision(reason="the checkpoints are being read", recheck=SLOW - waited)
        decision = await_read(active, read.question.location, SLOW)
        if decision.record is not None:
            self._announce(about(active), WARNING, "CheckpointsSlow", decision.reason)
        return decision

    def _answer_of(self, read: Read | None, root: Root) -> CheckpointAnswer | None:
        """The result of a read that ended; None when there is no result, or it is too old."""
        if read is None or read.ended is None:
            return None if root.options.checkpoint else CheckpointAnswer(None, [])
        if read.error:
            return None if read.is_passing else CheckpointAnswer(None, unread(root, read.error))
        answer: CheckpointAnswer = read.answer
        return answer if self._clock.now() - read.ended <= FRESH or answer.found is None else None

    def _with_newest(self, view: GangView, active: Recovery) -> GangView:
        """*view* with a newer complete checkpoint, where a new step would end the recovery, and signs of life."""
        if phase_of(active) in MAY_BE_HARDWARE and active.status.timeline:
            self._witnesses.ask(stopped_at(active))  # early: the answer is needed when all ranks have ended
        view = dataclasses.replace(self._with_activity(view), heard=self._witnesses.heard)
        read = self._read_newer(view.root, active) if view.root else None
        answer = read.answer if read and read.ended else None
        return dataclasses.replace(view, newest=answer.found if answer else None)

    def _read_newer(self, root: Root, active: Recovery) -> Read | None:
        """The read of checkpoints newer than the loaded one; None while the gang does not run with the loaded one."""
        if active.status.phase is not Phase.CONFIRMING:
            return None
        resumed_at = active.status.checkpoint.step if active.status.checkpoint else -1
        newer_than = resumed_at if resumed_at >= 0 else None
        # Read again soon: until progress of the gang is seen, another fault belongs to the same recovery.
        every = min(ASK_AGAIN, self._look_every / 2)
        return self._read(Purpose.CONFIRM, root, active, newer_than, active.status.doubted, every=every)

    def _read(
        self,
        purpose: Purpose,
        root: Root,
        recovery: Recovery,
        newer_than: int | None = None,
        doubted: Sequence[ChosenCheckpoint] = (),
        *,
        every: timedelta,
    ) -> Read | None:
        """The read of checkpoints that will load; None for a gang without a checkpoint location."""
        if not root.options.checkpoint:
            return None
        work = partial(self._checkpoints.latest, root, newer_than, recovery, doubted)
        question = question_of(purpose, root, recovery, newer_than, doubted)
        return self.reads.ask(root.ref, question, work, every=every)

    def _faults(self, view: GangView) -> list[Cause]:
        now = self._clock.now()
        return find_faults(self._with_activity(self._with_signs(view, now)), self._hang, now)

    def _with_activity(self, view: GangView) -> GangView:
        """*view* with the time of its members' last activity."""
        last, work = self._activity.last(view.pods), self._activity.last_work(view.pods)
        return dataclasses.replace(view, last_activity=last, last_work=work)

    def _with_signs(self, view: GangView, now: datetime) -> GangView:
        """*view* with what other detectors say about the nodes."""
        return dataclasses.replace(view, sign_on=foreign_signs.reader(view.nodes, self._foreign, now))

    # Progress -------------------------------------------------------------------------------------------------------

    async def _note_progress(self, root: Root | None) -> None:
        """Record a step that a read has shown, and read again, at most once per `look_every`."""
        if root is None or root.invalid or not root.options.checkpoint or root.suspended:
            return
        read = self._read_step(Purpose.PROGRESS, root)
        if read is None or read.ended is None or read.error:
            return
        if read.known == root.progress.step:  # else a newer step was recorded after this read began
            await self._note_step(root, read)
        self.reads.use(read)

    async def _is_silent(self, root: Root) -> bool:
        """
        Whether the store, read after the silence was suspected, shows the recorded step and no other.

        The recorded step may be old because there was no read: no controller ran, or the store did not answer.
        """
        read = self._read_step(Purpose.SILENCE, root)
        if read is None or read.ended is None:
            return False
        self._report_unsure(root, read.error)
        if read.error:
            return False
        await self._note_step(root, read)
        self.reads.use(read)
        return bool((-1 if read.answer is None else read.answer) == root.progress.step)

    def _report_unsure(self, root: Root, why: str) -> None:
        """Report once that a gang may hang, and that this is not certain while its store does not answer."""
        if why and root.ref.uid not in self._unsure:
            message = f"it may hang, but its checkpoints cannot be read, so healthd does not restart it: {why}"
            log.warning("gang.may_hang", gang=root.ref.name, namespace=root.ref.namespace, why=why)
            self._announce(about_gang(root.ref, self._adapters[root.ref.kind].kind), WARNING, "GangMayHang", message)
        (self._unsure.add if why else self._unsure.discard)(root.ref.uid)

    def _read_step(self, purpose: Purpose, root: Root) -> Read | None:
        """Read the newest step by its name. The gang's usual interval is learned from the times of these reads."""
        since = root.progress.step if purpose is Purpose.SILENCE else None
        question = question_of(purpose, root, newer_than=since)
        known = root.progress.step if purpose is Purpose.PROGRESS else None
        work = partial(self._checkpoints.newest_step, root)
        return self.reads.ask(root.ref, question, work, every=self._look_every / 2, known=known)

    async def _note_step(self, root: Root, read: Read) -> None:
        """Record the step that was read, if it differs from the one before."""
        if read.answer is None:
            return
        # The store may take minutes to answer; the step is dated by the end of the read.
        progress = advance(root.progress, read.answer, root.attempt, read.ended or self._clock.now())
        if progress != root.progress:
            note = {ANNOTATION_PROGRESS: msgspec.json.encode(progress).decode()}
            await self._adapters[root.ref.kind].note(self._cluster, root, note)

    # Everything else -------------------------------------------------------------------------------------------------

    async def collect_garbage(self, now: datetime) -> None:
        """Release what recoveries and ended gangs still hold, and set the gauges. What fails is done next time."""
        is_time = self._collected is None or now - self._collected >= timedelta(seconds=1)
        if is_time:
            self._collected = now
            watched = self.cluster_state.watched()
            self._ready_at |= {
                key: now for key in watched if key not in self._ready_at and key not in self._in_progress
            }
            uids = {root.ref.uid for root in self.cluster_state.roots.values()}
            self._unsure &= uids
            self._ignored = {uid: why for uid, why in self._ignored.items() if why and uid in uids}
        try:
            with self._isolation.of("tidy", "the cluster"):
                await self._garbage_collector.tidy(lambda nodes: foreign_signs.reader(nodes, self._foreign, now))
                if is_time:
                    await self._garbage_collector.forget_old(self._recovery, now)
                self._metrics.loop_succeeded("controller", now)
        except ClusterError as error:
            log.info("tidy.retry", error=str(error))
        if is_time:  # last: metrics must not delay the work
            with self._isolation.of("metrics", "the cluster"):
                measure_world(self._metrics, self.cluster_state)
                self._measure_breaker(now)

    def _measure_breaker(self, now: datetime) -> None:
        """Less often than the other gauges: it reads every node."""
        if self._measured is None or now - self._measured >= self._look_every:
            self._measured = now
            over = breaker.open_over(self.cluster_state.recoveries(), self._outage(now), self._recovery, now)
            self._metrics.show_breaker(over)

    def _report_move(self, before: Recovery, after: Recovery) -> None:
        adapter = self._adapters[after.spec.gang.kind]
        emit_events(self._announce, before, after, adapter, self.cluster_state.nodes.get)
        for refused in after.status.rejected:
            if refused not in before.status.rejected:
                log.warning("checkpoint.rejected", path=refused.path, step=refused.step, why=refused.reason)
        if after.status.phase is before.status.phase:
            return
        log.info("recovery.phase", recovery=after.metadata.name, phase=after.status.phase, why=after.status.message)
        measure_move(self._metrics, before, after)
