"""
The eleven invariants, checked against the true world by code that shares only the words with what it checks.

At each write: what a write may do (2, 3, 4, 5, 6, 7, 9, 10, 11). Between steps: what must always hold (1, 5, 8, 9).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from healthd.core.api import Job, Lease, Node, NodeHealth, Pod, Recovery, Slim
from healthd.core.config import Config, StartFresh
from healthd.core.config.gangs import StragglerMode
from healthd.core.diagnosis.signals.tables import known_rules
from healthd.core.recovery.members import attempt_of
from tests.simulation.ground_truth import Listing, Write
from tests.simulation.machines import Machines, root_of
from tests.simulation.training import Store

if TYPE_CHECKING:
    from tests.simulation.finding_invariants import FindingInvariants

QUARANTINE = "healthd.dev/quarantine"
STOPPED_BY = "healthd.dev/stopped-by"
ATTEMPT = "healthd.dev/attempt"
RESTART = "healthd.dev/restart"
FENCE = "healthd.dev/fence"
WATCHED: tuple[type[Any], ...] = (Node, Pod, Job, Lease, NodeHealth, Recovery)
"""What there is in the world. Further kinds are known, but there are none here."""
PLANNED = ("capacity", "maintenance", "straggler")
"""The causes of restarts that are for no fault."""
CLOCKS_DIFFER = timedelta(seconds=30)
"""A program whose clock is ahead sees a window end so much earlier."""


class Broken(BaseException):
    """An invariant does not hold. Not an Exception: a program that was caught may not catch this and go on."""


class Watchdog:
    """Sees every write that takes effect, knows the machines, and raises `Broken`."""

    def __init__(self, machines: Machines, stores: dict[str, Store], config: Config) -> None:
        self._machines = machines
        self._stores = stores
        self._config = config
        self._read_nodes_at: dict[str, int] = {}
        self._node_written_at: dict[str, int] = {}
        self._quarantined: dict[str, bool] = {}
        self.faulted_at: dict[str, datetime] = {}
        """By node: the time stamp of its last record that tells of broken hardware."""
        self.repaired_at: dict[str, datetime] = {}
        self._let_through: set[str] = set()
        """Nodes that were quarantined when healthd was installed anew, and have no slot again yet: it has no memory."""
        self._lost_slots: set[str] = set()
        """Nodes that a person took the slot from, and that have no slot again yet. Their agents do not know at once."""
        self._is_repaired: set[str] = set()
        """Nodes of which nothing was wrong any more after somebody said so, whatever their clock was."""
        self.conducts: dict[str, FindingInvariants] = {}
        """By node, where readings are played: what they may do."""
        self.cordoned_by_person: set[str] = set()
        self.stopped_by_user: set[str] = set()
        """Names of gangs."""
        self.deleted_by_user: set[str] = set()
        self.edited_by_user: set[str] = set()
        """Gangs that were changed while they were stopped, until their users resume them."""
        self.disturbed: set[tuple[str, int]] = set()
        """Gangs and their attempts that have a reason to be restarted."""
        self.deleted_roots: set[str] = set()
        """Uids of Jobs that a user deleted."""
        self.taken_back: set[str] = set()
        """And of those that healthd is not to restart any more: it keeps none of their pods."""
        self.failed: dict[str, set[str]] = defaultdict(set)
        """By the uid of a Job: uids of pods that somebody called Failed."""
        self.let_go: set[str] = set()
        """Uids of pods that the Job controller deleted."""
        self._made: set[tuple[str, int]] = set()
        """Uids of Jobs, each with an attempt of which pods were made."""
        self.recoveries: dict[str, Recovery] = {}
        self._deleted_recoveries: dict[str, Recovery] = {}
        """By name: those that a person deleted. A stop or a start may have been on its way."""
        self.restarts: list[tuple[str, int]] = []
        self.announced: set[str] = set()
        """Nodes for which a maintenance was ever announced."""
        self._may_swap: set[str] = set()
        """Uids of Jobs whose users allowed it, at any time, that they leave the node of a slow rank."""
        self._sizes: dict[str, tuple[int, int]] = {}
        """By uid of a Job that healthd made smaller: its own size, and the size since. Others are its user's choice."""
        self.writes = 0
        self.may_overlap = False
        """The owner of the gangs let them go on without proof."""
        self.clocks_differ = CLOCKS_DIFFER
        """By how much those of the controllers do at most."""
        self.controllers = 1
        """While one is being deposed each of two may let one recovery through that the other has not seen."""

    def is_installed_anew(self, nodes: list[Node]) -> None:
        """Everything that healthd had written elsewhere than on *nodes* and gangs is gone."""
        self._let_through = {node.metadata.name for node in nodes if _is_quarantined(node)}

    def loses_slot(self, node: str) -> None:
        """A person deletes the Lease that counts the quarantine of *node*, or one that is about to be."""
        self._lost_slots.add(node)

    def loses_recovery(self, recovery: Recovery) -> None:
        """A person deletes a recovery."""
        self._deleted_recoveries[recovery.metadata.name] = recovery

    @property
    def lost_recoveries(self) -> bool:
        """Recoveries were deleted, and with the newest ones what was proven about pods."""
        return bool(self._deleted_recoveries)

    def deletes(self, job: Job) -> None:
        """Its user deletes a gang. One that he makes of the same name has nothing to do with it."""
        name = job.metadata.name
        self.deleted_by_user.add(name)
        self.deleted_roots.add(job.metadata.uid)
        self.stopped_by_user.discard(name)
        self.edited_by_user.discard(name)
        self.disturbed = {each for each in self.disturbed if each[0] != name}
        self.restarts = [(f"an earlier {name}" if gang == name else gang, number) for gang, number in self.restarts]

    def faulted(self, node: str, stamp: datetime) -> None:
        """The kernel of *node* tells of broken hardware, with a time stamp by its own clock."""
        self.faulted_at[node] = stamp
        self._is_repaired.discard(node)

    def repaired(self, node: str, stamp: datetime) -> None:
        """A person says that *node* was repaired, with a time stamp of his. The same stamp again says nothing new."""
        if self.repaired_at.get(node) != stamp:
            self._is_repaired.add(node)
        self.repaired_at[node] = stamp

    def clock_was_set(self, node: str, now: datetime) -> None:
        """
        The clock of *node* shows *now*. Before its last repair, nothing can be compared with that repair: a record from
        before it that was not read yet counts.
        """
        if node in self.repaired_at and now < self.repaired_at[node]:
            self._is_repaired.discard(node)

    def __call__(self, seen: Write | Listing) -> None:
        if isinstance(seen, Listing):
            if seen.kind is Node:
                self._read_nodes_at[seen.by] = seen.at
            return
        self.writes += 1
        if seen.kind is Node:
            self._check_node(seen)
        elif seen.kind is Job:
            self._check_job(seen)
        elif seen.kind is Pod:
            self._check_pod(seen)
        elif seen.kind is Recovery:
            self._check_recovery(seen)
        elif seen.kind is NodeHealth:
            self._check_report(seen)

    def _check_report(self, write: Write) -> None:
        invariants_of_findings = self.conducts.get((write.after or write.before).metadata.name)
        if invariants_of_findings is not None and write.after is not None:
            invariants_of_findings.published(write.after)
        elif invariants_of_findings is not None:
            invariants_of_findings.report_is_gone()

    # Nodes -----------------------------------------------------------------------------------------------------------

    def _check_node(self, write: Write) -> None:
        before, after = write.before, write.after
        if before is None or after is None:
            return
        name = after.metadata.name
        if _is_quarantined(after) != _is_quarantined(before):
            self._node_written_at[name] = int(after.metadata.resource_version)
        self._quarantined[name] = _is_quarantined(after)
        if not _is_healthd(write.by):
            return
        if not _is_quarantined(before) and _is_quarantined(after):
            self._check_quarantine(name, after)
        if before.spec.unschedulable and not after.spec.unschedulable:
            expect(2, _is_quarantined(before), f"{write.by} uncordoned {name}, which healthd had not cordoned")
            expect(2, name not in self.cordoned_by_person, f"{write.by} undid a person's cordon of {name}")
        if _is_quarantined(before) and not _is_quarantined(after) and name in self.cordoned_by_person:
            expect(2, after.spec.unschedulable, f"the cordon that a person had set on {name} is gone")
        lost = _foreign(before) - _foreign(after)
        expect(2, not lost, f"{write.by} took away {sorted(lost)} from {name}")

    def _check_quarantine(self, name: str, after: Node) -> None:
        record = json.loads(after.metadata.annotations[QUARANTINE])
        if record["finding"].rpartition("/")[2] in known_rules():
            self.conducts[name].quarantined(record["finding"])
        else:
            self._check_kernel_fault(name)
        expect(11, bool(record.get("message")) and bool(record.get("finding")), f"{name} does not say why it is out")
        taints = [taint.value for taint in after.spec.taints if taint.key == "healthd.dev/quarantined"]
        expect(11, taints != [] and all(taints), f"{name} has no taint that names the reason")
        expect(1, after.spec.unschedulable, f"{name} is quarantined and still schedulable")

    def _check_kernel_fault(self, name: str) -> None:
        fault = self.faulted_at.get(name)
        expect(3, fault is not None, f"{name} was quarantined, and nothing was ever wrong with it")
        repaired = self.repaired_at.get(name)
        expect(
            7,
            fault is None or repaired is None or fault > repaired or name not in self._is_repaired,
            f"{name} was quarantined for a fault of {fault}, before its repair at {repaired}",
        )

    # Gangs -----------------------------------------------------------------------------------------------------------

    def _check_job(self, write: Write) -> None:
        before, after = write.before, write.after
        if after is not None and after.metadata.annotations.get("healthd.dev/slow-rank") == "swap":
            self._may_swap.add(after.metadata.uid)
        if before is None or after is None:
            return
        is_ours = after.metadata.annotations.get(RESTART) == "enabled"
        (self.taken_back.discard if is_ours else self.taken_back.add)(after.metadata.uid)
        self._check_size(write.by, before, after)
        if not _is_healthd(write.by):
            if not after.spec.suspend:
                self.edited_by_user.discard(after.metadata.name)
            return
        name = after.metadata.name
        if after.spec.suspend != before.spec.suspend:
            expect(
                9, before.metadata.annotations.get(RESTART) == "enabled", f"{name} was taken from healthd by its user"
            )
        if after.spec.suspend and not before.spec.suspend:
            self._check_stop(name, after)
        if before.spec.suspend and not after.spec.suspend:
            self._check_start(write.by, name, before, after)

    def _check_size(self, by: str, before: Job, after: Job) -> None:
        """
        healthd makes a gang smaller, and as large again as it was, and never changes a size that a user chose. A user
        who comes back to the very size that healthd had chosen chose none: nothing on the Job tells the two apart.
        """
        old, new, uid = before.spec.completions or 1, after.spec.completions or 1, after.metadata.uid
        if old == new:
            return
        if not _is_healthd(by):
            return
        own, since = self._sizes.get(uid, (old, old))
        own = own if since == old else old
        expect(9, new <= own, f"{after.metadata.name} was made {new} members large; its own size is {own}")
        expect(9, new < old or since == old, f"{after.metadata.name} grew from {old}, which healthd had not chosen")
        asked = after.metadata.annotations.get("healthd.dev/grow-back") == "enabled"
        expect(9, new < old or asked, f"{after.metadata.name} grew, and its user had not asked for it")
        self._sizes[uid] = (own, new)
        if new == own:
            del self._sizes[uid]

    def may_grow(self, job: Job) -> bool:
        """Whether healthd made it smaller, and its user wants it to grow back."""
        asked = job.metadata.annotations.get("healthd.dev/grow-back") == "enabled"
        return asked and self._sizes.get(job.metadata.uid, (0, 0))[1] == (job.spec.completions or 1)

    def may_swap(self, job: Job) -> bool:
        """Whether its user lets it leave the node of a slow rank, or has let it."""
        return self._is_swap_allowed(job.metadata.uid)

    def _is_swap_allowed(self, uid: str) -> bool:
        return uid in self._may_swap or self._config.hang.stragglers is StragglerMode.SWAP

    def unplanned(self, restarts: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Those of *restarts* that a recovery with a fault made."""
        planned = {
            (each.spec.gang.name, attempt.number)
            for each in self.recoveries.values()
            if all(cause.kind in PLANNED for cause in each.status.causes)
            for attempt in each.status.attempts
        }
        return [each for each in restarts if each not in planned]

    def _check_stop(self, name: str, after: Job) -> None:
        owner = after.metadata.annotations.get(STOPPED_BY, "")
        records = self._records(owner)
        expect(11, bool(records), f"{name} was stopped by {owner or 'an unknown'}, which is no recovery")
        phases = [each.status.phase for each in records]
        expect(4, "Stopping" in phases, f"{name} was stopped in phase {' or '.join(phases)}")

    def _records(self, name: str) -> list[Recovery]:
        """A write may be on its way when a person deletes its record, and an older state of it is made again."""
        return [each for each in (self.recoveries.get(name), self._deleted_recoveries.get(name)) if each]

    def _check_start(self, by: str, name: str, before: Job, after: Job) -> None:
        expect(9, name not in self.stopped_by_user, f"{name} was started though its user had stopped it")
        expect(9, name not in self.edited_by_user, f"{name} was started though its user edits it")
        old, new = _attempt(before), _attempt(after)
        if new != old or (after.metadata.uid, new) in self._made:  # else no pod of it was made: the same start
            expect(4, new == old + 1, f"{name} went from attempt {old} to {new}")
            why = f"attempt {new} of {name} was started, and nothing had happened to {old}"
            expect(4, (name, old) in self.disturbed, why)
            expect(4, (name, new) not in self.restarts, f"attempt {new} of {name} was started twice")
            self.restarts.append((name, new))
        alive = self._machines.processes(name, after.metadata.uid)
        if not self.may_overlap:
            expect(5, not alive, f"{name} was started while {[p.name for p in alive]} can still write")
        self._check_intent(name, before, new)
        self._check_placement(by, name, after)
        self._check_checkpoint(name, after)
        self._check_doubts(name, before, after)

    def _check_intent(self, name: str, before: Job, new: int) -> None:
        records = self._records(before.metadata.annotations.get(STOPPED_BY, ""))
        intended = [each for each in records if [a.number for a in each.status.attempts][-1:] == [new]]
        expect(4, bool(intended), f"attempt {new} of {name} was started with no intent on record")
        let_through = any(each.status.let_through is not None for each in intended)
        expect(10, let_through, f"attempt {new} of {name} was started, and the breaker was never asked")

    def _check_placement(self, by: str, name: str, after: Job) -> None:
        placement = json.loads(after.metadata.annotations.get("healthd.dev/placement", "{}"))
        seen_at = self._read_nodes_at.get(by, 0)
        for node in placement.values():
            bad_since = self._node_written_at.get(node)
            known = self._quarantined.get(node, False) and bad_since is not None and bad_since <= seen_at
            expect(5, not known, f"{name} was started on {node}, which is quarantined")

    def _check_checkpoint(self, name: str, after: Job) -> None:
        path = after.spec.template.metadata.annotations.get("healthd.dev/resume-from", "")
        if path:
            whole = {saved.path for saved in self._stores[name].saved if saved.whole}
            expect(6, path in whole, f"{name} was resumed from {path}, which is torn")
            return
        if self._config.recovery.start_fresh is StartFresh.ALWAYS:
            return
        ever = [r for r in self.recoveries.values() if r.spec.gang.uid == after.metadata.uid]
        seen = max([-1, *(_furthest(recovery) for recovery in ever), _progress(after)])
        expect(6, seen < 0, f"{name} was started fresh though step {seen} had been seen")

    def _check_doubts(self, name: str, before: Job, after: Job) -> None:
        """What failed twice soon after it was loaded is not loaded again while there is an older one that loads."""
        recovery = next(iter(self._records(before.metadata.annotations.get(STOPPED_BY, ""))), None)
        path = after.spec.template.metadata.annotations.get("healthd.dev/resume-from", "")
        now = next((saved for saved in self._stores[name].saved if saved.path == path), None)
        if recovery is None or now is None or now.loads:
            return
        tried = [each.checkpoint for each in recovery.status.attempts if each.failed_early]
        older = [each for each in self._stores[name].saved if each.whole and each.loads and each.step < now.step]
        better = [each.path for each in older if each.seen not in recovery.status.doubted]
        is_vain = tried.count(now.seen) >= 2 and bool(better)
        expect(6, not is_vain, f"{name} was started once more from {path}, though {better} would load")

    # Pods and recoveries ---------------------------------------------------------------------------------------------

    def _check_pod(self, write: Write) -> None:
        before, after = write.before, write.after
        if before is None and after is not None:
            self._made.add((root_of(after), attempt_of(after)))
        if write.by == "job-controller" and before is not None and _is_deleted(after) and not _is_deleted(before):
            self.let_go.add(before.metadata.uid)
        if after is not None and after.status.phase == "Failed":
            self.failed[root_of(after)].add(after.metadata.uid)
        if after is not None and after.spec.node_name and (before is None or not before.spec.node_name):
            node = after.spec.node_name
            expect(5, not self._quarantined.get(node, False), f"{after.metadata.name} was put on quarantined {node}")
        if _is_healthd(write.by) and before is not None and FENCE in before.metadata.finalizers:
            gone = after is None or FENCE not in after.metadata.finalizers
            process = self._process(before.metadata.uid)
            may_write = process is not None and process.may_write
            excused = self.may_overlap or root_of(before) in self.deleted_roots | self.taken_back
            expect(5, excused or not (gone and may_write), f"{before.metadata.name} was let go while its process lives")

    def _process(self, uid: str) -> Any:
        return next((p for m in self._machines.all.values() for p in m.processes.values() if p.uid == uid), None)

    def _check_recovery(self, write: Write) -> None:
        after: Recovery | None = write.after
        if after is None:
            self.recoveries.pop(write.before.metadata.name, None)
            return
        before: Recovery | None = write.before
        if after.status.let_through is not None and (before is None or before.status.let_through is None):
            lost = self._deleted_recoveries.get(after.metadata.name)
            is_restored = lost is not None and lost.status.let_through == after.status.let_through
            message = f"{after.metadata.name} was let through an open breaker"
            expect(10, is_restored or self._breaker_allows(after), message)
        if before is None:
            rivals = [
                r.metadata.name
                for r in self.recoveries.values()
                if _is_under_way(r) and r.spec.gang.uid == after.spec.gang.uid
            ]
            # One that a person deleted is made again by a controller that had looked before another opened the next
            # one. Then there are two for a while, and one steps aside.
            is_again = after.metadata.name in self._deleted_recoveries
            expect(4, is_again or not rivals, f"{after.metadata.name} was opened beside {rivals}")
            self._check_planned(after)
        self.recoveries[after.metadata.name] = after
        if before is None:
            expect(11, bool(after.spec.cause.message), f"{after.metadata.name} has no cause")
        mute = [entry.phase for entry in after.status.timeline if not entry.message]
        expect(11, not mute, f"{after.metadata.name} does not say why it is in {mute}")

    def _check_planned(self, opened: Recovery) -> None:
        """A planned restart comes long after the last recovery of its gang, and right after a save."""
        if opened.spec.cause.kind not in PLANNED:
            return
        name, uid, at = opened.metadata.name, opened.spec.gang.uid, opened.metadata.creation_timestamp
        if opened.spec.cause.kind == "capacity":
            expect(4, uid in self._sizes, f"{name} is to grow back, and healthd had not made it smaller")
        elif opened.spec.cause.kind == "maintenance":
            expect(4, bool(self.announced), f"{name} is to leave nodes, and no maintenance was announced")
        else:
            expect(9, self._is_swap_allowed(uid), f"{name} is to leave a slow node, and its user had not allowed it")
            self._check_swapped_once(opened)
        ends = [r.status.ended_at for r in self.recoveries.values() if r.spec.gang.uid == uid and r.status.ended_at]
        least = self._config.recovery.grow_every - 2 * self.clocks_differ
        late = [end for end in ends if at is not None and timedelta(0) <= at - end < least]
        expect(4, not late, f"{name} is planned so soon after {late}")

    def _check_swapped_once(self, opened: Recovery) -> None:
        """A rank is swapped once, whatever its record says, as long as the recoveries of its gang are there."""
        ranks = {suspect.member for suspect in opened.spec.cause.suspects}
        uid, kind = opened.spec.gang.uid, opened.spec.cause.kind
        earlier = [r for r in self.recoveries.values() if r.spec.gang.uid == uid and r.spec.cause.kind == kind]
        swapped = {s.member for r in earlier if r.status.attempts for s in r.spec.cause.suspects}
        expect(4, bool(ranks), f"{opened.metadata.name} names no slow rank")
        expect(4, not ranks & swapped, f"{opened.metadata.name} swaps {ranks & swapped} a second time")

    def _breaker_allows(self, recovery: Recovery) -> bool:
        policy = self._config.breaker
        window = policy.window - self.clocks_differ
        now = recovery.status.let_through
        if all(cause.kind in PLANNED for cause in recovery.status.causes):
            return True
        faults = [r for r in self.recoveries.values() if any(c.kind not in PLANNED for c in r.status.causes)]
        begun = [r.status.let_through for r in faults]
        # A time in the future is of a clock that was set back since.
        recent = [at for at in begun if at is not None and now is not None and -CLOCKS_DIFFER <= now - at < window]
        return len(recent) < policy.restarts + self.controllers - 1

    # Between steps ---------------------------------------------------------------------------------------------------

    def check(self, world: dict[type[Slim], list[Any]]) -> None:
        """What must hold at every moment."""
        self._check_budget(world[Node], world[Lease])
        self._check_writers()
        for job in world[Job]:
            self._check_retries(job)
            self._check_user(job)
        for lease in world[Lease]:
            expect(11, bool(lease.spec.holder_identity), f"slot {lease.metadata.name} does not say who holds it")

    def _check_budget(self, nodes: list[Node], slots: list[Lease]) -> None:
        policy = self._config.quarantine
        held = Counter(slot.spec.holder_identity for slot in slots)
        needed = 2 if policy.per_domain else 1
        self._let_through = {name for name in self._let_through if held[name] < needed}
        self._lost_slots = {name for name in self._lost_slots if held[name] < needed}
        out = [node for node in nodes if _is_quarantined(node)]
        self._let_through &= {node.metadata.name for node in out}
        out = [node for node in out if node.metadata.name not in self._let_through | self._lost_slots]
        expect(1, len(out) <= policy.budget, f"{len(out)} nodes are quarantined, the budget is {policy.budget}")
        if not policy.per_domain:
            return
        domains: dict[str, int] = defaultdict(int)
        for node in out:
            domains[node.metadata.labels.get(policy.domain_label, "")] += 1
        for domain, count in domains.items():
            expect(1, not domain or count <= policy.per_domain, f"{count} nodes of {domain} are quarantined")

    def _check_writers(self) -> None:
        attempts: dict[str, set[int]] = defaultdict(set)
        for machine in self._machines.all.values():
            for process in machine.processes.values():
                if not process.ended:
                    attempts[process.root].add(process.attempt)
        for root, alive in attempts.items():
            expect(5, len(alive) == 1 or self.may_overlap, f"attempts {sorted(alive)} of {root} write at the same time")

    def _check_retries(self, job: Job) -> None:
        own = len(self.failed[job.metadata.uid] - self.let_go)
        expect(8, job.status.failed <= own, f"{job.status.failed} retries of {job.metadata.name} are used up, of {own}")

    def _check_user(self, job: Job) -> None:
        if job.metadata.name in self.stopped_by_user:
            expect(9, job.spec.suspend, f"{job.metadata.name} runs though its user had stopped it")
        expect(9, job.metadata.name not in self.deleted_by_user, f"{job.metadata.name} is there again")


def expect(number: int, holds: bool, message: str) -> None:
    """Raise `Broken` with the invariant's number unless it holds."""
    if not holds:
        raise Broken(f"invariant {number}: {message}")


def _is_healthd(by: str) -> bool:
    return by.startswith(("agent", "controller"))


def _is_quarantined(node: Node) -> bool:
    return QUARANTINE in node.metadata.annotations


def _foreign(node: Node) -> set[str]:
    ours = ("healthd.dev/",)
    taints = {f"taint {taint.key}" for taint in node.spec.taints if not taint.key.startswith(ours)}
    return taints | {f"label {key}" for key in node.metadata.labels if not key.startswith(ours)}


def _is_under_way(recovery: Recovery) -> bool:
    return recovery.status.phase not in ("Recovered", "GaveUp", "Superseded")


def _is_deleted(pod: Pod | None) -> bool:
    return pod is None or pod.metadata.deletion_timestamp is not None


def _attempt(job: Job) -> int:
    return int(job.metadata.annotations.get(ATTEMPT, "0"))


def _progress(job: Job) -> int:
    raw = job.metadata.annotations.get("healthd.dev/progress")
    return int(msgspec.json.decode(raw).get("step", -1)) if raw else -1


def _furthest(recovery: Recovery) -> int:
    """The highest step that healthd itself has written down."""
    status = recovery.status
    resumed = [attempt.checkpoint.step for attempt in status.attempts]
    return max([status.step_at_fault, status.confirmed_step, *resumed, *(r.step for r in status.rejected)])
