"""
Bugs planted on purpose, to show that the simulation would find them. Each replaces one program by one that is wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from healthd.agent.agent import Agent
from healthd.agent.dependencies import AgentDependencies
from healthd.agent.guard import Guard, Guarded
from healthd.agent.judge import Judge
from healthd.agent.node_state import NodeState
from healthd.cluster.nodes import patch_node
from healthd.controller.dependencies import ReconcilerDependencies
from healthd.controller.reconciler import Reconciler
from healthd.core.api import ANNOTATION_QUARANTINE, Attempt, FencedPod, Node, Recovery
from healthd.core.api.model import Finding
from healthd.core.config import Config
from healthd.core.config.gangs import StragglerMode
from healthd.core.diagnosis.readings import Sample
from healthd.core.diagnosis.signals.rule import Rule
from healthd.core.diagnosis.signals.tables import known_rules
from healthd.core.node import quarantine
from tests.simulation.simulation import Parts


class _Through:
    """A cluster between a program and the real one, which passes everything on."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


class _ProvesEverything(_Through):
    """Every pod of a recovery that is written counts as proven gone. The answer shows what was asked for."""

    async def patch(self, kind: type[Any], name: str, patch: Mapping[str, Any], **where: Any) -> Any:
        if kind is not Recovery or not patch.get("status", {}).get("pods"):
            return await self._cluster.patch(kind, name, patch, **where)
        pods = patch["status"]["pods"]
        proven = [{**pod, "proof": pod.get("proof") or "surely"} for pod in pods]
        written = await self._cluster.patch(kind, name, {"status": {**patch["status"], "pods": proven}}, **where)
        return replace(written, status=replace(written.status, pods=msgspec.convert(pods, list[FencedPod])))


class _ForgetsIntent(_Through):
    """What a recovery is about to start never reaches its record, though the answer says so."""

    async def patch(self, kind: type[Any], name: str, patch: Mapping[str, Any], **where: Any) -> Any:
        if kind is not Recovery or "attempts" not in patch.get("status", {}):
            return await self._cluster.patch(kind, name, patch, **where)
        attempts = msgspec.convert(patch["status"]["attempts"], list[Attempt])
        kept = {key: value for key, value in patch["status"].items() if key != "attempts"}
        written = await self._cluster.patch(kind, name, {"status": kept}, **where)
        return replace(written, status=replace(written.status, attempts=attempts))


class _ForgetsPreconditions(_Through):
    """Writes to whatever there is now, not to what was decided on."""

    async def patch(self, kind: type[Any], name: str, patch: Mapping[str, Any], **where: Any) -> Any:
        return await self._cluster.patch(kind, name, patch, **{**where, "resource_version": ""})


class _CountsThenCordons(Guard):
    """Lists the quarantined nodes, and cordons when there are few enough: two agents may count at the same time."""

    async def _quarantine(
        self, node: Node, record: quarantine.Record, findings: Sequence[Finding], now: datetime
    ) -> Guarded:
        nodes = (await self._cluster.list(Node)).items
        out = sum(ANNOTATION_QUARANTINE in other.metadata.annotations for other in nodes)
        if out >= self._policy.budget:
            return Guarded(node)
        return Guarded(await patch_node(self._cluster, node, quarantine.cordon_patch(node, record)))


class _ResumesFromTorn:
    """Takes the newest checkpoint by name, whether or not it is whole."""

    def __init__(self, checkpoints: Any) -> None:
        self._checkpoints = checkpoints

    async def latest(self, root: Any, *how: Any, **more: Any) -> Any:
        answer = await self._checkpoints.latest(root, *how, **more)
        if not answer.rejected:
            return answer
        newest = answer.rejected[0]
        found = replace(answer.found, path=newest.path, step=newest.step) if answer.found else None
        return answer._replace(found=found)

    async def newest_step(self, root: Any) -> Any:
        return await self._checkpoints.newest_step(root)


class _DoubtsNothing(_ResumesFromTorn):
    """Takes the newest that holds, however often it failed."""

    async def latest(self, root: Any, newer_than: Any = None, recovery: Any = None, doubted: Any = ()) -> Any:
        return await self._checkpoints.latest(root, newer_than, recovery)


class _TrustsOldSamples(NodeState):
    """Takes a source in trouble for one that still shows what it showed last."""

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
        self._last: dict[str, Sample] = {}

    def ingest_sample(self, sample: Sample, now: datetime) -> bool:
        if sample.trouble:
            sample = Sample(source=sample.source, at=sample.at, readings=self._last.get(sample.source, sample).readings)
        self._last[sample.source] = sample
        return super().ingest_sample(sample, now)


class _EndsAll(Judge):
    """Lets probes alone decide when a finding ends that the kernel reported, too."""

    def ingest_sample(self, sample: Sample, now: datetime) -> bool:
        super().ingest_sample(sample, now)
        over = {finding.id for finding in self._ledger.standing if finding.also and self._is_good(finding)}
        self._ledger = self._ledger.clear_recovered(over, now)
        return True

    def _is_good(self, finding: Finding) -> bool:
        probes = [known_rules()[rule] for rule in (finding.rule, *finding.also) if rule in known_rules()]
        goods = [(rule.clears_after, self._engine.good(finding.device, rule.name)) for rule in probes]
        return all(good is not None and wait is not None and good.seen >= wait for wait, good in goods)


class _CountsOn(Judge):
    """Clears the findings when the node was repaired, and goes on counting where it was."""

    def repaired(self, at: datetime, noticed: datetime | None = None) -> None:
        self._ledger = self._ledger.clear_by_repair(at, noticed)


class _HearsOfNoRepair(Judge):
    """Leaves it to the probes to see that the node was repaired."""

    def repaired(self, at: datetime, noticed: datetime | None = None) -> None:
        self._engine.settle(at, noticed)


def _guarded_by(guard: type[Guard]) -> Any:
    """Agents with another guard, that is made like theirs."""

    class Guarding(Agent):
        def __init__(self, dependencies: AgentDependencies) -> None:
            super().__init__(dependencies)
            self._guard.__class__ = guard

    return Guarding


def _judged_by(judge: type[Judge]) -> Any:
    """Agents with another judge."""

    class Judged(Agent):
        def __init__(self, dependencies: AgentDependencies) -> None:
            super().__init__(dependencies)
            self.state._judge = judge(dependencies.node, dependencies.judge, dependencies.rules, dependencies.metrics)

    return Judged


class _Trusting(Agent):
    """An agent that trusts old samples."""

    def __init__(self, dependencies: AgentDependencies) -> None:
        super().__init__(dependencies)
        judge, sources = self.state._judge, self.state._sources
        self.state = _TrustsOldSamples(dependencies.node.boot_id, judge, sources, dependencies.clock)


def _with_rules(change: Callable[[Rule], Rule]) -> Any:
    """Agents whose rules are all changed."""

    def make(dependencies: AgentDependencies) -> Agent:
        return Agent(dataclasses.replace(dependencies, rules=tuple(map(change, dependencies.rules))))

    return make


def _without_shadow(dependencies: AgentDependencies) -> Agent:
    return Agent(dataclasses.replace(dependencies, judge=replace(dependencies.judge, shadow=())))


def _slower(rule: Rule) -> Rule:
    return rule if rule.clears_after is None else replace(rule, clears_after=rule.clears_after * 3)


def _controller(through: type[_Through]) -> Any:
    def make(dependencies: ReconcilerDependencies, config: Config, **options: Any) -> Reconciler:
        seen: Any = through(dependencies.cluster)
        return Reconciler(dataclasses.replace(dependencies, cluster=seen), config, **options)

    return make


def _agent(through: type[_Through]) -> Any:
    def make(dependencies: AgentDependencies) -> Agent:
        return Agent(dataclasses.replace(dependencies, cluster=through(dependencies.cluster)))

    return make


def _careless(through: type[_ResumesFromTorn]) -> Any:
    def make(dependencies: ReconcilerDependencies, config: Config, **options: Any) -> Reconciler:
        seen = through(dependencies.checkpoints)
        return Reconciler(dataclasses.replace(dependencies, checkpoints=seen), config, **options)

    return make


def _swaps_unasked(dependencies: ReconcilerDependencies, config: Config, **more: Any) -> Reconciler:
    """Every gang that says nothing of slow ranks leaves their nodes."""
    hang = replace(config.hang, enabled=True, stragglers=StragglerMode.SWAP)
    return Reconciler(dependencies, replace(config, hang=hang), **more)


MUTANTS: dict[str, Parts] = {
    "skip-fence": Parts(controller=_controller(_ProvesEverything)),
    "forget-intent": Parts(controller=_controller(_ForgetsIntent)),
    "forget-preconditions": Parts(agent=_agent(_ForgetsPreconditions), controller=_controller(_ForgetsPreconditions)),
    "list-then-write-budget": Parts(agent=_guarded_by(_CountsThenCordons)),
    "resume-from-torn": Parts(controller=_careless(_ResumesFromTorn)),
    "doubt-nothing": Parts(controller=_careless(_DoubtsNothing)),
    "swap-unasked": Parts(controller=_swaps_unasked),
}

ON_SINGLE_NODE: dict[str, Parts] = {
    "trust-old-samples": Parts(agent=_Trusting),
    "believe-at-first-sight": Parts(agent=_with_rules(lambda rule: replace(rule, holds=timedelta(0)))),
    "forgive-late": Parts(agent=_with_rules(_slower)),
    "overrule-the-kernel": Parts(agent=_judged_by(_EndsAll)),
    "keep-witnesses-apart": Parts(agent=_with_rules(lambda rule: replace(rule, same_as=""))),
    "act-in-shadow": Parts(agent=_without_shadow),
    "count-through-repairs": Parts(agent=_judged_by(_CountsOn)),
    "hear-of-no-repair": Parts(agent=_judged_by(_HearsOfNoRepair)),
}
"""Those that schedules of one node find: one for each invariant of readings."""

__all__ = ["MUTANTS", "ON_SINGLE_NODE"]
