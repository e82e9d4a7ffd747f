"""The state of the page: its head, what a viewer sees of it, and what changed."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import msgspec

from healthd.core.api import IncidentRecord, ObjectMeta, PodStatus
from healthd.core.api.incidents import Incident, Severity
from healthd.core.api.model import BreakerTrigger, Phase
from healthd.core.api.save_stats import Save, Saves
from healthd.core.recovery.terms import KUBERNETES
from healthd.core.report.listing.fleet import summary
from healthd.core.report.page.lists import GangEntry, gang_entry, incident_entry, recovery_entry
from healthd.core.report.page.nodes import node_cell
from healthd.core.report.page.state import EVERYTHING, PageState, Scope, Surroundings, changes, head, visible
from tests.builders import a_node, a_pod, a_recovery
from tests.core.gangs import a_recovery_in, a_root
from tests.fakes import START

LATER = START + timedelta(minutes=5)
SAVES = Saves(watched_since=START, good=[Save(step=7, at=START + timedelta(minutes=2))])
TEAM_A = Scope(namespaces=frozenset({"team-a"}), nodes=False)


def gang(namespace: str = "team-a", now: Any = LATER, **root: Any) -> GangEntry:
    made = a_root(saves=SAVES, **root)
    made = dataclasses.replace(made, ref=msgspec.structs.replace(made.ref, namespace=namespace))
    return gang_entry(made, [a_pod("train-0", node="a", status=PodStatus(phase="Running"))], [], now)


def incident(namespace: str) -> IncidentRecord:
    spec = Incident(
        key=f"recovery/{namespace}/train-1",
        severity=Severity.PAGE,
        title="job/train waits",
        opened=START,
        updated=START,
        namespace=namespace,
        todo="give it a spare\x1b[2J",
    )
    return IncidentRecord(metadata=ObjectMeta(name="one", namespace="healthd-system"), spec=spec)


def around(**fields: Any) -> Surroundings:
    given: dict[str, Any] = {"name": "lab", "terms": KUBERNETES, "fleet": summary({}, {}, []), "budget": 2}
    return Surroundings(**{**given, **fields})


STATE = PageState(
    nodes={"a": node_cell(a_node("a"), None, "rack", START)},
    gangs={"team-a/job/train": gang("team-a"), "team-b/job/train": gang("team-b")},
    recoveries={f"{name}/train-1": recovery_entry(a_recovery(namespace=name)) for name in ("team-a", "team-b")},
    incidents={name or "nodes": incident_entry(incident(name)) for name in ("", "team-a", "team-b")},
)


def test_a_gang_costs_more_every_second_without_a_change_of_its_entry() -> None:
    before, after = gang(now=LATER), gang(now=LATER + timedelta(seconds=33, microseconds=7))

    assert before == after
    assert before.stake_since == START + timedelta(minutes=2)


def test_a_recovery_has_its_timeline() -> None:
    entry = recovery_entry(a_recovery_in(Phase.HELD))

    assert not entry.is_over
    assert [each.phase for each in entry.timeline] == [each.phase for each in a_recovery_in(Phase.HELD).status.timeline]


def test_a_viewer_of_one_namespace_sees_nothing_of_others() -> None:
    seen = visible(STATE, TEAM_A)

    assert (list(seen.nodes), list(seen.gangs)) == ([], ["team-a/job/train"])
    assert (list(seen.recoveries), list(seen.incidents)) == (["team-a/train-1"], ["team-a"])


def test_who_may_read_nodes_sees_them_and_not_the_gangs_of_others() -> None:
    seen = visible(STATE, Scope(namespaces=frozenset(), nodes=True))

    assert list(seen.nodes) == ["a"]
    assert [len(table) for table in (seen.gangs, seen.recoveries, seen.incidents)] == [0, 0, 0]


def test_who_may_read_everything_sees_everything() -> None:
    assert visible(STATE, EVERYTHING) is STATE


def test_the_head_has_the_lines_of_top() -> None:
    full = head(STATE, around(fleet=summary({"a": a_node("a")}, {}, [])))

    assert full.summary == ["nodes  1: 1 unknown, 0 spares free", "gangs  2: 2 starting"]
    assert full.budget is not None
    assert full.budget.text == "0 of 2 nodes in quarantine"


def test_the_head_of_one_namespace_counts_its_gangs_alone() -> None:
    seen = head(visible(STATE, TEAM_A), around(), TEAM_A)

    assert seen.summary == ["gangs  1: 1 starting"]
    assert (seen.budget, seen.breaker) == (None, None)


def test_a_budget_that_is_used_up_and_an_open_breaker_need_attention() -> None:
    full = around(fleet=summary({}, {}, [])._replace(quarantined=2), triggers=frozenset({BreakerTrigger.NODES}))
    shown = head(STATE, full)

    assert shown.budget is not None
    assert shown.budget.is_bad
    assert shown.breaker is not None
    assert shown.breaker.text == "open: too many nodes went bad at once; restarts wait"


def test_only_what_changed_is_sent() -> None:
    after = PageState(
        nodes={**STATE.nodes, "b": STATE.nodes["a"]},
        gangs={"team-a/job/train": gang("team-a"), "team-b/job/train": gang("team-b", suspended=True)},
        recoveries={},
        incidents=STATE.incidents,
    )

    assert changes(STATE, after) == {
        "nodes": {"b": STATE.nodes["a"]},
        "gangs": {"team-b/job/train": after.gangs["team-b/job/train"]},
        "recoveries": {"team-a/train-1": None, "team-b/train-1": None},
    }
    assert changes(after, after) == {}


def test_text_of_others_is_made_safe() -> None:
    assert incident_entry(incident("team-a")).todo == "give it a spare\\u001b[2J"
