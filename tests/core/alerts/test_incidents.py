"""One incident for each cause, with a key that stays and revisions that grow."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthd.core.alerts.problem import Problem, Shared, as_text, stamp
from healthd.core.api.incidents import LONGEST_KEY, LONGEST_TEXT, LONGEST_TITLE, MOST_NODES, Severity, key_of
from healthd.core.config import AlertsPolicy, TeamPolicy
from tests.builders import a_node
from tests.core.alerts.problems import RACK, Controller, a_broken_node, a_problem, a_wait, an_incident, at, restored
from tests.fakes import START


def test_a_page_is_opened_at_once_and_a_notice_when_it_lasts() -> None:
    controller = Controller()

    assert [each.key for each in controller.look([a_wait("recovery/a/x"), a_problem("recovery/b/y")], at(1))] == [
        "recovery/a/x"
    ]
    assert [each.key for each in controller.look([a_wait("recovery/a/x"), a_problem("recovery/b/y")], at(11))] == [
        "recovery/b/y"
    ]


def test_a_recovery_that_comes_to_wait_becomes_a_page_under_its_key() -> None:
    controller = Controller()
    controller.look([a_problem("recovery/a/x")], at(11))
    (page,) = controller.look([a_wait("recovery/a/x", since=at(20))], at(20))

    assert (page.key, page.revision, page.severity) == ("recovery/a/x", 2, Severity.PAGE)
    assert page.opened == START


def test_nothing_new_is_no_revision() -> None:
    controller = Controller()
    controller.look([a_wait("recovery/a/x")], at(0))

    assert controller.look([a_wait("recovery/a/x")], at(60)) == []


def test_a_problem_that_is_gone_resolves_its_incident_once() -> None:
    controller = Controller()
    controller.look([a_wait("recovery/a/x")], at(0))
    (over,) = controller.look([], at(60))

    assert (over.resolved, over.revision, over.severity, over.todo) == (at(60), 2, Severity.PAGE, "")
    assert controller.look([], at(70)) == []


def test_a_recovery_that_ended_closes_its_incident_with_its_own_words() -> None:
    controller = Controller()
    controller.look([a_problem("recovery/a/x")], at(11))
    done = a_problem("recovery/a/x", title="runs again", resolved=at(30))
    (over,) = controller.look([done], at(31))

    assert (over.title, over.resolved) == ("runs again", at(30))
    assert controller.look([a_problem("recovery/a/x", title="another", resolved=at(30))], at(40)) == []


def test_a_recovery_that_was_over_before_a_leader_looked_is_reported_once() -> None:
    controller = Controller()
    done = a_problem("recovery/a/x", resolved=at(3))

    assert [each.resolved for each in controller.look([done], at(4))] == [at(3)]
    assert controller.look([done], at(5)) == []


def test_gangs_that_wait_for_nodes_are_one_page_with_a_list() -> None:
    controller = Controller()
    waits = [a_wait(f"recovery/a/job-{n}", since=at(n), node=f"n{n}") for n in range(40)]
    for count in (1, 3, 40):
        controller.look(waits[:count], at(count))

    (page,) = controller.open().values()
    assert (page.key, page.namespace, page.gang) == ("recovery/a/job-0", "a", "")
    assert len(page.nodes) == 40
    assert page.title == "40 gangs on 40 nodes: no spare"


def test_what_begins_later_is_a_page_of_its_own() -> None:
    controller = Controller()
    controller.look([a_wait("recovery/a/x")], at(0))
    controller.look([a_wait("recovery/a/x"), a_wait("recovery/b/y", since=at(301))], at(301))

    assert controller.pages() == ["recovery/a/x", "recovery/b/y"]


def test_gangs_that_had_a_notice_keep_it_when_they_join_a_page() -> None:
    controller = Controller()
    controller.look([a_problem("recovery/a/x"), a_problem("recovery/a/y")], at(11))
    controller.look([a_wait("recovery/a/x", since=at(12)), a_wait("recovery/a/y", since=at(13))], at(20))

    assert controller.pages() == ["recovery/a/x"]
    assert controller.open()["recovery/a/y"].severity is Severity.NOTICE
    assert "part of incident recovery/a/x" in controller.open()["recovery/a/y"].todo


def test_a_page_about_gangs_of_several_namespaces_is_of_no_namespace_and_each_keeps_a_notice() -> None:
    controller = Controller()
    waits = [a_wait("recovery/a/x"), a_wait("recovery/b/y", since=at(1))]
    controller.look(waits, at(1))
    controller.look(waits, at(12))

    assert controller.pages() == ["recovery/a/x"]
    assert controller.open()["recovery/a/x"].namespace == ""
    assert controller.open()["recovery/b/y"].namespace == "b"


def test_the_page_stays_while_one_of_its_gangs_waits() -> None:
    controller = Controller()
    first, second = a_wait("recovery/a/x"), a_wait("recovery/a/y", since=at(1))
    controller.look([first, second], at(1))
    controller.look([a_problem("recovery/a/x", resolved=at(20)), second], at(20))
    controller.look([second], at(2000))

    assert controller.pages() == ["recovery/a/x"]
    assert [each.resolved for each in controller.look([], at(2010))] == [at(2010)]


def test_too_many_restarts_are_a_page_for_each_namespace() -> None:
    controller = Controller()
    waits = [
        a_wait(f"recovery/{space}/{n}", shared=Shared.RESTARTS, scope=space) for space in ("a", "b") for n in range(9)
    ]
    controller.look(waits, at(0))

    assert {each.namespace for each in controller.open().values()} == {"a", "b"}
    assert len(controller.pages()) == 2


def test_agents_that_go_missing_much_later_join() -> None:
    controller = Controller()
    early = a_problem("healthd/agents/1", shared=Shared.AGENTS, nodes=("a",))
    late = a_problem("healthd/agents/0", shared=Shared.AGENTS, nodes=("a", "b"), since=at(-90_000))
    controller.look([early], at(11))
    (update,) = controller.look([late], at(90_000))

    assert (update.key, update.nodes) == ("healthd/agents/1", ("a", "b"))


def test_a_rack_that_fails_is_one_notice_that_names_it() -> None:
    nodes = {f"n{number}": a_node(f"n{number}", labels={RACK: "r7"}) for number in range(750)}
    controller = Controller(nodes=nodes)
    controller.look([a_broken_node(name, since=at(number % 60)) for number, name in enumerate(nodes)], at(70))

    (incident,) = controller.open().values()
    assert incident.title == "750 nodes of r7: out of service for xid-79"
    assert incident.labels == {"cause": "node", "domain": "r7"}
    assert len(incident.nodes) == 750


def test_labels_stay_although_another_domain_joins() -> None:
    nodes = {"n1": a_node("n1", labels={RACK: "r1"}), "n2": a_node("n2", labels={RACK: "r2"})}
    controller = Controller(nodes=nodes)
    controller.look([a_broken_node("n1")], at(11))
    controller.look([a_broken_node("n1"), a_broken_node("n2")], at(20))

    (incident,) = controller.open().values()
    assert (incident.nodes, incident.labels["domain"]) == (("n1", "n2"), "r1")
    assert incident.title == "2 nodes: out of service for xid-79"


def test_a_storm_that_grows_is_a_revision_every_five_seconds() -> None:
    controller = Controller()
    revisions = 0
    for tick in range(100):
        waits = [a_wait(f"recovery/a/{n}", node=f"n{n}") for n in range(tick + 1)]
        revisions += len(controller.look(waits, at(tick / 5)))

    assert revisions == 4


def test_the_team_follows_from_the_namespace() -> None:
    teams = (TeamPolicy(name="vision", namespaces=("vision-*",)), TeamPolicy(name="all", namespaces=("*",)))
    controller = Controller(AlertsPolicy(teams=teams, default_team="platform"))
    controller.look([a_wait("recovery/vision-1/x"), a_wait("recovery/nlp/y", shared=Shared.NONE)], at(0))
    controller.look([a_wait("recovery/vision-1/x"), a_wait("recovery/nlp/y", shared=Shared.NONE)], at(0))

    assert {key: each.team for key, each in controller.open().items()} == {
        "recovery/vision-1/x": "vision",
        "recovery/nlp/y": "all",
    }


def test_texts_are_bounded() -> None:
    controller = Controller()
    long = [
        a_wait(f"recovery/a/{n}", node=f"n{n}", happened="x" * 9000, did="y" * 9000, todo="z" * 9000, title="t" * 999)
        for n in range(2000)
    ]
    (alone,) = controller.look(long[:1], at(0))
    (many,) = Controller().look(long, at(0))

    for each in (alone, many):
        assert len(each.title) <= LONGEST_TITLE
        assert max(len(each.happened), len(each.did), len(each.todo)) <= LONGEST_TEXT
        assert len(each.nodes) <= MOST_NODES


def test_a_key_is_short_and_plain_and_different_names_have_different_keys() -> None:
    assert key_of("recovery", "team-a", "llama-3") == "recovery/team-a/llama-3"
    long = {key_of("node", "n" * 253 + end, "20260101T000000Z") for end in "abc"}
    assert len(long) == 3
    assert max(map(len, long)) == LONGEST_KEY
    assert key_of("node", "a b") != key_of("node", "a-b")


def test_the_name_of_the_cluster_begins_the_key_at_services_and_any_name_fits() -> None:
    assert an_incident("node/n1/1", cluster="prod-eu").dedup_key == "prod-eu/node/n1/1"
    assert an_incident("node/n1/1").dedup_key == "node/n1/1"
    long = an_incident("n" * LONGEST_KEY, cluster="x y\n").dedup_key
    assert len(long) == LONGEST_KEY
    assert long.startswith("x-y-/nnn")


def test_an_incident_keeps_the_name_of_the_cluster_that_it_was_opened_with() -> None:
    controller = Controller()
    controller.look([a_wait("recovery/a/1")], at(0))
    controller.cluster = "prod-eu"
    (renamed,) = controller.look([a_wait("recovery/a/1", title="other")], at(60))
    (over, new) = controller.look([a_problem("recovery/b/2", severity=Severity.PAGE)], at(120))

    assert (renamed.dedup_key, renamed.revision) == ("recovery/a/1", 2)
    assert {over.dedup_key, new.dedup_key} == {"recovery/a/1", "prod-eu/recovery/b/2"}


def test_sentences_are_made_of_what_was_found() -> None:
    assert as_text(["it is down", "", "See to it!"]) == "It is down. See to it!"


PROBLEMS = st.lists(
    st.builds(
        lambda n, since, shared, page: a_problem(
            f"recovery/{'ab'[n % 2]}/{n}",
            since=at(since),
            shared=shared,
            severity=Severity.PAGE if page else Severity.NOTICE,
            nodes=(f"n{n}",),
        ),
        st.integers(0, 5),
        st.integers(0, 1000),
        st.sampled_from([Shared.NONE, Shared.NODES, Shared.AGENTS]),
        st.booleans(),
    ),
    unique_by=lambda problem: problem.key,
    max_size=6,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.lists(PROBLEMS, min_size=1, max_size=6))
def test_a_leader_that_takes_over_at_any_point_decides_the_same(looks: list[list[Problem]]) -> None:
    steady, replaced = Controller(), Controller()
    for number, problems in enumerate(looks):
        now = at(1000 + 60 * number)
        replaced.known = {key: restored(each) for key, each in replaced.known.items()}
        expected = steady.look(problems, now)
        assert replaced.look(list(reversed(problems)), now) == expected


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.lists(PROBLEMS, min_size=1, max_size=6))
def test_every_page_is_in_an_open_page_and_revisions_only_grow(looks: list[list[Problem]]) -> None:
    controller, seen = Controller(), dict[str, int]()
    for number, problems in enumerate(looks):
        for incident in controller.look(problems, at(1000 + 60 * number)):
            assert incident.revision - seen.get(incident.key, 0) in (0, 1)
            seen[incident.key] = incident.revision
        paged = {name for key in controller.pages() for name in controller.open()[key].nodes}
        assert {name for each in problems if each.severity is Severity.PAGE for name in each.nodes} <= paged
        if not problems:
            assert controller.open() == {}


def test_nothing_is_changed_by_a_second_look_at_the_same() -> None:
    controller = Controller()
    problems = [a_wait("recovery/a/x", node="n1"), a_broken_node("n9"), a_problem("recovery/b/z")]
    controller.look(problems, at(60))

    assert controller.look(list(reversed(problems)), at(120)) == []


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
def test_a_time_at_the_end_of_the_calendar_is_a_part_of_a_key(moment: str) -> None:
    assert stamp(datetime.fromisoformat(moment)).endswith("Z")
