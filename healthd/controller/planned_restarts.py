"""
When a gang without a fault is restarted by healthd's own choice, right after a save: to leave nodes before their
maintenance or because a rank is slow there, or to grow back (`healthd.core.recovery.planned.restarts`).

The record of what a gang has left out is in the cluster. What this process remembers is since when there have been
nodes for it: after a change of the leader that is counted anew.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.checkpoints.background_reads import CheckpointReads, ReadPurpose, question_of
from healthd.controller.fresh_reads import FreshReader
from healthd.controller.observer import Snapshot
from healthd.controller.ports import Checkpoints
from healthd.controller.refused_claims import RefusedClaims
from healthd.core.api import Cause, Shrunk
from healthd.core.api.model import CauseKind
from healthd.core.config import RecoveryPolicy
from healthd.core.node.reporting import silence
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.members import members
from healthd.core.recovery.planned.growth import cause_to_grow, may_grow, recorded, room
from healthd.core.recovery.planned.moving import cause_to_move, nodes_to_leave, nodes_to_move_to
from healthd.core.recovery.planned.restarts import is_due, may_leave, recently_saved
from healthd.core.recovery.planned.slow_nodes import left_slow


class PlannedRestarts:
    """Finds the gangs that are to be restarted now. It only reads."""

    def __init__(
        self,
        cluster_state: ClusterState,
        fresh_reader: FreshReader,
        reads: CheckpointReads,
        checkpoints: Checkpoints,
        policy: RecoveryPolicy,
        refused_claims: RefusedClaims,
    ) -> None:
        self._cluster_state = cluster_state
        self._refused_claims = refused_claims
        self._fresh_reader = fresh_reader
        self._reads = reads
        self._checkpoints = checkpoints
        self._policy = policy
        self._since: dict[str, datetime] = {}
        """By uid of the root: since when there have been nodes for members that are left out."""
        self._refused: dict[str, int] = {}
        """By uid of the root: the step whose checkpoint is not the newest that will load."""

    def forget_others(self, uids: Collection[str]) -> None:
        """Forget what is known of gangs that are not in *uids*."""
        self._since = {uid: at for uid, at in self._since.items() if uid in uids}
        self._refused = {uid: step for uid, step in self._refused.items() if uid in uids}

    async def cause(self, seen: Snapshot) -> Cause | None:
        """Why the gang of *seen*, which has no fault, is restarted now; None: it is not. Raises ClusterError."""
        root = seen.root
        if root is None or root.invalid or root.suspended or not root.options.restart:
            return None
        cause = await self._to_move(CauseKind.MAINTENANCE, seen, root)
        if cause is not None or self._left_out(root) is not None:
            return cause or await self._to_grow(seen, root)  # before a slow rank, which works at least
        return await self._to_move(CauseKind.STRAGGLER, seen, root)

    async def _to_move(self, kind: CauseKind, seen: Snapshot, root: Root) -> Cause | None:
        departures = nodes_to_leave(kind, seen.view)
        if not departures or not may_leave(departures, self._cluster_state.of_gang(root.ref), self._policy, seen.now):
            return None
        view = self._with_surroundings(seen.view, seen.now)
        spares = nodes_to_move_to(departures, view, self._policy)
        if not spares or not self._is_time(view, root, seen.now):
            return None
        occupied = await self._fresh_reader.occupied(list(spares.values()), view.nodes)
        spares = nodes_to_move_to(departures, replace(view, occupied=occupied), self._policy)
        return cause_to_move(kind, departures, spares, seen.now) if spares else None

    async def _to_grow(self, seen: Snapshot, root: Root) -> Cause | None:
        now, shrunk = seen.now, self._left_out(root)
        if shrunk is None:
            return None
        view = self._with_surroundings(seen.view, now)
        if not room(view, shrunk, self._policy):
            self._since.pop(root.ref.uid, None)
            return None
        since = self._since.setdefault(root.ref.uid, now)
        if now - since < self._policy.grow_after or not self._is_time(view, root, now):
            return None
        view = replace(view, occupied=await self._fresh_reader.occupied(room(view, shrunk, self._policy), view.nodes))
        nodes = room(view, shrunk, self._policy)
        return cause_to_grow(nodes, shrunk, root, now) if nodes else None

    def _is_time(self, view: GangView, root: Root, now: datetime) -> bool:
        """Whether a restart costs next to nothing now. Asks for the read that shows it."""
        is_calm = is_due(self._cluster_state.of_gang(root.ref), self._policy, now) and _all_run(view)
        return is_calm and recently_saved(root, now) and self._is_verified(root)

    def _left_out(self, root: Root) -> Shrunk | None:
        """What the gang has left out and may have again; its recoveries are looked through only where it may grow."""
        return recorded(self._cluster_state.of_gang(root.ref), root) if may_grow(root) else None

    def _with_surroundings(self, view: GangView, now: datetime) -> GangView:
        """*view* with the nodes that others use, or will use when their recovery starts them again."""
        statuses = [each.status for each in self._cluster_state.active_recoveries()]
        coming = {name for each in statuses for name in (*each.placement.values(), *(pod.node for pod in each.pods))}
        busy = self._cluster_state.busy_nodes() | coming
        left = left_slow(self._cluster_state.recoveries(), view.nodes)
        unclaimable = self._refused_claims.now(now)
        return replace(view, busy=busy, left_slow=left, unclaimable=unclaimable, is_silent=silence(view.health, now))

    def _is_verified(self, root: Root) -> bool:
        """
        Whether the newest step that was seen is that of a checkpoint that will load. Asks for the read that shows it.

        Where steps cannot be read by name, only checked saves are known (`recently_saved`).
        """
        step = root.progress.step
        if step < 0:
            return True
        if self._refused.get(root.ref.uid) == step:
            return False
        work = partial(self._checkpoints.latest, root)
        question = question_of(ReadPurpose.PLANNED_RESTART, root, newer_than=step)
        read = self._reads.ask(root.ref, question, work, every=self._policy.look_every)
        if read is None or read.ended is None:
            return False
        found = None if read.error else read.answer.found
        if found is not None and found.step >= step:
            return True
        self._refused[root.ref.uid] = step
        return False

    def awaits(self, root: Root | None) -> bool:
        """Whether a read for this gang is on its way: its progress is read after that."""
        return root is not None and self._reads.is_asked(root.ref, ReadPurpose.PLANNED_RESTART)


def _all_run(view: GangView) -> bool:
    running = sum(pod.status.phase == "Running" for pod in members(view))
    return view.root is not None and running >= view.root.world
