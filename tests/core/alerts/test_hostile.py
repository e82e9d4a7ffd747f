"""What tenants, kubelets and agents wrote ends no look, and what becomes of it can be stored."""

from __future__ import annotations

import json
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
from healthd.core.api import Node, NodeHealth, Recovery
from healthd.core.config import AlertsPolicy, QuarantinePolicy
from tests.cluster.test_crds import SCHEMAS, too_much
from tests.core.alerts.problems import Controller, at
from tests.core.gangs import a_root
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
