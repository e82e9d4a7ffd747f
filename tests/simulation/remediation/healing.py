"""
The end of a schedule: all bad luck stops. Every node comes to rest or waits for a person. Then a person acts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from healthd.core.api import Lease, Node, NodeHealth, NodeRemediation, NodeRemediationStatus, Pod
from healthd.core.api.model import Verdict
from healthd.core.api.names import LABEL_PROBATION
from healthd.core.api.remediations import NodePhase
from tests.simulation.invariants import Broken
from tests.simulation.remediation import happenings
from tests.simulation.remediation.hands import RUNG_OF, mark_on
from tests.simulation.remediation.labels import HOLDS, ON, PLUGIN
from tests.simulation.remediation.watching import CHECKS, FAILED_CHECK, OTHER, QUARANTINE, WORD, is_idle_spare
from tests.simulation.step_scheduler import at_once

if TYPE_CHECKING:
    from tests.simulation.remediation.simulation import RemediationSimulation

ROUNDS = (*(5,) * 12, *(60,) * 60, *(900,) * 40)
"""Seconds between two rounds: hands have ten minutes, a check twenty, a probation some hours."""
WORDS = 8
"""After how many words of a person a node must be back."""
BY_HAND = 2
"""Of these words the last ones are repairs by hand."""
SLOT = "healthd-quarantine"
"""What the names of the slots of the budget begin with."""
ENDED = ("Succeeded", "Failed")
"""Phases of pods whose processes have ended."""
WITH_A_PERSON = (NodePhase.AWAITING_PERSON, NodePhase.RETIRED)


def heal(sim: RemediationSimulation) -> None:
    """Raises Broken where a node does not come to rest, or not back."""
    _end_bad_luck(sim)
    sim.note("--- healing")
    _converge(sim)
    sim.note("--- a person's word")
    words: Counter[str] = Counter()
    out = sorted(sim.hosts.all)
    while out and all(words[name] < WORDS for name in out):
        _say(sim, words)
        _converge(sim)
        out = _out_of_service(sim)
    if out:
        raise Broken(f"liveness: not back after a person's word: {_with_verdicts(sim, out)}")


def _end_bad_luck(sim: RemediationSimulation) -> None:
    sim.luck.is_out = sim.site.is_good = sim.hosts.is_honest = True
    sim.hosts.is_image_broken = False
    for name in sorted(sim.lost):
        sim.add_node(name)
    sim.lost.clear()
    if sim.clocks or any(host.clock_offset for host in sim.hosts.all.values()):
        _set_clocks_right(sim)
    for name in sim.hosts.all:
        happenings.annotate(sim, name, OTHER, None)
        if sim.watch.known[name].has_lost_record:
            at_once(sim.ground_truth.patch(Node, name, {"metadata": {"labels": {PLUGIN: ON, HOLDS: None}}}))
    for pod in at_once(sim.ground_truth.list(Pod)).items:
        if pod.metadata.name.startswith("extra"):
            at_once(sim.ground_truth.delete(Pod, pod.metadata.name, namespace="default", grace_seconds=0))


def _set_clocks_right(sim: RemediationSimulation) -> None:
    """And time passes until no stamp of theirs is in the future."""
    for host in sim.hosts.all.values():
        host.set_clock(timedelta(0))
        sim.agents[host.name].crash()
    for actor in sim.controllers:
        actor.crash()
    sim.clocks.clear()
    sim.pass_time(timedelta(hours=8))


def _converge(sim: RemediationSimulation) -> None:
    trouble, in_the_way = "", set[str]()
    for seconds in ROUNDS:
        for agent in sim.agents.values():
            sim.go(agent)
        for controller in sim.controllers:
            sim.go(controller)
        if sim.gang is not None:
            sim.gang.heal()
        sim.pass_time(timedelta(seconds=seconds))
        before, in_the_way = in_the_way, _checks_in_the_way(sim)
        if still := before & in_the_way:
            raise Broken(f"spare: {still} hold the GPUs of nodes that are no idle spares any more")
        trouble = _unsettled(sim)
        if not trouble:
            return
    raise Broken(f"liveness: {trouble}")


def _checks_in_the_way(sim: RemediationSimulation) -> set[str]:
    """Pods of checks of spares, on nodes that a recovery or a person took out of the pool."""
    pods = at_once(sim.ground_truth.list(Pod, namespace=CHECKS)).items
    going_on = [each for each in pods if each.metadata.name.endswith("-0") and each.status.phase not in ENDED]
    return {
        each.metadata.name
        for each in going_on
        if each.metadata.deletion_timestamp is None and not is_idle_spare(sim.watch.nodes.get(each.spec.node_name))
    }


def _unsettled(sim: RemediationSimulation) -> str:
    """Which node neither ends nor waits for a person, and why; empty: none. One may wait for the slot of another."""
    records = {each.metadata.name: each.status for each in at_once(sim.ground_truth.list(NodeRemediation)).items}
    nodes = {each.metadata.name: each for each in at_once(sim.ground_truth.list(Node)).items}
    held = set(sim.watch.slots.values())
    left_to_a_person = set()
    for name, node in sorted(nodes.items()):
        status = records.get(name)
        if why := _stray(sim, name):
            return why
        if status is None or status.phase is NodePhase.IN_SERVICE:
            if QUARANTINE in node.metadata.annotations and not node.metadata.annotations.get(WORD):
                return f"{name} is out of service, and nothing is on record"
            if LABEL_PROBATION in node.metadata.labels:
                return f"{name} is in service, and has the mark of a probation"
        elif _is_with_a_person(status):
            left_to_a_person.add(name)
        elif not (status.phase is NodePhase.DRAINED and "slots of" in status.message and held - {name}):
            return f"{name} is in {status.phase}: {status.message}"
    if refused := _refused_with_a_free_slot(sim, nodes):
        return f"{refused} are bad and in service, and the budget has a slot"
    waiting = [name for name, status in records.items() if status.phase is NodePhase.DRAINED]
    return f"{waiting} wait for slots that no one holds" if waiting and not held & left_to_a_person else ""


def _refused_with_a_free_slot(sim: RemediationSimulation, nodes: Mapping[str, Node]) -> list[str]:
    """Bad nodes in service. Their agents ask for a slot of the budget again minutes after it came free."""
    held = [each for each in at_once(sim.ground_truth.list(Lease)).items if each.metadata.name.startswith(SLOT)]
    if len(held) >= sim.config.quarantine.budget:
        return []
    health = {each.metadata.name: each.status.verdict for each in at_once(sim.ground_truth.list(NodeHealth)).items}
    bad = [name for name in sorted(nodes) if health.get(name) is Verdict.UNHEALTHY]
    return [name for name in bad if QUARANTINE not in nodes[name].metadata.annotations]


def _is_with_a_person(status: NodeRemediationStatus) -> bool:
    is_to_check = status.phase is NodePhase.CHECKING and "healthd repair" in status.message
    return is_to_check or status.phase in WITH_A_PERSON


def _stray(sim: RemediationSimulation, name: str) -> str:
    """What was left of what is over."""
    record = next((r for r in at_once(sim.ground_truth.list(NodeRemediation)).items if r.metadata.name == name), None)
    last = record.status.attempts[-1] if record is not None and record.status.attempts else None
    goes_on = last is not None and last.outcome is None
    if not goes_on:
        if left := _requests_left(sim, name):
            return left
        if name in sim.watch.slots.values():
            return f"{name} holds a slot and needs none"
    checks = at_once(sim.ground_truth.list(Pod, namespace=CHECKS)).items
    if not goes_on and any(each.spec.node_name == name and not _is_of_idle_spare(sim, record, each) for each in checks):
        return f"a check of {name} is left"
    node = sim.watch.nodes.get(name)
    return f"{name} says that it failed a check" if node and FAILED_CHECK in node.metadata.annotations else ""


def _is_of_idle_spare(sim: RemediationSimulation, record: NodeRemediation | None, pod: Pod) -> bool:
    """It goes on, and is on record, and nothing comes before it."""
    node = sim.watch.nodes.get(pod.spec.node_name)
    check = record.status.spare_check if record is not None else None
    is_spare = node is not None and node.metadata.labels.get("healthd.dev/spare") == "true"
    is_out = node is not None and QUARANTINE in node.metadata.annotations
    is_on_record = check is not None and check.outcome is None and pod.metadata.name.endswith(f"-{check.number}-0")
    return is_spare and is_on_record and not is_out


def _requests_left(sim: RemediationSimulation, name: str) -> str:
    """Requests of attempts that are over. Those of a record that a person deleted are left to that person."""
    orphaned = sim.watch.known[name].orphaned
    for kind in RUNG_OF:
        requests = [each for each in at_once(sim.ground_truth.list(kind)).items if each.spec["host"] == name]
        if any(int(each.metadata.name.rpartition("-")[2]) not in orphaned for each in requests):
            return f"a {kind.__name__} of {name} is left"
    node = at_once(sim.ground_truth.get(Node, name))
    if HOLDS in node.metadata.labels or node.metadata.labels.get(PLUGIN) != ON:
        return f"labels of a request on {name} are left"
    mark = mark_on(node)
    return f"a request on {name} is left" if mark and int(mark) not in orphaned else ""


def _say(sim: RemediationSimulation, words: Counter[str]) -> None:
    """
    A person asks for a further try of what waits, checks what should be checked, and repairs what does not mend.

    *words* counts what was said of each node. One that waits for a slot of the budget is still in service: what a
    person says of it begins when another node has come back.
    """
    sim.pass_time(timedelta(minutes=2))
    records = {each.metadata.name: each.status for each in at_once(sim.ground_truth.list(NodeRemediation)).items}
    for name in sorted(sim.hosts.all):
        happenings.annotate(sim, name, WORD, None)
        status = records.get(name)
        if status is None or status.phase is NodePhase.IN_SERVICE:
            continue
        words[name] += 1
        if words[name] > WORDS - BY_HAND or status.phase is NodePhase.CHECKING:
            host = sim.hosts.all[name]
            host.needs, host.broken = None, False
            happenings.said(sim, name)
        elif status.phase in WITH_A_PERSON:
            happenings.ask_for_retry(sim, name)


def _out_of_service(sim: RemediationSimulation) -> list[str]:
    """Nodes in quarantine."""
    nodes = at_once(sim.ground_truth.list(Node)).items
    return [node.metadata.name for node in nodes if QUARANTINE in node.metadata.annotations]


def _with_verdicts(sim: RemediationSimulation, names: list[str]) -> list[str]:
    """With what their agents still hold against them."""
    health = {each.metadata.name: each.status for each in at_once(sim.ground_truth.list(NodeHealth)).items}
    return [f"{name} ({health[name].verdict if name in health else ''})" for name in names]
