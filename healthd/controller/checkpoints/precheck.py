"""
Check the checkpoints of running gangs, at a slow pace, and report what a fault would cost, before there is a fault.

This runs apart from the reconcile loop, because a store may be slow, and no fault must wait for it. The results are
stored on the root of the gang, so the next leader knows them. No decision uses them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec
import structlog

from healthd.clock import Clock
from healthd.cluster.port import Cluster, ClusterError, Conflict, NotFound
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.checkpoints.declaration import misdeclared
from healthd.controller.ports import Looker
from healthd.core.api import ANNOTATION_SAVES
from healthd.core.api.save_stats import NO_SAVES, Saves
from healthd.core.checkpoint.precheck import (
    Worry,
    changes_in,
    is_checked,
    lost_work,
    refusing,
    refusing_if_emptied,
    take_report,
    take_silence,
    usual_interval,
    worries,
)
from healthd.core.checkpoint.verification import VerificationReport
from healthd.core.config import PrecheckPolicy
from healthd.core.fair_shares import may_begin
from healthd.core.recovery.gang import Root
from healthd.gangs.adapter import GangAdapter
from healthd.telemetry.events import NORMAL, WARNING, Announce, about_gang, silently
from healthd.telemetry.metrics import GangSaves, Metrics

log = structlog.get_logger()

AT_ONCE = 4
"""Gangs that are checked at the same time, as `core.fair_shares` counts them: file servers have other work."""
TICK = timedelta(seconds=5)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrecheckDependencies:
    """What the checks of running gangs get from outside."""

    cluster: Cluster
    clock: Clock
    cluster_state: ClusterState
    """The gangs to check."""
    adapters: Mapping[str, GangAdapter[Any]]
    looker: Looker
    metrics: Metrics
    announce: Announce = silently


class Prechecks:
    """Checks every gang of the cluster state once in `policy.every`, while the gang has no active recovery."""

    def __init__(self, policy: PrecheckPolicy, dependencies: PrecheckDependencies) -> None:
        self._policy = policy
        self._cluster = dependencies.cluster
        self._clock = dependencies.clock
        self._cluster_state = dependencies.cluster_state
        self._adapters = dependencies.adapters
        self._looker = dependencies.looker
        self._metrics = dependencies.metrics
        self._announce = dependencies.announce
        self._due: dict[str, datetime] = {}
        self._under_way: dict[str, str] = {}
        """Gangs whose check runs now: uid to namespace."""

    async def run(self) -> None:
        """Run until cancelled."""
        if not self._policy.enabled:
            return
        async with asyncio.TaskGroup() as tasks:
            while True:
                for root in self._start(self._clock.now()):
                    tasks.create_task(self._check_safely(root), name=f"precheck {root.ref.name}")
                self._show_safely(self._clock.now())
                self._metrics.loop_succeeded("precheck", self._clock.now())
                await self._clock.sleep(TICK)

    def _checked(self) -> dict[str, Root]:
        """The gangs that run and could be resumed from a checkpoint."""
        roots = [root for root in self._cluster_state.roots.values() if is_checked(root)]
        return {root.ref.uid: root for root in roots if self._cluster_state.active(root.ref) is None}

    def _start(self, now: datetime) -> list[Root]:
        """The gangs to check now. Many gangs are spread over time."""
        checked = self._checked()
        self._due = {uid: self._due.get(uid) or now + self._spread(uid) for uid in checked}
        waiting = sorted((at, uid) for uid, at in self._due.items() if at <= now and uid not in self._under_way)
        chosen: list[str] = []
        for _, uid in waiting:
            namespace = checked[uid].ref.namespace
            if may_begin(namespace, [*self._under_way.values()], AT_ONCE):
                self._under_way[uid] = namespace
                chosen.append(uid)
        self._due |= dict.fromkeys(chosen, now + self._policy.every)
        return [checked[uid] for uid in chosen]

    def _spread(self, uid: str) -> timedelta:
        return self._policy.every * (zlib.crc32(uid.encode()) % 256 / 256)

    async def _check_safely(self, root: Root) -> None:
        gang = root.ref.name
        try:
            await self._check(root)
        except ClusterError as error:
            log.info("precheck.retry", gang=gang, error=str(error))
        except Exception as error:  # a bug of ours with one gang must not end the checks of the others
            log.exception("precheck.failed", gang=gang, error=str(error))
        finally:
            self._under_way.pop(root.ref.uid, None)

    async def _check(self, root: Root) -> None:
        """One check, and what follows from it. Raises ClusterError."""
        wrong = misdeclared(root)
        seen = refusing(root, wrong) if wrong else await self._read(root)
        before = self._checked().get(root.ref.uid)
        if seen is None or before is None:
            return
        now = self._clock.now()
        if isinstance(seen, str):
            report, saves = VerificationReport(), take_silence(before, seen, now)
        else:
            report = refusing_if_emptied(before, seen)
            saves = take_report(before.saves, report, now)
        root = dataclasses.replace(before, saves=saves)
        found = worries(root, report, self._policy, now, certain=bool(wrong))
        self._announce_changes(root, found)
        saves = msgspec.structs.replace(saves, concerns=[each.concern for each in found])
        if saves != before.saves:
            await self._note(root, saves)

    async def _read(self, root: Root) -> VerificationReport | str | None:
        """The report, or why the store did not answer; None when no check is possible. Raises ClusterError."""
        try:
            return await self._looker.report(root)
        except OSError as error:
            return str(error) or "the store does not answer"

    def _announce_changes(self, root: Root, found: Sequence[Worry]) -> None:
        began, over = changes_in(root.saves.concerns, found)
        about = about_gang(root.ref, self._adapters[root.ref.kind].kind)
        for worry in began:
            log.warning("checkpoint.worry", gang=root.ref.name, concern=worry.concern, why=worry.message)
            self._announce(about, WARNING, f"Checkpoint{worry.concern.capitalize()}", worry.message)
        for concern in over:
            log.info("checkpoint.worry_over", gang=root.ref.name, concern=concern)
            self._announce(about, NORMAL, f"Checkpoint{concern.capitalize()}Over", "the checkpoints are as they were")

    async def _note(self, root: Root, saves: Saves) -> None:
        """Store *saves* on the root, where the next leader and people find it."""
        note = {ANNOTATION_SAVES: msgspec.json.encode(saves).decode()}
        with suppress(NotFound, Conflict):
            await self._adapters[root.ref.kind].note(self._cluster, root, note)

    def _show_safely(self, now: datetime) -> None:
        try:
            self._show(now)
        except Exception as error:  # a failed metric must not stop the checks
            log.exception("precheck.not_shown", error=str(error))

    def _show(self, now: datetime) -> None:
        """Set the gauges; they change also between two checks."""
        known = [root for root in self._checked().values() if root.saves != NO_SAVES]
        self._metrics.show_saves(self._shown(root, now) for root in known)

    def _shown(self, root: Root, now: datetime) -> GangSaves:
        lost, usual = lost_work(root, now), usual_interval(root)
        good = root.saves.good
        return GangSaves(
            namespace=root.ref.namespace,
            gang=root.ref.name,
            saved=good[-1].at if good and not root.saves.none_loads else None,
            interval=usual,
            lost=lost,
            concerns=root.saves.concerns,
        )
