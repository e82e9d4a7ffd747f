"""What the recovery of a gang is to the person on call."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from healthd.core.alerts.advice import IN_CLUSTER, way_out
from healthd.core.alerts.gangs import JUST_ENDED, Gangs, newest_given_up, problem_of
from healthd.core.alerts.problem import Problem, Shared
from healthd.core.api import Recovery, TimelineEntry
from healthd.core.api.incidents import Severity
from healthd.core.api.model import CauseKind, Phase
from healthd.core.recovery.gang import Root, RootOutcome
from healthd.core.recovery.holds import OPEN, UNREADABLE
from tests.builders import a_cause, a_finding, a_node, a_nodehealth
from tests.core.alerts.problems import at
from tests.core.gangs import a_recovery_in, a_root
from tests.fakes import START

HARDWARE = a_cause(node="n1", finding="0000:3b:00.0/xid-79", message="GPU has fallen off the bus")
SOFTWARE = a_cause(CauseKind.SOFTWARE, message="rank-0 exited with code 1")


def problem(
    recovery: Recovery, *, root: Root | None = None, is_newest: bool = True, now: Any = START
) -> Problem | None:
    """What is wrong, if anything is."""
    nodes = {"n1": a_node("n1", unschedulable=True)}
    health = {"n1": a_nodehealth("n1", findings=[a_finding()])}
    seen = Gangs(nodes=nodes, health=health, root=lambda _: root)
    return next(problem_of(recovery, seen, now, is_newest=is_newest), None)


def held(phase: Phase, message: str = "so it was", cause: Any = HARDWARE) -> Recovery:
    return a_recovery_in(Phase.HELD, held_in=phase, message=message, causes=[cause])


@pytest.mark.parametrize(
    ("recovery", "reason", "shared"),
    [
        (held(Phase.DETECTED), "the budget of quarantines is used up", Shared.NODES),
        (held(Phase.FENCING), "old pods may still write", Shared.NODES),
        (held(Phase.RESERVING), "no spare", Shared.NODES),
        (held(Phase.RESERVING, OPEN), "the breaker is open", Shared.NODES),
        (held(Phase.RESERVING, OPEN, SOFTWARE), "the breaker is open", Shared.RESTARTS),
        (held(Phase.CHOOSING), "nothing to resume from", Shared.NONE),
        (held(Phase.DETECTED, UNREADABLE), "its annotations cannot be read", Shared.NONE),
    ],
)
def test_a_gang_that_waits_is_a_page_that_says_what_to_do(recovery: Recovery, reason: str, shared: Shared) -> None:
    found = problem(recovery)

    assert found is not None
    assert (found.severity, found.reason, found.shared) == (Severity.PAGE, reason, shared)
    assert found.todo
    assert found.runbook


def test_it_says_what_happened_what_was_done_and_which_command_says_more() -> None:
    found = problem(held(Phase.RESERVING, "no spare for n1"))

    assert found is not None
    assert found.title == "job/train in default waits: no spare for n1"
    assert found.happened == "hardware: n1: GPU has fallen off the bus."
    assert "no spare for n1" in found.did
    assert found.command == "healthd explain job/train -n default"
    assert (found.key, found.nodes, found.gang) == ("recovery/default/train-1", ("n1",), "job/train")


def test_how_to_answer_for_old_pods_is_said_word_for_word() -> None:
    found = problem(held(Phase.FENCING))

    assert found is not None
    assert "kubectl annotate recovery train-1 -n default healthd.dev/fence-override='all: WHY'" in found.todo


def test_a_problem_begins_with_the_fault_however_late_the_gang_has_to_wait() -> None:
    timeline = [TimelineEntry(phase=Phase.DETECTED, at=START), TimelineEntry(phase=Phase.HELD, at=at(900))]
    found = problem(a_recovery_in(Phase.HELD, held_in=Phase.RESERVING, timeline=timeline, phase_since=at(900)))

    assert found is not None
    assert found.since == START


def test_a_recovery_that_goes_on_is_a_notice() -> None:
    found = problem(a_recovery_in(Phase.STARTING, causes=[HARDWARE]))

    assert found is not None
    assert (found.severity, found.todo) == (Severity.NOTICE, "")
    assert found.title == "job/train in default is being restarted: GPU has fallen off the bus"


def test_one_that_recovered_says_what_is_left_to_repair_for_a_while() -> None:
    recovery = a_recovery_in(Phase.RECOVERED, causes=[HARDWARE], ended_at=at(60), took="1m")
    found = problem(recovery, now=at(61))

    assert found is not None
    assert (found.resolved, found.todo) == (at(60), "Once n1 is repaired: `healthd repair n1`.")
    assert problem(recovery, now=at(60) + JUST_ENDED) is None


def test_one_that_its_user_ended_is_no_problem() -> None:
    assert problem(a_recovery_in(Phase.SUPERSEDED)) is None


@pytest.mark.parametrize(
    ("root", "is_newest", "is_open"),
    [
        (a_root(suspended=True), True, True),
        (a_root(suspended=True), False, False),
        (a_root(suspended=False), True, False),
        (a_root(suspended=True, ending=RootOutcome.FAILED), True, False),
        (None, True, False),
    ],
    ids=["left alone", "another one followed", "started again", "ended", "deleted"],
)
def test_a_gang_that_was_given_up_is_a_page_until_somebody_sees_to_it(
    root: Root | None, is_newest: bool, is_open: bool
) -> None:
    found = problem(a_recovery_in(Phase.GAVE_UP), root=root, is_newest=is_newest, now=START + timedelta(days=9))

    assert (found is not None and found.severity is Severity.PAGE) is is_open


def test_of_each_gang_that_was_given_up_the_newest_recovery_counts() -> None:
    first, second = a_recovery_in(Phase.GAVE_UP), a_recovery_in(Phase.STOPPING)
    second = replace(second, spec=replace(second.spec, first_attempt=2))

    assert newest_given_up([second, first])["uid-train"] is second
    assert newest_given_up([first, second])["uid-train"] is second
    assert newest_given_up([second]) == {}


def test_where_the_place_of_the_checkpoints_cannot_be_read_the_way_out_is_not_to_list_them() -> None:
    place = "the checkpoints at ftp://server/runs cannot be read: healthd reads no ftp://"
    refused = "no checkpoint at pvc://runs will load; the newest, step-5.pt: it cannot be read: no such file"
    held = {why: a_recovery_in(Phase.HELD, held_in=Phase.CHOOSING, message=why) for why in (place, refused)}

    assert way_out(held[place], IN_CLUSTER).startswith("Correct the annotation healthd.dev/checkpoint of the gang")
    assert "healthd checkpoints list FOLDER" in way_out(held[refused], IN_CLUSTER)


def test_the_way_out_of_a_wait_is_a_command_for_that_recovery() -> None:
    held = way_out(a_recovery_in(Phase.HELD, held_in=Phase.FENCING, message="no proof"), IN_CLUSTER)

    assert "`kubectl annotate recovery train-1 -n default healthd.dev/fence-override='all: WHY'`" in held
    assert way_out(a_recovery_in(Phase.STOPPING), IN_CLUSTER) == ""
