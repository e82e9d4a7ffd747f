"""
What readings may do to the findings of a node, checked around everything that its agent is shown.

The invariants go on where those of the whole cluster end: 12 unknown changes nothing; 13 what is raised, or takes the
node out, was bad for as long as its rule demands since the last repair; 14 what is bad is said, and what was good for
long enough ends without a person; 15 what the kernel tells of ends by no reading; 16 one fault, one finding; 17 shadow
changes nothing; 18 nothing from before a repair acts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from healthd.agent.agent import Agent
from healthd.core.api import ANNOTATION_REPAIRED, Node, NodeHealth
from healthd.core.api.model import Finding
from healthd.core.diagnosis.causes import KERNEL_REPORTED, stands_for
from healthd.core.diagnosis.readings import Sample
from healthd.core.diagnosis.signals.rule import Rule
from healthd.core.diagnosis.signals.tables import known_rules
from healthd.core.diagnosis.tiers import tier
from tests.simulation.expected_findings import ExpectedFindings, place_of
from tests.simulation.invariants import expect

LONGEST = timedelta(hours=24)
WHOLE = ""
_KERNEL_CAUSES = {rule: cause for cause, rules in KERNEL_REPORTED.items() for rule in rules}
DeviceRule = tuple[str, str]
"""Device and rule."""


class Witnesses(NamedTuple):
    """By which rules a finding was seen, in whatever life of the agent, and when last."""

    rules: set[str]
    last_at: datetime


@dataclass
class Accounts:
    """
    What rules say, by two accounts. A repair may be noticed late, and whether what was seen in between counts is open:
    one forgets what came before the repair, one all that came before it was noticed. Until then both are the same one.
    """

    since_repair: ExpectedFindings
    since_notice: ExpectedFindings

    @classmethod
    def of(cls, rules: Iterable[Rule], *, is_true: bool = False) -> Accounts:
        """Those of a life that has seen nothing. *is_true*: and that will see no nonsense."""
        one = ExpectedFindings(rules, is_true=is_true)
        return cls(one, one)

    def copy(self) -> Accounts:
        """The same, to go on by itself."""
        first = self.since_repair.copy()
        return Accounts(first, first if self.since_notice is self.since_repair else self.since_notice.copy())

    def of_true_values(self) -> Accounts:
        """The same, to go on with readings that never show nonsense."""
        first = self.since_repair.of_true_values()
        is_one = self.since_notice is self.since_repair
        return Accounts(first, first if is_one else self.since_notice.of_true_values())

    def both(self) -> tuple[ExpectedFindings, ...]:
        """Each account that is another."""
        is_one = self.since_repair is self.since_notice
        return (self.since_repair,) if is_one else (self.since_repair, self.since_notice)

    def take(self, sample: Sample) -> None:
        """One sample."""
        for account in self.both():
            account.take(sample)

    def settle(self, at: datetime, now: datetime) -> None:
        """The node was repaired at *at*, and the agent notices it *now*."""
        if self.since_repair is self.since_notice:
            self.since_notice = self.since_repair.copy()
        self.since_repair.settle(at, now)
        self.since_notice.forget(now)


@dataclass
class ReferenceLedger:
    """What rules say of the readings as they are, whatever was shown once by mistake."""

    accounts: Accounts
    was_bad: dict[DeviceRule, datetime]

    def take(self, shown: Sample, ground_truth: Sample) -> None:
        """
        One sample. What errs at its first sight looks like what counts from there, and what shows once more what it
        showed last like what stands still.
        """
        first = self.accounts.since_repair
        last = [first.last(ground_truth.source, place_of(each)) for each in ground_truth.readings]
        both = zip(shown.readings, ground_truth.readings, last, strict=True)
        seen = [reported if before in (None, reported.value) else is_so for reported, is_so, before in both]
        self.accounts.take(Sample(source=ground_truth.source, at=ground_truth.at, readings=seen))
        for account in self.accounts.both():
            for reported in account.bad():
                self.was_bad[reported] = max(ground_truth.at, self.was_bad.get(reported, ground_truth.at))


class FindingInvariants:
    """
    Follows the agents of one node, life after life. *shadow* is the policy's. Only what both accounts say is demanded.
    """

    def __init__(self, node: str, rules: Iterable[str], shadow: Sequence[str] = ()) -> None:
        self.node = node
        self._rules = [known_rules()[name] for name in rules]
        self._shadow = shadow
        self._accounts = Accounts.of(self._rules)
        self._was_bad: dict[DeviceRule, datetime] = {}
        """What was bad for long enough since the last repair, in whatever life, and when that was last seen."""
        self._sober: ReferenceLedger | None = None
        """What would have been seen had no dial ever erred; None: none has."""
        self._witnesses: dict[str, Witnesses] = {}
        """By finding, since the last repair."""
        self._asked_before: set[str] = set()
        """Findings of which a witness that is not known any more took the node out: only a repair ends them."""
        self._stood: Sequence[Finding] | None = None
        """What was last seen to stand rightly, since the last repair."""
        self._stamp = ""
        self._is_on_record = False
        """An agent wrote down since when the last repair counts. Until then a further life takes note of it anew."""
        self._repaired: datetime | None = None
        self._is_comparable = True
        """The clock was not set since the last repair."""
        self.begin_life()

    def begin_life(self) -> None:
        """A new agent knows the findings, and nothing of the readings."""
        if not self._is_on_record:
            self._stamp = ""
        self._accounts = Accounts.of(self._rules)
        if self._sober is not None:
            self._sober.accounts = Accounts.of(self._rules, is_true=True)

    def clock_was_set(self) -> None:
        """What was stamped before cannot be compared with what is stamped after."""
        self._is_comparable = False

    def shown(self, node: Node, now: datetime) -> None:
        """The agent is shown its node, which may say that it was repaired."""
        stamp = node.metadata.annotations.get(ANNOTATION_REPAIRED, "")
        if stamp in {"", self._stamp}:
            return
        self._stamp, self._is_on_record, self._stood = stamp, False, None
        at = self._repaired = min(datetime.fromisoformat(stamp), now)
        self._is_comparable = True
        self._witnesses = {key: known for key, known in self._witnesses.items() if known.last_at > at}
        for accounts in [self._accounts, *([self._sober.accounts] if self._sober else [])]:
            accounts.settle(at, now)
        self._was_bad = _later(self._was_bad, at)
        if self._sober is not None:
            self._sober.was_bad = _later(self._sober.was_bad, at)

    # What happens ----------------------------------------------------------------------------------------------------

    def looked(
        self,
        sample: Sample,
        before: Sequence[Finding],
        after: Sequence[Finding],
        now: datetime,
        ground_truth: Sample | None = None,
    ) -> None:
        """A sample was judged; it made *after* of the findings *before*. *ground_truth* is what it should show."""
        if sample.trouble:
            self._expect(
                12, list(before) == list(after), f"{sample.source} could not be read, and that changed a finding"
            )
            return
        if ground_truth is not None and ground_truth is not sample and self._sober is None:
            self._sober = ReferenceLedger(self._accounts.of_true_values(), dict(self._was_bad))
        if self._repaired is None or not sample.at <= self._repaired <= now:
            self._accounts.take(sample)
            if self._sober is not None:
                self._sober.take(sample, ground_truth or sample)
        bad = [account.bad() for account in self._accounts.both()]
        by_any, by_both = bad[0] | bad[-1], bad[0] & bad[-1]
        for reported in by_any:
            self._was_bad[reported] = max(sample.at, self._was_bad.get(reported, sample.at))
        new = _standing(after)
        for finding in _standing(before).values():  # what a new agent was shown has not stood before any sample yet
            self._note_asked(finding)
        if after != before:
            self._check_change(_standing(before), new, by_any, now)
        self._check_reported(by_both, new)
        for finding in new.values():
            self._check_not_over(finding, now)
        self.stands(after)

    @property
    def last_bad(self) -> datetime | None:
        """When anything was last seen to be bad, by the node's clock."""
        return max(self._was_bad.values(), default=None)

    def show(self, agent: Agent, samples: Iterable[Sample], now: datetime) -> None:
        """Let *agent* judge *samples*."""
        for sample in samples:
            before = agent.state.findings
            agent.state.ingest_sample(sample, now)
            self.looked(sample, before, agent.state.findings, now)

    def kernel_reported(self, after: Sequence[Finding]) -> None:
        """Kernel records were judged."""
        self.stands(after)

    def stands(self, after: Sequence[Finding]) -> None:
        """What must hold whatever came before. Of the same findings it still does, until a repair."""
        if after == self._stood:
            return
        for finding in after:
            self._remember(finding)
        standing = _standing(after).values()
        for finding in standing:
            self._check_reason(finding)
        self._check_one_each(finding for finding in standing if not finding.shadow)
        self._stood = after

    def _remember(self, finding: Finding) -> None:
        """Who witnessed it. An agent that begins anew may know of a finding no more than its node's quarantine says."""
        if finding.cleared_at is not None:
            self._witnesses.pop(finding.id, None)
            self._asked_before.discard(finding.id)
            return
        self._note_asked(finding)
        known = self._witnesses.get(finding.id)
        rules = {finding.rule, *finding.also} | (known.rules if known else set())
        self._witnesses[finding.id] = Witnesses(rules, finding.last_at)

    def _note_asked(self, finding: Finding) -> None:
        if finding.quarantines and not any(_takes_out(rule) for rule in (finding.rule, *finding.also)):
            self._asked_before.add(finding.id)

    def quarantined(self, finding: str) -> None:
        """The agent took its node out for *finding*."""
        rule = finding.rpartition("/")[2]
        self._expect(17, not self._is_shadow(rule), f"{rule} is in shadow, and took the node out")

    def report_is_gone(self) -> None:
        """Somebody deleted what the agent had written."""
        self._is_on_record = False

    def published(self, written: NodeHealth) -> None:
        """The agent wrote its report."""
        seen = written.status.repair_seen
        self._is_on_record = seen is not None and seen.stamp.isoformat() == self._stamp
        acting = [one for one in _standing(written.status.findings).values() if not self._is_shadow(one.rule)]
        verdict = written.status.verdict
        is_worse = verdict in {"degraded", "unhealthy"}
        self._expect(17, bool(acting) or not is_worse, f"it is {verdict}, and every finding is in shadow")
        worst = any(one.quarantines for one in acting)
        self._expect(17, worst or verdict != "unhealthy", "it is unhealthy, and no finding outside the shadow says so")

    def ends_by_itself(self, finding: Finding) -> bool:
        """Whether probes alone witness it, as far as is known, and each sees the end."""
        return finding.id not in self._asked_before and all(
            _clears_after(rule) is not None for rule in (finding.rule, *finding.also)
        )

    # What must hold --------------------------------------------------------------------------------------------------

    def _check_change(
        self, old: dict[str, Finding], new: dict[str, Finding], bad: set[DeviceRule], now: datetime
    ) -> None:
        for finding in new.values():
            for rule in _rules(finding) - _rules(old.get(finding.id)):
                is_so = (finding.device, rule) in bad
                self._expect(13, is_so, f"{finding.id} was raised by {rule}, which is not bad for long enough")
        for key in old.keys() - new.keys():
            self._check_end(old[key], now)

    def _check_end(self, finding: Finding, now: datetime) -> None:
        for rule in (finding.rule, *finding.also):
            if rule in known_rules():
                needs = _needs(finding, rule)
                good = max(account.good_for(finding.device, rule)[0] for account in self._accounts.both())
                so_long = f"{finding.id} was ended: seen good by {rule} for {good}, not {needs}"
                self._expect(12, needs is not None and good >= needs, so_long)
            else:
                stands = stands_for(rule)
                is_over = stands is not None and now - finding.last_at >= stands
                self._expect(15, is_over, f"{finding.id} was ended by a sample, and the kernel reported it by {rule}")
        seen = {
            part for rule in _rules(finding) for part in self._accounts.since_repair.good_for(finding.device, rule)[1]
        }
        missing = set() if WHOLE in seen else set(finding.parts) - seen
        self._expect(12, not missing, f"{finding.id} was ended, and no source sees {sorted(missing)}")

    def _check_reported(self, bad: set[DeviceRule], standing: dict[str, Finding]) -> None:
        if not bad:
            return
        reported = {(one.device, rule) for one in standing.values() for rule in (one.rule, *one.also)}
        self._expect(14, bad <= reported, f"{sorted(bad - reported)} are bad, and not reported")

    def _check_not_over(self, finding: Finding, now: datetime) -> None:
        if finding.quarantines and finding.id in self._asked_before:
            return
        parts = set(finding.parts)
        for rule in (finding.rule, *finding.also):
            needs = _needs(finding, rule)
            if needs is None or now - finding.last_at < needs:
                return
            goods = [account.good_for(finding.device, rule) for account in self._accounts.both()]
            if any(good < needs for good, _ in goods):
                return
            parts -= parts if WHOLE in goods[0][1] else goods[0][1]
        self._expect(14, bool(parts), f"{finding.id} stands, and all of it has been good for long enough")

    def _check_reason(self, finding: Finding) -> None:
        if self._is_shadow(finding.rule):
            self._expect(17, finding.shadow and not finding.quarantines, f"{finding.id} is in shadow, and acts")
        if not finding.quarantines:
            return
        witnesses = self._witnesses[finding.id].rules
        if witnesses - known_rules().keys():
            return  # what the kernel says is judged elsewhere
        reasons = {rule for rule in witnesses if _takes_out(rule)}
        is_so = any((finding.device, rule) in self._was_bad for rule in reasons)
        self._expect(13, is_so, f"{finding.id} takes the node out, and no rule was bad enough since the last repair")
        is_true = self._sober is None or any((finding.device, rule) in self._sober.was_bad for rule in reasons)
        self._expect(13, is_true, f"{finding.id} takes the node out for what a dial showed that erred")

    def _check_one_each(self, standing: Iterable[Finding]) -> None:
        """The kernel's own messages are kept apart; what others witness is not."""
        alike: dict[DeviceRule, list[Finding]] = defaultdict(list)
        for finding in standing:
            cause = _cause(finding.rule)
            if cause:
                alike[finding.device, cause].append(finding)
        for (device, cause), findings in alike.items():
            is_one = len(findings) == 1 or all(one.rule in _KERNEL_CAUSES for one in findings)
            self._expect(16, is_one, f"{device} has {[one.rule for one in findings]} for one {cause}")

    def _is_shadow(self, rule: str) -> bool:
        return bool(self._shadow) and any(fnmatchcase(rule, pattern) for pattern in self._shadow)

    def check_repair(self, findings: Sequence[Finding], now: datetime) -> None:
        """Once the agent has noticed a repair, and done a whole round since."""
        if self._repaired is None or self._repaired > now or not self._is_comparable:
            return
        late = [one.id for one in _standing(findings).values() if one.last_at <= self._repaired]
        self._expect(18, not late, f"{late} stand, and were last seen before the repair")

    def _expect(self, number: int, holds: bool, message: str) -> None:
        expect(number, holds, f"{self.node}: {message}")


class SeesRepairs:
    """The agent's cluster; tells its invariants when the agent is shown a repair."""

    def __init__(self, cluster: Any, invariants_of_findings: FindingInvariants, now: Callable[[], Any]) -> None:
        self._cluster = cluster
        self._conduct = invariants_of_findings
        self._now = now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def get(self, kind: type[Any], name: str, namespace: str = "") -> Any:
        """The object; a node that says that it was repaired is noticed in the same breath."""
        found = await self._cluster.get(kind, name, namespace)
        if kind is Node:
            self._conduct.shown(found, self._now())
        return found


def _later(was_bad: dict[DeviceRule, datetime], at: datetime) -> dict[DeviceRule, datetime]:
    """Witnesses of one fault share a finding: one that was seen later keeps it, and the word of the others with it."""
    later = {(device, _cause(rule) or rule) for (device, rule), seen in was_bad.items() if seen > at}
    return {(device, rule): seen for (device, rule), seen in was_bad.items() if (device, _cause(rule) or rule) in later}


def _standing(findings: Sequence[Finding]) -> dict[str, Finding]:
    return {finding.id: finding for finding in findings if finding.cleared_at is None}


def _rules(finding: Finding | None) -> set[str]:
    """The rules about readings that witness it."""
    return {rule for rule in (finding.rule, *finding.also) if rule in known_rules()} if finding else set()


def _cause(rule: str) -> str:
    return known_rules()[rule].same_as if rule in known_rules() else _KERNEL_CAUSES.get(rule, "")


def _clears_after(rule: str) -> timedelta | None:
    return known_rules()[rule].clears_after if rule in known_rules() else None


def _takes_out(rule: str) -> bool:
    """Whether it is a rule about readings that takes a node out."""
    return rule in known_rules() and tier(known_rules()[rule].tier).quarantines


def _needs(finding: Finding, rule: str) -> timedelta | None:
    """For how long it must be good by *rule*; None: that ends nothing."""
    span = _clears_after(rule)
    return None if span is None else min(span * 2 ** min(finding.count - 1, 20), LONGEST)
