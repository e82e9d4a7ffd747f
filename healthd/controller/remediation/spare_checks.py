"""
The loop that checks idle spares: one at a time, in turns, each by a pod as after a repair.

It runs in a task of its own, beside the loops of gangs and of remediation, and no recovery waits for it. While a
recovery may need a spare, no check begins; one that runs on a spare that a recovery takes is ended at once. All that
matters is on record in the `NodeRemediation` of the spare: another controller goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

import structlog

from healthd.clock import Clock
from healthd.cluster.nodes import patch_node
from healthd.cluster.port import Cluster, ClusterError, Conflict, NotFound, Refused, Unusable
from healthd.cluster.waiting import first
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.remediation.node_checks import NodeChecks
from healthd.controller.remediation.observer import Observer
from healthd.controller.remediation.records import write_record
from healthd.controller.remediation.requests import CannotAsk, Requests, Subject
from healthd.core.api import Node, NodeHealth, NodeRemediation, NodeRemediationStatus, Pod
from healthd.core.api.kubernetes.gpu_names import GPU_RESOURCE
from healthd.core.api.names import ANNOTATION_FAILED_CHECK
from healthd.core.api.remediations import SpareCheckOutcome
from healthd.core.config import Config
from healthd.core.node.quarantine import read_record
from healthd.core.phrases import some
from healthd.core.recovery.gang import LastCheck
from healthd.core.recovery.nodes.wanted_spares import needs_a_spare, wanted_spares
from healthd.core.remediation.actions import DeleteCheck, StartCheck
from healthd.core.remediation.node_check import checked_attempt, leftovers_of, running_spare_check, spare_seen
from healthd.core.remediation.occupants import users_of
from healthd.core.remediation.situation import Decision
from healthd.core.remediation.spare_checks import SpareSituation, begun, followed, reported, taken_out
from healthd.core.remediation.spare_fleet import (
    Spare,
    doubted,
    has_failed,
    is_idle_spare,
    is_left_in,
    is_reported,
    next_number,
    next_spare,
    note_of,
    spare_to_take_out,
)
from healthd.telemetry.events import WARNING, Announce, about, silently
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger()

EVERY = timedelta(seconds=5)
"""Between two looks at a check that runs, and between two looks for the next spare."""
GAP = timedelta(milliseconds=250)
"""From a change to the look for it."""
LOAD_AGAIN = timedelta(minutes=1)
READ_AGAIN = timedelta(minutes=5)
"""Between two reads of all records: others write there as well."""
PAUSE = timedelta(minutes=10)
"""After something that could not be done, such as a right that is missing: nothing is in a hurry here."""
MOVES = 6
"""Most steps of one check at one look. More in one go means that something undoes them."""
FRESH = timedelta(seconds=15)
"""How old the reads before the creation of a pod may be: a process that stood still may have been deposed."""
STILL_TRUE = 2
"""For so many intervals a check that was passed speaks for a spare."""


class SpareChecks:
    """
    The checks of all idle spares. For one leader. It pauses while *trouble* says not to trust the cache. *wake* is set
    after each change of the cluster state.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        cluster_state: ClusterState,
        config: Config,
        requests: Requests,
        *,
        namespace: str,
        metrics: Metrics,
        announce: Announce = silently,
        trouble: Callable[[], str | None] = lambda: None,
        wake: asyncio.Event | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._cluster_state = cluster_state
        self._policy = config.remediation
        self._namespace = namespace
        self._metrics = metrics
        self._announce = announce
        self._trouble = trouble
        self._wake = wake or asyncio.Event()
        self._observer = Observer(cluster, clock, config, requests, namespace=namespace)
        self._checks = NodeChecks(cluster, config.remediation, requests.own_image)
        self._statuses: dict[str, NodeRemediationStatus] = {}
        """By node: what is on record, as of the last look at it."""
        self._read_at: datetime | None = None
        """When all of them were read last."""
        self._looked_at: datetime | None = None
        self._active: set[str] = set()
        """Nodes on which a check goes on, or whose last look did not come to its end."""
        self._next: dict[str, datetime] = {}
        """When each of them is looked at next, unless something comes first there."""
        self._not_before: dict[str, datetime] = {}
        """Spares that could not be checked when it was their turn: others come first."""
        self._errors: dict[str, str] = {}
        """By node: what went wrong at the last look. A lasting error is logged once."""
        self._said = ""
        """What was last reported of checks in doubt."""

    async def run(self) -> None:
        """Run until cancelled. Raises Unusable."""
        while not await self.load():
            await self._clock.sleep(LOAD_AGAIN)
        while True:
            self._wake.clear()
            if not self._trouble():
                try:
                    await self.look()
                except Unusable:
                    raise
                except Exception as error:  # checks of spares that fail must not stop the recoveries
                    log.exception("spare_checks.look_failed", error=str(error))
            if self._active:
                await first(self._wake.wait(), self._clock.sleep(EVERY))
                await self._clock.sleep(GAP)
            else:
                await self._clock.sleep(EVERY)

    async def load(self) -> bool:
        """Read what is on record. False where that failed."""
        try:
            listed = await self._cluster.list(NodeRemediation, namespace=self._namespace)
        except Unusable:
            raise
        except ClusterError as error:
            log.error("spare_checks.not_read", error=str(error), note="apply deploy/components/remediation")
            return False
        self._statuses = {one.metadata.name: one.status for one in listed.items if one.status.spare_check is not None}
        if self._read_at is None:
            self._active = set(self._statuses)  # each once: its last controller may have died
        self._active |= {name for name, status in self._statuses.items() if _goes_on(status)}
        self._read_at = self._clock.now()
        return True

    async def look(self) -> None:
        """Follow the checks that go on, take out what has failed, and begin the next check."""
        wanted = wanted_spares(self._cluster_state.active_recoveries())
        due = [name for name in sorted(self._active) if self._is_due(name, wanted.get(name, ""))]
        if not due and self._is_ahead(self._looked_again(), self._clock.now()):
            return
        self._looked_at = self._clock.now()
        for name in due:
            await self._guarded(name, self._follow)
        await self._write_notes()
        is_known = self._is_ahead(self._read_again(), self._clock.now()) or await self.load()
        if is_known and not self._active:
            await self._go_on(self._clock.now())
        self._show(self._clock.now())

    def _looked_again(self) -> datetime | None:
        """When all spares are looked at again. In a large cluster something changes all the time."""
        return self._looked_at + EVERY if self._looked_at is not None else None

    def _read_again(self) -> datetime | None:
        """When the records are read again: what the loop of remediation writes there is not seen otherwise."""
        return self._read_at + READ_AGAIN if self._read_at is not None else None

    # The fleet --------------------------------------------------------------------------------------------------------

    def spares(self) -> list[Spare]:
        """All spares, and all nodes that were checked as spares, as of the cache."""
        wanted = wanted_spares(self._cluster_state.active_recoveries())
        busy = self._cluster_state.busy_nodes()
        return [
            self._spare(node, wanted.get(name) or ("a member of a gang runs on it" if name in busy else ""))
            for name, node in self._cluster_state.nodes.items()
            if name in self._statuses or is_idle_spare(node)
        ]

    def _spare(self, node: Node, wanted_for: str = "") -> Spare:
        name = node.metadata.name
        status = self._statuses.get(name) or NodeRemediationStatus()
        return Spare(node=node, status=status, health=self._cluster_state.health.get(name), wanted_for=wanted_for)

    async def _go_on(self, now: datetime) -> None:
        """Take one spare out that has failed, or begin the next check."""
        spares = self.spares()
        if (failed := spare_to_take_out(spares, now)) is not None:
            await self._guarded(failed.name, self._take_out)
        elif not needs_a_spare(self._cluster_state.active_recoveries()):
            found = next_spare(self._ready(spares, now), self._policy.check_spares_every, now)
            if found is not None:
                await self._guarded(found.name, self._begin)

    def _ready(self, spares: Sequence[Spare], now: datetime) -> list[Spare]:
        """Those of *spares* that are not left out for a while, because they could not be checked at their turn."""
        return [each for each in spares if not self._is_ahead(self._not_before.get(each.name), now)]

    # One spare --------------------------------------------------------------------------------------------------------

    def _is_due(self, name: str, wanted_for: str) -> bool:
        """At once where something else takes the node: the pod of the check must be gone before it needs the GPUs."""
        node, is_early = self._cluster_state.nodes.get(name), self._is_ahead(self._next.get(name), self._clock.now())
        comes_first = bool(wanted_for) or node is None or not is_idle_spare(node)
        return not is_early or (comes_first and not self._errors.get(name))

    def _is_ahead(self, due: datetime | None, now: datetime) -> bool:
        """Whether *due* is yet to come. One that is far ahead is from before the clock was set back."""
        return due is not None and timedelta(0) < due - now <= PAUSE

    async def _guarded(self, name: str, work: Callable[[str], Awaitable[None]]) -> None:
        """A check that goes wrong stops nothing else."""
        error, pause = "", EVERY
        try:
            await work(name)
        except Unusable:
            raise
        except (Conflict, NotFound) as conflict:
            log.info("spare_checks.retry", node=name, why=str(conflict))
        except (CannotAsk, Refused) as refusal:  # to try at once again would change nothing
            error, pause = str(refusal), PAUSE
        except Exception as failure:  # a failed check of a spare must not stop the recoveries
            error = f"{type(failure).__name__}: {failure}"
        if error and error != self._errors.get(name):
            log.error("spare_checks.failed", node=name, error=error)
        self._errors[name] = error
        self._next[name] = self._clock.now() + pause

    async def _begin(self, name: str) -> None:
        subject, situation = await self._read(name)
        if situation.running is not None:  # another controller, deposed since, has begun it
            self._active.add(name)
            await self._follow(name)
            return
        if situation.spare is None:
            return
        spares = [each for each in self.spares() if each.name != name]
        now, every = situation.now, self._policy.check_spares_every
        # Another controller may have checked it since it was read.
        if next_spare([*self._ready(spares, now), situation.spare], every, now) is not situation.spare:
            return
        decision = begun(situation, next_number([*spares, situation.spare], now))
        if decision.record is None:
            log.info("spare_checks.waits", node=name, why=decision.reason)
            self._not_before[name] = self._clock.now() + PAUSE
        elif not needs_a_spare(self._cluster_state.active_recoveries()):
            await self._record(subject, decision)
            self._active.add(name)
            await self._follow(name)

    async def _follow(self, name: str) -> None:
        """Move on until the check has to wait, or is over and nothing of it is left. Raises ClusterError."""
        for _ in range(MOVES):
            subject, situation = await self._read(name)
            decision = followed(situation)
            if decision.waits:
                break
            if decision.record is not None:
                await self._record(subject, decision)
            elif not await self._perform(subject, decision):
                return
        if situation.running is None:
            self._active.discard(name)

    async def _take_out(self, name: str) -> None:
        """Record it, before the Node says so. Raises ClusterError."""
        subject, situation = await self._read(name)
        others = [each for each in self.spares() if each.name != name]
        # It may have been repaired since, and then another one is next.
        spare = situation.spare
        if spare is not None and spare_to_take_out([*others, spare], situation.now) is spare:
            await self._record(subject, taken_out(situation))
            await self._write_note(name)

    async def _read(self, name: str) -> tuple[Subject, SpareSituation]:
        """All that matters to the check of *name*, read again. Raises ClusterError."""
        subject = await self._observer.subject(name)
        node, status = subject.node, subject.record.status
        self._statuses[name] = status
        plan = await self._observer.check_plan(subject)
        pods = (await self._cluster.list(Pod, fields={"spec.nodeName": name})).items
        health = await self._health(name)
        wanted = wanted_spares(self._cluster_state.active_recoveries()).get(name, "")
        if not wanted and name in self._cluster_state.busy_nodes():
            wanted = "a member of a gang runs on it"
        check = running_spare_check(status, node)
        boots = (node.status.node_info.boot_id if node else "", health.status.boot_id if health else "")
        return subject, SpareSituation(
            name=name,
            status=status,
            spare=Spare(node=node, status=status, health=health, wanted_for=wanted) if node is not None else None,
            boot_ids=tuple(filter(None, boots)),
            plan=plan,
            seen=spare_seen(pods, node, check, plan.gpus),
            pods=leftovers_of(pods, node, checked_attempt(status)),
            users=users_of(pods, GPU_RESOURCE),
            policy=self._policy,
            now=self._clock.now(),
        )

    async def _health(self, name: str) -> NodeHealth | None:
        try:
            return await self._cluster.get(NodeHealth, name)
        except NotFound:
            return None

    async def _record(self, subject: Subject, decision: Decision) -> None:
        """Record what was decided, and report it. Raises ClusterError."""
        assert decision.record is not None
        before, after = subject.record.status.spare_check, decision.record.spare_check
        written = await write_record(self._cluster, subject.record, decision.record)
        self._statuses[subject.name] = written.status
        log.info("spare_checks.recorded", node=subject.name, why=decision.reason)
        if after is not None and after.outcome is not None and (before is None or before.outcome is None):
            self._metrics.count_spare_check(after.outcome)
            if after.outcome is SpareCheckOutcome.FAILED and subject.node is not None:
                self._announce(about(subject.node), WARNING, "SpareCheckFailed", f"As an idle spare: {after.message}")

    async def _perform(self, subject: Subject, decision: Decision) -> bool:
        """Create or delete the pod. False where that has to wait. Raises CannotAsk, ClusterError."""
        match decision.action:
            case DeleteCheck() as action:
                await self._checks.delete(action)
                log.info("spare_checks.pod_deleted", node=subject.name, pod=action.name, why=decision.reason)
                return True
            case StartCheck() as action if subject.node is not None:
                plan = await self._observer.check_plan(subject)
                await self._ensure_unchanged(subject)
                return not await self._checks.start(subject.node, action, plan)
        return False

    async def _ensure_unchanged(self, subject: Subject) -> None:
        """Read again what the pod must not be made without: what is created has no precondition. Raises Conflict."""
        began = self._clock.now()
        now = await self._observer.subject(subject.name)
        for seen, was in ((now.node, subject.node), (now.record, subject.record)):
            is_same = seen is not None and was is not None and seen.metadata.uid == was.metadata.uid
            if not is_same or seen.metadata.resource_version != was.metadata.resource_version:  # type: ignore[union-attr]
                raise Conflict(f"Node {subject.name} or its record changed since it was read")
        if not timedelta(0) <= self._clock.now() - began <= FRESH:
            raise Conflict(f"Node {subject.name}: reading it took longer than {FRESH.total_seconds():.0f} s")

    # What the Node says -----------------------------------------------------------------------------------------------

    async def _write_notes(self) -> None:
        """Let the Node say that it failed its check, until its agent has reported that."""
        now = self._clock.now()
        for spare in self.spares():
            check = spare.check
            if self._errors.get(spare.name) and self._is_ahead(self._next.get(spare.name), now):
                continue
            if check is not None and check.taken_out_at and check.reported_at is None and is_reported(spare):
                await self._guarded(spare.name, self._note_reported)
            elif note_of(spare, now) != spare.node.metadata.annotations.get(ANNOTATION_FAILED_CHECK, ""):
                await self._guarded(spare.name, self._write_note)

    async def _note_reported(self, name: str) -> None:
        subject, situation = await self._read(name)
        if situation.spare is not None and is_reported(situation.spare):
            await self._record(subject, reported(situation))
            await self._write_note(name)

    async def _write_note(self, name: str) -> None:
        """One write, on condition that the Node is what it was. A node that was claimed is left as it is."""
        _, situation = await self._read(name)
        spare = situation.spare
        if spare is None:
            return
        wanted, known = note_of(spare, situation.now), spare.node.metadata.annotations.get(ANNOTATION_FAILED_CHECK, "")
        if wanted == known or (wanted and not is_idle_spare(spare.node)):
            return
        node = await patch_node(
            self._cluster, spare.node, {"metadata": {"annotations": {ANNOTATION_FAILED_CHECK: wanted or None}}}
        )
        self._cluster_state.upsert(node)
        log.warning("spare_checks.note", node=name, note=wanted or "taken off")
        if wanted:
            message = f"It failed its check, and another spare of its kind has passed since: {wanted}"
            self._announce(about(node), WARNING, "SpareTakenOut", message)

    # What people and placement see ------------------------------------------------------------------------------------

    def _show(self, now: datetime) -> None:
        spares = self.spares()
        idle = [each for each in spares if is_idle_spare(each.node)]
        self._cluster_state.last_checks = {each.name: self._hint(each, now) for each in spares}
        self._metrics.show_spare_checks(
            passed={e.name: e.check.passed_at for e in idle if e.check is not None and e.check.passed_at is not None},
            failed=[each.name for each in idle if is_left_in(each, now) and not _is_out(each.node)],
            in_doubt=self._doubt(spares, now),
        )

    def _hint(self, spare: Spare, now: datetime) -> LastCheck:
        check = spare.check
        if check is None:
            return LastCheck.NONE
        if has_failed(spare, now):
            return LastCheck.FAILED
        if check.outcome is None:
            return LastCheck.RUNNING
        age = now - check.passed_at if check.passed_at is not None else None
        is_good = age is not None and timedelta(0) <= age < STILL_TRUE * self._policy.check_spares_every
        return LastCheck.PASSED if is_good else LastCheck.NONE

    def _doubt(self, spares: Sequence[Spare], now: datetime) -> bool:
        """Whether the check itself is in doubt. It is reported once."""
        failed = [each for group in doubted(spares, now).values() for each in group]
        names = some([each.name for each in failed])
        if names and names != self._said:
            message = (
                f"{names} failed one after the other, and none of their kind passed since: the check may be broken. "
                "Idle spares of this kind are not checked until `healthd.dev/remediation-retry` or `healthd repair` "
                "says of one of them that it is to be tried again"
            )
            log.error("spare_checks.in_doubt", nodes=names)
            for each in failed:
                self._announce(about(each.node), WARNING, "SpareChecksInDoubt", message)
        self._said = names
        return bool(failed)


def _is_out(node: Node) -> bool:
    return node.spec.unschedulable or read_record(node) is not None


def _goes_on(status: NodeRemediationStatus) -> bool:
    return status.spare_check is not None and status.spare_check.outcome is None
