"""
Makes the snapshot of one gang: everything that a decision about it may read, put together in this one place.

A snapshot comes from the cache (`cached`) or from fresh reads (`at_fault`, `at_recovery`). The cache shows whether
there is anything to do. What is done is decided on a fresh snapshot (`healthd.controller.fresh_reads`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.checkpoints.recovery_reads import RecoveryReads
from healthd.controller.dependencies import ReconcilerDependencies
from healthd.controller.fresh_reads import FreshReader, phase_of
from healthd.controller.rebuilds import Rebuilds
from healthd.controller.refused_claims import RefusedClaims
from healthd.core.api import Cause, GangRef, Recovery
from healthd.core.api.model import Phase
from healthd.core.config import Config
from healthd.core.config.gangs import SilenceMode, StragglerMode
from healthd.core.hang.straggler import Straggler
from healthd.core.node.reporting import silence
from healthd.core.recovery.decide import stopped_at
from healthd.core.recovery.faults import find_faults
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.hangs.gang_silence import ObservedSilence, mode_of, observed_silence, to_restart_for
from healthd.core.recovery.hangs.gang_stragglers import straggler_mode_of
from healthd.core.recovery.hangs.suspicion import waits_in_same_place
from healthd.core.recovery.nodes import foreign_signs
from healthd.core.recovery.planned.slow_nodes import left_slow, to_swap_for

MAY_BE_HARDWARE = frozenset({Phase.STOPPING, Phase.FENCING, Phase.CHOOSING})
"""Phases in which the cause is not yet settled."""
MAY_WAIT_UNSEEN = frozenset({Phase.STOPPING, Phase.STARTING, Phase.CONFIRMING})
"""Phases with many events that change nothing: the cache shows that a recovery must wait, with no fresh read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One gang as it is *now*, or as it was at the last update of the cache."""

    now: datetime
    view: GangView
    recovery: Recovery | None = None
    """The recovery that is decided on; None: there is none, or it has ended."""
    faults: tuple[Cause, ...] = ()
    """What is wrong with the present attempt of the gang; the most significant fault first."""
    silence: ObservedSilence | None = None
    """All ranks are silent by the reports of their agents; None also where that is to be ignored."""
    awaited: tuple[str, ...] = ()
    """Deleted pods whose last state has not come yet."""

    @property
    def root(self) -> Root | None:
        """The root of the gang; None: it is gone."""
        return self.view.root


class Observer:
    """Observes one gang after the other. The searches for checkpoints that a snapshot needs begin here (*reads*)."""

    def __init__(
        self,
        dependencies: ReconcilerDependencies,
        cluster_state: ClusterState,
        config: Config,
        reads: RecoveryReads,
        rebuilds: Rebuilds,
        refused_claims: RefusedClaims,
    ) -> None:
        self._refused_claims = refused_claims
        self._clock = dependencies.clock
        self._adapters = dependencies.adapters
        self._reader = dependencies.reader
        self._activity = dependencies.activity
        self._witnesses = dependencies.witnesses
        self._slow_ranks = dependencies.slow_ranks
        self._cluster_state = cluster_state
        self._hang = config.hang
        self._foreign = foreign_signs.rules_of(config.foreign)
        self._reads = reads
        self.fresh_reader = FreshReader(
            dependencies.cluster,
            cluster_state,
            dependencies.adapters,
            dependencies.together,
            self._faults_now,
            rebuilds,
        )

    async def cached(self, gang: GangRef, recovery: Recovery | None) -> Snapshot:
        """The gang as the cache shows it. Good enough to wait, and to suspect a fault. Raises ClusterError."""
        view = self._cluster_state.view(gang)
        if view.root is not None:
            view = replace(view, root=await self._adapters[gang.kind].complete(self._reader, view.root))
        return self._snapshot(view, recovery)

    async def at_fault(self, gang: GangRef) -> Snapshot:
        """Read a gang again that has no recovery and seems to need one. Raises ClusterError."""
        return self._snapshot(await self.fresh_reader.at_fault(gang), None)

    async def at_recovery(self, noticed: Recovery, *, is_fresh: bool) -> Snapshot:
        """
        Read a gang again that is in recovery. Raises ClusterError.

        With *is_fresh*, *noticed* is the answer to our own write: after a newer write, our next one gets Conflict.
        """
        read = await self.fresh_reader.at_recovery(noticed, self._clock.now(), is_fresh=is_fresh)
        if read.recovery is None:
            return Snapshot(now=self._clock.now(), view=read.view)
        self._cluster_state.upsert(read.recovery)
        view = await self._with_resume_point(read.view, read.recovery)
        return dataclasses.replace(self._snapshot(view, read.recovery), awaited=read.awaited)

    def may_wait_unseen(self, recovery: Recovery) -> bool:
        """Whether a cached snapshot is good enough to see that *recovery* has to wait."""
        is_under_way = phase_of(recovery) in MAY_WAIT_UNSEEN and bool(recovery.status.timeline)
        return is_under_way and not self.fresh_reader.booted(recovery)

    def _snapshot(self, view: GangView, recovery: Recovery | None) -> Snapshot:
        now = self._clock.now()
        silence = self._silence_of(view, now)
        if silence is not None and recovery is not None and waits_in_same_place(recovery.status):
            silence = silence._replace(doubt="")  # nothing is restarted for it: a report that grew old ends no wait
        view = self._with_signs(view, silence, now)
        if recovery is not None:
            view = self._with_surroundings(view, recovery, now)
        faults = tuple(find_faults(view, self._hang, now))
        return Snapshot(now=now, view=view, recovery=recovery, faults=faults, silence=silence)

    def _faults_now(self, view: GangView) -> list[Cause]:
        now = self._clock.now()
        return find_faults(self._with_signs(view, self._silence_of(view, now), now), self._hang, now)

    def _silence_of(self, view: GangView, now: datetime) -> ObservedSilence | None:
        if view.root is None or mode_of(view.root, self._hang) is SilenceMode.IGNORE:
            return None
        return observed_silence(view, self._hang, now)

    def _with_signs(self, view: GangView, silence: ObservedSilence | None, now: datetime) -> GangView:
        """*view* with its members' signs of life and slow ranks, and what other detectors say about its nodes."""
        sampled = self._activity.silence(view.pods)
        return replace(
            view,
            slow=to_swap_for(view, self._slow(view.root), self._hang, now),
            last_activity=self._activity.last(view.pods),
            last_work=self._activity.last_work(view.pods),
            usual_work=self._activity.usual_work(view.pods),
            inactive_for=self._activity.inactive_for(view.pods),
            missed_since=self._activity.missed_since,
            silence=sampled or to_restart_for(view.root, silence, self._hang),
            sign_on=foreign_signs.reader(view.nodes, self._foreign, now),
        )

    def _slow(self, root: Root | None) -> Sequence[Straggler]:
        """Most gangs are not to be moved for slow ranks, so nothing is asked about them."""
        may_move = root is not None and straggler_mode_of(root, self._hang) is StragglerMode.SWAP
        return self._slow_ranks(root) if root is not None and may_move else ()

    def _with_surroundings(self, view: GangView, recovery: Recovery, now: datetime) -> GangView:
        """*view* with what only a recovery asks for."""
        # Asked early: the answer is needed when all ranks have ended.
        may_be_hardware = phase_of(recovery) in MAY_BE_HARDWARE and bool(recovery.status.timeline)
        return replace(
            view,
            busy=self._cluster_state.busy_nodes(),
            unclaimable=self._refused_claims.now(now),
            left_slow=left_slow(self._cluster_state.recoveries(), view.nodes),
            is_silent=silence(view.health, now),
            witness_report=self._witnesses.witness_report,
            reports_pending=may_be_hardware and self._witnesses.ask(stopped_at(recovery)),
            newer=self._reads.newer(view.root, recovery) if view.root else None,
        )

    async def _with_resume_point(self, view: GangView, recovery: Recovery) -> GangView:
        """*view* with the search for the checkpoint to resume from, in the phase that needs it."""
        root = view.root
        if root is None or root.invalid or phase_of(recovery) is not Phase.CHOOSING:
            return view
        known = await self.fresh_reader.recoveries(root.ref)
        previous = next((each for each in known if each.metadata.name != recovery.metadata.name), None)
        return replace(view, previous=previous, resume=self._reads.resume(root, recovery, previous))
