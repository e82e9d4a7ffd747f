"""
The invariants of remediation, checked against the true world by code that shares only the words with what it checks.

What a controller may write is judged by what it read last, where the API has no precondition for it, and by the true
world where it has one. A read counts only if few calls came after it: between two calls others act.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from healthd.core.api import Lease, Node, NodeRemediation, Pod, Recovery
from healthd.core.api.remediations import NodePhase, RungAttempt
from healthd.core.config.remediation import RemediationPolicy
from tests.fakes import START
from tests.simulation.ground_truth import Listing, Write
from tests.simulation.invariants import Broken
from tests.simulation.remediation.hands import RUNG_OF, mark_on
from tests.simulation.remediation.hosts import Hosts
from tests.simulation.remediation.labels import PAUSED, PLUGIN
from tests.simulation.remediation.reading_cluster import ReadingCluster

QUARANTINE, REPAIRED = "healthd.dev/quarantine", "healthd.dev/repaired"
FAILED_CHECK, CLAIM, SPARE = "healthd.dev/failed-check", "healthd.dev/claim", "healthd.dev/spare"
WORD, OTHER = "healthd.dev/remediation", "weave.works/kured-reboot-in-progress"
CHECKS = "healthd-checks"
RACK = "rack"
SKEW = timedelta(minutes=1)
"""Clocks differ less, unless somebody sets one."""


@dataclass
class Passed:
    """A check that passed."""

    boot_id: str
    created: datetime


@dataclass
class Known:
    """What is true of one node, in the order in which it happened."""

    tried: list[tuple[datetime, RungAttempt]] = field(default_factory=list)
    """Attempts that were recorded since they were last forgiven, with the true time."""
    asked: set[tuple[str, str]] = field(default_factory=set)
    """Quarantine and rung of each request since then."""
    recorded: dict[int, RungAttempt] = field(default_factory=dict)
    """Every attempt that was ever recorded, by its number."""
    requested: set[int] = field(default_factory=set)
    taken_away: set[int] = field(default_factory=set)
    """Of these, those that the site deleted. A controller that was killed before it saw one may ask once more."""
    orphaned: set[int] = field(default_factory=set)
    """Of these, those that nothing on record knows any more: a person deleted the record."""
    passed: dict[str, Passed] = field(default_factory=dict)
    """By when its pod was created, as the controller writes it on the Node."""
    has_lost_record: bool = False
    """A person deleted the record, so nothing takes back the labels of a request that stood."""
    is_released: bool = False
    """A person brings it back, since its agent took it out last."""
    retry_at: datetime | None = None
    """When a person last asked for a further try, if that was not used yet."""

    def begin_anew(self) -> None:
        """What was tried before does not count."""
        self.tried, self.asked = [], set()


class RemediationWatch:
    """Sees every write that takes effect, and raises `Broken`."""

    def __init__(self, hosts: Hosts, policy: RemediationPolicy) -> None:
        self._hosts = hosts
        self._policy = policy
        self.readers: dict[str, ReadingCluster] = {}
        """By controller."""
        self.missed: Counter[str] = Counter()
        """By controller: calls that were refused, lost, or late."""
        self.known: dict[str, Known] = defaultdict(Known)
        self.now = START
        self.slack = timedelta(0)
        """By how much clocks were ever set."""
        self.nodes: dict[str, Node] = {}
        self.records: dict[str, NodeRemediation] = {}
        self.slots: dict[str, str] = {}
        """By name of the Lease: which node holds it."""
        self.requests = self.returns = self.spare_checks = self.taken_out = 0
        self.spare_results: list[tuple[int, str, str]] = []
        """Of checks of idle spares that ended: number, node, result. Two leaders may have two at once."""

    def __call__(self, seen: Write | Listing) -> None:
        if isinstance(seen, Listing):
            return
        if seen.kind in RUNG_OF:
            self._created(seen)
        elif seen.kind is Node:
            self._node(seen)
        elif seen.kind is NodeRemediation:
            self._record(seen)
        elif seen.kind is Lease:
            self._slot(seen)
        elif seen.kind is Recovery:
            self._recovery(seen)
        elif issubclass(seen.kind, Pod) or seen.kind.__name__ == "PodManifest":
            self._pod(seen)

    def check(self) -> None:
        """Between any two steps."""
        under = [name for name in self.records if self._is_under_a_rung(name)]
        expect(len(under) <= self._policy.at_once, "budget", f"{under} are under a rung of {self._policy.at_once}")
        racks = [self.nodes[name].metadata.labels[RACK] for name in under]
        crowded = [rack for rack in racks if racks.count(rack) > self._policy.per_domain]
        expect(not self._policy.per_domain or not crowded, "budget", f"{under} are under a rung in {crowded}")

    def _is_under_a_rung(self, name: str) -> bool:
        """
        Something was asked for, and its end is not on record. On a Node that is gone nothing is at stake, nor on one
        that booted after its check and waits for a slot to be checked once more.
        """
        node, status = self.nodes.get(name), self.records[name].status
        last = status.attempts[-1] if status.attempts else None
        is_open = last is not None and last.outcome is None and last.number in self.known[name].requested
        is_again = last is not None and last.check > 1
        if status.phase is NodePhase.CHECKING and is_again and name not in self.slots.values():
            return False
        return is_open and last is not None and node is not None and node.metadata.uid == last.node_uid

    # Records ----------------------------------------------------------------------------------------------------------

    def _record(self, write: Write) -> None:
        if write.after is None:
            self.records.pop(write.before.metadata.name, None)
            # The garbage collector takes the slots that this record owns, and no writer of them is seen.
            self.slots = {slot: of for slot, of in self.slots.items() if of != write.before.metadata.name}
            return
        name = write.after.metadata.name
        before, after = write.before.status if write.before else None, write.after.status
        self.records[name] = write.after
        if not write.by.startswith("controller") or before is None:
            return
        if after.forgiven_at != before.forgiven_at:
            self._forgiven(name, before.machine != after.machine)
        numbers = {each.number for each in before.attempts}
        for attempt in after.attempts:
            if attempt.number not in numbers:
                self._attempt(name, attempt)

    def _forgiven(self, name: str, is_another: bool) -> None:
        known = self.known[name]
        expect(
            is_another or self._was_replaced(name) or known.retry_at is not None or bool(self.slack),
            "twice",
            f"{name}: attempts are forgotten, and no person said so",
        )
        known.retry_at = None
        known.begin_anew()

    def _was_replaced(self, name: str) -> bool:
        return self._hosts.all[name].machine > 1

    def _attempt(self, name: str, attempt: RungAttempt) -> None:
        known = self.known[name]
        same = [each for _, each in known.tried if (each.fault, each.rung) == (attempt.fault, attempt.rung)]
        expect(not same, "twice", f"{name}: {attempt.rung} twice for {attempt.fault}")
        expect(
            len(known.tried) < self._policy.attempts_per_week,
            "twice",
            f"{name}: more than {self._policy.attempts_per_week} attempts in a week",
        )
        known.tried.append((self.now, attempt))
        known.recorded[attempt.number] = attempt

    # Requests ---------------------------------------------------------------------------------------------------------

    def _created(self, write: Write) -> None:
        request = write.after or write.before
        name, number = request.spec["host"], int(request.metadata.name.rpartition("-")[2])
        if write.before is None and write.by.startswith("controller"):
            self._request(write.by, name, number)
        elif write.after is None and write.by == "site":
            self.known[name].taken_away.add(number)

    def called(self, by: str, name: str, number: int) -> None:
        """A controller calls the webhook of the site."""
        if number not in self.known[name].requested:
            self._request(by, name, number)

    def _request(self, by: str, name: str, number: int) -> None:
        self.requests += 1
        reader, known = self.readers[by], self.known[name]
        record, node = reader.last(NodeRemediation, name), reader.last(Node, name)
        pods = reader.last(Pod, name)
        attempt = known.recorded.get(number)
        expect(attempt is not None, "intent", f"{name}: attempt {number} was asked for, and is not on record")
        expect(node is not None and record is not None and pods is not None, "old", f"{name}: asked for on an old view")
        assert attempt is not None
        runs = [pod.metadata.name for pod in pods if _runs(pod)]
        expect(not runs, "kills", f"{name}: {attempt.rung} while {runs} runs")
        self._is_left_to_healthd(node, f"{attempt.rung}")
        is_open = any(each.number == number and each.outcome is None for each in record.status.attempts)
        expect(is_open, "intent", f"{name}: attempt {number} was asked for, and is over")
        if not self._is_overtaken(record):
            self._holds_slots(name, f"{attempt.rung}")
        key = (_since(node), attempt.rung)
        is_again = number in known.requested and number in known.taken_away
        expect(key not in known.asked or is_again, "twice", f"{name}: {attempt.rung} twice during one quarantine")
        known.asked.add(key)
        known.requested.add(number)

    def _is_overtaken(self, record: NodeRemediation) -> bool:
        """Others recorded something after it read *record*, right before it wrote. What is created has no version."""
        now = self.records.get(record.metadata.name)
        return now is None or now.metadata.resource_version != record.metadata.resource_version

    def _is_left_to_healthd(self, node: Node, what: str) -> None:
        name, notes = node.metadata.name, node.metadata.annotations
        expect(QUARANTINE in notes, "service", f"{name}: {what} on a node in service")
        expect(node.spec.unschedulable, "word", f"{name}: {what} on a node that a person uncordoned")
        expect(not notes.get(WORD), "word", f"{name}: {what} against {notes.get(WORD)}")
        expect(OTHER not in notes, "owner", f"{name}: {what} while another remediator has it")

    def _holds_slots(self, name: str, what: str) -> None:
        held = [slot for slot, holder in self.slots.items() if holder == name]
        needed = 2 if self._policy.per_domain else 1
        expect(len(held) >= needed, "budget", f"{name}: {what} with the slots {held}")

    def _slot(self, write: Write) -> None:
        lease = write.after or write.before
        if write.after is None:
            self.slots.pop(lease.metadata.name, None)
        elif lease.metadata.name.startswith("healthd-remediation") and self._has_owner(lease):
            self.slots[lease.metadata.name] = lease.spec.holder_identity

    def _has_owner(self, lease: Lease) -> bool:
        """One whose record was deleted meanwhile is collected as soon as it is made."""
        record = self.records.get(lease.spec.holder_identity)
        uids = {owner.uid for owner in lease.metadata.owner_references}
        return record is not None and record.metadata.uid in uids

    # Nodes ------------------------------------------------------------------------------------------------------------

    def _node(self, write: Write) -> None:
        node = write.after or write.before
        name = node.metadata.name
        if write.after is None:
            self.nodes.pop(name, None)
            return
        self.nodes[name] = write.after
        if write.before is None:
            return
        if write.by.startswith("agent"):
            self._by_agent(name, write.before, write.after)
        elif write.by.startswith("controller"):
            self._by_controller(write)

    def _by_agent(self, name: str, before: Node, after: Node) -> None:
        was_out, is_out = (QUARANTINE in node.metadata.annotations for node in (before, after))
        if is_out and not was_out:
            self.known[name].is_released = False
        if was_out and not is_out:
            self.returns += 1
            self._comes_back(name, after)

    def _comes_back(self, name: str, after: Node) -> None:
        known, host = self.known[name], self._hosts.all[name]
        stamp = after.metadata.annotations.get(REPAIRED, "")
        passed = known.passed.get(stamp)
        if known.is_released:
            return
        expect(passed is not None, "unchecked", f"{name} is in service again, and no check passed")
        assert passed is not None
        last = host.ingested_at or passed.created
        slack = SKEW + self.slack
        expect(passed.created >= last - slack, "unchecked", f"{name} is in service again, with a fault after its check")

    def _by_controller(self, write: Write) -> None:
        before, after = write.before, write.after
        name = after.metadata.name
        expect(before.spec.unschedulable == after.spec.unschedulable, "service", f"{write.by} cordons by itself")
        ours = [node.metadata.annotations.get(QUARANTINE) for node in (before, after)]
        expect(ours[0] == ours[1], "service", f"{write.by} ends the quarantine of {name} by itself")
        stamps = [node.metadata.annotations.get(REPAIRED, "") for node in (before, after)]
        if stamps[0] != stamps[1]:
            self._given_back(name, before, stamps[1])
        plugins = [node.metadata.labels.get(PLUGIN) for node in (before, after)]
        if plugins[0] != plugins[1] and plugins[1] == PAUSED:
            self._is_left_to_healthd(before, "its device plugin is taken off")
        if FAILED_CHECK in after.metadata.annotations and FAILED_CHECK not in before.metadata.annotations:
            self._taken_out(name, before)
        mark = mark_on(after)
        if mark and mark != mark_on(before):
            self._is_left_to_healthd(before, "a request")
            self._request(write.by, name, int(mark))

    def _taken_out(self, name: str, before: Node) -> None:
        """One failure says little: another spare passed since. And one spare at a time is out for that."""
        self.taken_out += 1
        expect(is_idle_spare(before), "spare", f"{name} is taken out, and is no idle spare")
        failed = max((number for number, *rest in self.spare_results if rest == [name, "fail"]), default=-1)
        expect(failed >= 0, "spare", f"{name} is taken out, and failed no check")
        later = [rest for number, *rest in self.spare_results if number > failed]
        passed = [other for other, result in later if result == "pass" and other != name]
        expect(bool(passed), "spare", f"{name} is taken out, and no other spare passed since it failed")
        others = [other for other, node in self.nodes.items() if FAILED_CHECK in node.metadata.annotations] or [name]
        expect(len({*others, name}) <= len(self.readers) // 2, "spare", f"{others} are taken out, and {name}")

    def _recovery(self, write: Write) -> None:
        """No recovery waits for a spare that is only being checked."""
        said = write.after.status.message if write.after is not None else ""
        expect(f"occupied by {CHECKS}/" not in said, "spare", f"a recovery waits: {said}")

    def _given_back(self, name: str, before: Node, stamp: str) -> None:
        self._is_left_to_healthd(before, "a return")
        passed = self.known[name].passed.get(stamp)
        expect(passed is not None, "unchecked", f"{name} is declared repaired, and no check passed")
        boot = before.status.node_info.boot_id
        expect(passed is None or passed.boot_id == boot, "unchecked", f"{name} booted after its check")

    # Pods -------------------------------------------------------------------------------------------------------------

    def _pod(self, write: Write) -> None:
        pod = write.after or write.before
        is_check = pod.metadata.namespace == CHECKS
        if write.by.startswith("controller") and not is_check:
            expect(False, "kills", f"{write.by} writes pod {pod.metadata.name}")
        if is_check and write.before is None:
            self._check_begins(write.by, pod)
        if is_check and write.after is not None and write.by == "kubelet":
            self._check_ends(pod)

    def _check_begins(self, by: str, pod: Any) -> None:
        name = pod.metadata.owner_references[0].name
        node, record = self.readers[by].last(Node, name), self.readers[by].last(NodeRemediation, name)
        expect(node is not None and record is not None, "old", f"{name}: checked on an old view")
        if pod.metadata.name.endswith("-0"):
            self._spare_check_begins(by, pod, node, record)
            return
        self._is_left_to_healthd(node, "a check")
        last = record.status.attempts[-1]
        is_on_record = pod.metadata.name.endswith(f"-{last.number}-{last.check}")
        expect(is_on_record, "intent", f"{pod.metadata.name} is not on record")

    def _spare_check_begins(self, by: str, pod: Any, node: Node, record: NodeRemediation) -> None:
        self.spare_checks += 1
        name, notes, check = node.metadata.name, node.metadata.annotations, record.status.spare_check
        expect(is_idle_spare(node), "spare", f"{name} is checked, and is no idle spare")
        is_out = QUARANTINE in notes or node.spec.unschedulable or FAILED_CHECK in notes
        expect(not is_out, "spare", f"{name} is checked as a spare, and is out of service")
        expect(not notes.get(WORD) and OTHER not in notes, "word", f"{name} is checked, and others have it")
        is_on_record = check is not None and check.outcome is None and pod.metadata.name.endswith(f"-{check.number}-0")
        expect(is_on_record, "intent", f"{pod.metadata.name} is not on record")

    def after_spares(self, by: str, since: int) -> None:
        """
        After a round without bad luck, which began after so many calls: where it saw that a node is no idle spare, no
        check of one is left to run.
        """
        for name in self.nodes:
            record, node, pods = (self.readers[by].last(kind, name, since) for kind in (NodeRemediation, Node, Pod))
            check = record.status.spare_check if record is not None else None
            if check is None or check.outcome is not None:
                continue  # another leader began it since
            left = [pod.metadata.name for pod in pods or () if _holds_gpus_of_spare(pod)]
            goes_on = left and node is not None and not is_idle_spare(node)
            expect(not goes_on, "spare", f"{by} leaves {left} on {name}, which is no idle spare")

    def _check_ends(self, pod: Pod) -> None:
        ends = [each.state.terminated for each in pod.status.container_statuses if each.state.terminated]
        if ends and pod.metadata.name.endswith("-0"):
            number = int(pod.metadata.name.split("-")[-2])
            self.spare_results.append((number, pod.spec.node_name, json.loads(ends[0].message)["result"]))
            return
        if pod.status.phase != "Succeeded" or not ends or pod.metadata.creation_timestamp is None:
            return
        result, created = json.loads(ends[0].message), pod.metadata.creation_timestamp
        if result["result"] == "pass":
            self.known[pod.spec.node_name].passed[created.isoformat()] = Passed(result.get("bootId", ""), created)


def expect(holds: bool, what: str, message: str) -> None:
    """Raise `Broken` unless it holds. *what*: which invariant, in a word."""
    if not holds:
        raise Broken(f"{what}: {message}")


def _holds_gpus_of_spare(pod: Pod) -> bool:
    """A check of a spare that has not ended, and is not about to."""
    is_of_spare = pod.metadata.namespace == CHECKS and pod.metadata.name.endswith("-0")
    return is_of_spare and pod.metadata.deletion_timestamp is None and pod.status.phase not in ("Succeeded", "Failed")


def is_idle_spare(node: Node | None) -> bool:
    """Whether it is in the pool, and no recovery has claimed it."""
    return node is not None and node.metadata.labels.get(SPARE) == "true" and CLAIM not in node.metadata.annotations


def _since(node: Node) -> str:
    since: str = json.loads(node.metadata.annotations[QUARANTINE])["since"]
    return since


def _runs(pod: Pod) -> bool:
    return pod.metadata.namespace != CHECKS and pod.status.phase not in ("Succeeded", "Failed")
