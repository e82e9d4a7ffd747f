"""Which rank of a gang on Kubernetes the others wait for, by the published work of its pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil

import pytest
from msgspec.structs import replace

from healthd.core.api.health import PodWork
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.common_windows import KNOWN_FOR
from healthd.core.hang.work.gang_work import GangWork
from healthd.core.hang.work.straggler_text import pod_reason, sentence_of
from healthd.core.hang.work.work_windows import Window
from tests.core.hang.published import LENGTH, Agents

AN_HOUR = 240


class Gang:
    """A gang of pods, and the controller that compares them after each window."""

    def __init__(self, ranks: int = 8) -> None:
        self.agents = Agents(ranks)
        self.work: GangWork | None = None
        self.questions: list[list[str]] = []
        """Ranks that have been asked about, after each window."""

    def run(self, windows: int, cores: Mapping[str, float | Window]) -> list[Straggler]:
        """What changed in so many windows."""
        changes = list[Straggler]()
        for _ in range(windows):
            self.agents.work(1, cores)
            changes += self.compare()
        return changes

    def run_steps(self, windows: int, period: float, longer: Mapping[str, float] | None = None) -> list[Straggler]:
        """
        The same of steps *period* seconds apart, which count in the window in which they begin. In each of them a pod
        works for 2 s with one core, and the *longer* ones for so many seconds more.
        """
        changes = list[Straggler]()
        for number in range(windows):
            begin, end = (ceil(each * LENGTH / period) for each in (number, number + 1))
            seconds = {name: 2.0 + (longer or {}).get(name, 0.0) for name in self.agents.names}
            changes += self.run(1, {name: (end - begin) * each / LENGTH for name, each in seconds.items()})
        return changes

    def ask(
        self, windows: int, cores: Mapping[str, float | Window], *, writing: Mapping[int, Sequence[str]]
    ) -> list[Straggler]:
        """The same where agents write when they are asked, and those of the ranks *writing* by number of the window."""
        changes, until = list[Straggler](), dict[str, datetime]()
        for number in range(1, windows + 1):
            now = self.agents.now + timedelta(seconds=LENGTH)
            self.agents.writing = set(writing.get(number, ""))
            self.agents.asked = {name for name, each in until.items() if now - timedelta(seconds=LENGTH) < each}
            changes += self.run(1, cores)
            assert self.work
            until |= self.work.to_ask(self.agents.now)
            self.questions += [sorted(until)] if until else []
        return changes

    def compare(self) -> list[Straggler]:
        published = self.agents.published
        if self.work is None or not self.work.is_of(published):
            self.work = GangWork(published)
        return self.work.observe(published, self.agents.now)


def even(cores: float = 4.0, ranks: int = 8) -> dict[str, float | Window]:
    return {str(rank): cores for rank in range(ranks)}


def slow(
    rank: int, by: float = 0.1, *, cores: float = 4.0, own: float | None = None, ranks: int = 8
) -> dict[str, float | Window]:
    """Each step takes longer *by* because of one rank, which uses as much as before: the others work less."""
    waiting = cores / (1 + by)
    return {str(each): (cores if own is None else own) if each == rank else waiting for each in range(ranks)}


@pytest.mark.parametrize("cores", [0.7, 1.0, 1.2, 4.0, 7.7, 60.0])
def test_a_pod_for_which_its_peers_begin_to_wait_is_named(cores: float) -> None:
    gang = Gang()
    assert gang.run(AN_HOUR, even(cores)) == []
    began = gang.agents.now

    (straggler,) = gang.run(8, slow(3, 0.12, cores=cores))

    assert (straggler.rank, straggler.since) == ("3", began)
    assert straggler.slower == pytest.approx(0.12, abs=0.01)
    assert straggler.seen_at - began <= timedelta(minutes=2)


def test_by_how_much_its_peers_wait_is_known_where_a_window_has_three_or_four_long_steps() -> None:
    gang = Gang()
    assert gang.run_steps(AN_HOUR, 4.6) == []

    (straggler,) = gang.run_steps(24, 5.06, longer={"3": 0.46})

    assert straggler.rank == "3"
    assert straggler.slower == pytest.approx(0.1, abs=0.025)


@pytest.mark.parametrize("ranks", [8, 64])
def test_where_agents_write_rarely_some_are_asked_and_the_rank_is_named_within_two_minutes(ranks: int) -> None:
    gang = Gang(ranks)
    gang.run(AN_HOUR, even(ranks=ranks))
    began = gang.agents.now
    writing = {3: [str(rank) for rank in range(2, 2 + max(4, ranks // 4))]}

    (straggler,) = gang.ask(8, slow(3, 0.12, ranks=ranks), writing=writing)

    assert straggler.rank == "3"
    assert straggler.seen_at - began <= timedelta(minutes=2)
    assert straggler.slower == pytest.approx(0.12, abs=0.015)
    assert len(gang.questions[0]) == 4
    assert len(gang.questions[-1]) <= 20


@pytest.mark.parametrize("ranks", [2, 3])
def test_in_a_gang_of_two_or_three_pods_all_are_asked_and_the_rank_is_named_within_two_minutes(ranks: int) -> None:
    gang = Gang(ranks)
    gang.run(AN_HOUR, even(ranks=ranks))
    began = gang.agents.now

    (straggler,) = gang.ask(8, slow(1, 0.2, ranks=ranks), writing={3: gang.agents.names})

    assert straggler.rank == "1"
    assert straggler.seen_at - began <= timedelta(minutes=2)
    assert gang.questions[0] == gang.agents.names


def test_of_two_pods_one_that_only_uses_more_is_asked_about_and_not_named() -> None:
    gang = Gang(2)
    gang.run(AN_HOUR, even(ranks=2))
    uses_more = {"0": 4.0, "1": 4.8}

    assert gang.ask(20, uses_more, writing={3: ["0", "1"], 12: ["0", "1"]}) == []
    assert gang.questions


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_ten_minutes_after_the_start_a_rank_is_named_by_what_was_asked_too(ranks: int) -> None:
    gang = Gang(ranks)
    gang.run(40, even(ranks=ranks))
    began = gang.agents.now

    (straggler,) = gang.ask(8, slow(1, 0.2, ranks=ranks), writing={3: gang.agents.names})

    assert straggler.rank == "1"
    assert straggler.seen_at - began <= timedelta(minutes=2)


def test_rank_0_is_asked_about_when_it_has_been_slow_for_minutes_and_named_within_five() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())
    began = gang.agents.now

    (straggler,) = gang.ask(20, slow(0, 0.15), writing={5: ["0", "1", "2", "3"], 15: ["0", "1", "2", "3"]})

    assert straggler.rank == "0"
    assert straggler.seen_at - began <= timedelta(minutes=5)
    assert len(gang.questions) <= 3, "nothing was asked before the newest five minutes could name it"


def test_agents_that_do_not_answer_make_no_straggler_and_are_asked_a_few_times() -> None:
    """They are of an older healthd."""
    gang = Gang()
    gang.run(AN_HOUR, even())
    gang.agents.silent = set(gang.agents.names) - {"3", "4", "5", "6"}

    assert gang.ask(8, slow(3, 0.12), writing={3: ["3", "4", "5", "6"]}) == []
    assert gang.questions


def test_a_pause_of_a_minute_costs_one_answer_of_four_agents() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())

    assert gang.ask(4, slow(3, 0.3), writing={3: ["3", "4", "5", "6"]}) == []
    assert gang.ask(8, even(), writing={}) == []
    assert len(gang.questions[-1]) == 4


def test_a_clock_that_is_ahead_keeps_no_rank_from_being_named() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())
    gang.agents.ahead["7"] = timedelta(seconds=15)

    assert [each.rank for each in gang.ask(9, slow(3, 0.2), writing={3: ["3", "4", "5", "6"]})] == ["3"]


def test_an_answer_of_long_after_now_keeps_no_rank_from_being_named() -> None:
    """Of an agent whose clock was ahead for a moment: windows that are kept by their number would stay for ever."""
    gang = Gang()
    gang.run(AN_HOUR, even())
    assert gang.work
    published = dict(gang.agents.published)
    later = PodWork(end=gang.agents.now + timedelta(hours=1), seconds=5, cores=[9.0] * 24)
    for name in ("3", "4", "5"):
        published[name] = published[name]._replace(recent=later)
    assert gang.work.observe(published, gang.agents.now) == []

    assert [each.rank for each in gang.ask(9, slow(3, 0.2), writing={3: ["3", "4", "5", "6"]})] == ["3"]


def test_it_is_named_once_and_its_end_is_reported_once() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())

    assert [each.ended_at for each in gang.run(AN_HOUR, slow(3))] == [None]
    (over,) = gang.run(AN_HOUR, even())
    assert over.ended_at
    assert not over.was_stopped
    assert gang.work
    assert gang.work.present == []


@pytest.mark.parametrize("is_new_leader", [False, True])
def test_its_end_is_when_it_began_to_keep_up_and_not_when_that_is_seen(is_new_leader: bool) -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())
    (slow_one,) = gang.run(20, slow(3))
    if is_new_leader:
        gang.work = GangWork(gang.agents.published)
        gang.work.adopt(slow_one)
        assert gang.run(30, slow(3)) == []
    kept_up = gang.agents.now

    (over,) = gang.run(20, even())

    assert over.ended_at == kept_up


def test_a_pod_that_uses_more_while_its_peers_work_as_before_is_none() -> None:
    """Such as a server of metrics in it."""
    gang = Gang()
    gang.run(AN_HOUR, even())

    assert gang.run(AN_HOUR, {**even(), "3": 4.8}) == []


def test_a_pod_that_uses_much_more_while_its_peers_work_hardly_less_is_none() -> None:
    """Its peers miss 2 % for another reason, such as their data: they would miss far more if they waited for it."""
    gang = Gang()
    gang.run(AN_HOUR, even(3.2))

    assert gang.run(AN_HOUR, {**even(3.136), "3": 4.0}) == []


def test_a_pod_that_uses_more_while_another_pauses_now_and_then_is_none() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even(3.2))

    for _ in range(20):
        assert gang.run(2, {**even(3.2), "3": 3.6}) == []
        assert gang.run(1, {**slow(5, 0.3, cores=3.2), "3": 2.9}) == []


def test_pauses_of_another_in_the_past_do_not_hide_that_peers_wait_a_bit_more() -> None:
    gang = Gang()
    for _ in range(AN_HOUR // 4):
        assert gang.run(3, even(3.2)) == []
        assert gang.run(1, slow(5, 0.3, cores=3.2)) == []

    assert [each.rank for each in gang.run(12, slow(3, 0.04, cores=3.2, own=3.5))] == ["3"]


def test_a_pod_that_uses_more_from_the_start_is_none() -> None:
    assert Gang().run(AN_HOUR, {**even(), "3": 4.8}) == []


def test_a_pod_that_uses_more_from_the_start_is_named_when_its_peers_begin_to_wait_for_it() -> None:
    gang = Gang()
    gang.run(AN_HOUR, {**even(2.4), "3": 2.7})

    assert [each.rank for each in gang.run(10, {**even(2.0), "3": 2.7})] == ["3"]


def test_a_job_whose_pods_all_work_less_has_no_straggler() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())

    assert gang.run(AN_HOUR, even(2.5)) == []


def test_a_pod_that_gets_no_processor_is_named_though_it_uses_less_too() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())
    starved = {**slow(3), "3": Window(4.0 / 1.1, 0.1, 0.0)}

    (straggler,) = gang.run(10, starved)

    assert straggler.rank == "3"
    assert "get no processor 10% of the time" in pod_reason(straggler, [])


def test_a_pod_that_waits_for_a_disk_is_named_with_that_reason() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())

    (straggler,) = gang.run(10, {**slow(3), "3": Window(4.0 / 1.1, 0.0, 0.12)})

    assert "wait for a disk or a file system 12% of the time, those of its peers 0%" in pod_reason(straggler, [])


def test_the_sentence_names_pod_node_reason_and_findings() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())
    (found,) = gang.run(10, slow(3))
    found = replace(found, pod="train-3", node="gpu-7", reason=pod_reason(found, ["node/host-hot: it is hot"]))

    assert sentence_of(found) == (
        "rank 3 (pod train-3, node gpu-7) makes its gang about 10% slower (90% sure): it works, and its peers wait: "
        "it has more to do on the processor, or its processor is slower; its node has node/host-hot: it is hot"
    )


def test_an_agent_that_has_died_makes_its_gang_unknown() -> None:
    """What it published last would look like a pod that works as before while all others work less."""
    gang = Gang()
    gang.run(AN_HOUR, even())
    gang.agents.silent.add("3")

    assert gang.run(AN_HOUR, even(3.0)) == []


def test_windows_that_were_late_are_compared_when_they_come() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())
    gang.agents.silent.add("3")
    assert gang.run(8, slow(3)) == []

    gang.agents.silent.clear()
    (straggler,) = gang.run(1, slow(3))
    assert straggler.rank == "3"


def test_a_clock_that_is_a_bit_ahead_changes_nothing_and_one_that_is_hours_ahead_is_not_believed() -> None:
    gang, wrong = Gang(), Gang()
    gang.agents.ahead["2"] = timedelta(seconds=15)
    wrong.agents.ahead["2"] = timedelta(hours=5)
    for each in (gang, wrong):
        each.run(AN_HOUR, even())

    assert [each.rank for each in gang.run(10, slow(3))] == ["3"]
    assert wrong.run(AN_HOUR, slow(3)) == []


def test_an_evaluation_by_the_first_rank_is_no_straggler() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())

    assert gang.run(40, {**even(0.05), "0": 4.0}) == []


def test_a_new_controller_knows_the_present_from_what_is_published_and_ends_what_another_reported() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())
    (straggler,) = gang.run(40, slow(3))
    gang.work = GangWork(gang.agents.published)
    gang.work.adopt(straggler)

    assert gang.run(20, slow(3)) == []
    (over,) = gang.run(40, even())
    assert (over.rank, over.since, over.was_stopped) == ("3", straggler.since, False)


def test_other_pods_are_another_gang() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())
    before = gang.work
    published = gang.agents.published
    others = {name: each._replace(pod=f"new-{name}") for name, each in published.items()}

    assert before
    assert not before.is_of(others)
    assert not before.is_of({name: each for name, each in published.items() if name != "3"})


@pytest.mark.parametrize("seconds", [7, 1])
def test_windows_of_another_length_are_compared_where_they_fit_and_else_unknown(seconds: int) -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())
    published = gang.agents.published
    odd = published["3"]._replace(work=replace(published["3"].work, seconds=seconds))

    assert GangWork({**published, "3": odd}).observe({**published, "3": odd}, gang.agents.now) == []


def test_lists_that_do_not_fit_count_as_nothing() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())
    published = gang.agents.published
    odd = published["3"]._replace(work=replace(published["3"].work, starved=[1.0], stalled=[1.0] * 3))

    assert GangWork({**published, "3": odd}).observe({**published, "3": odd}, gang.agents.now + KNOWN_FOR) == []


def test_work_of_long_ago_costs_no_time_and_tells_nothing() -> None:
    """A node whose token was stolen may publish anything."""
    gang = Gang()
    gang.run(AN_HOUR, even())
    long_ago = {
        name: each._replace(work=replace(each.work, end=datetime(1970, 1, 2, tzinfo=UTC), seconds=1))
        for name, each in gang.agents.published.items()
    }

    work = GangWork(long_ago)
    assert work.observe(long_ago, gang.agents.now) == []
    assert work.observe(long_ago, gang.agents.now + timedelta(hours=1)) == []


def test_a_rank_that_is_slow_now_is_shown_with_how_much_slower_the_gang_is_by_all_windows_since() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())
    gang.run(20, slow(3, 0.2))
    gang.run(40, slow(3, 0.3))

    assert gang.work is not None
    (straggler,) = gang.work.slow_now(gang.agents.now)
    assert straggler.rank == "3"
    assert straggler.slower == pytest.approx(0.27, abs=0.01)
    assert straggler.seen_at == gang.agents.now


def test_a_new_controller_shows_what_is_on_record_only_where_its_own_windows_show_it() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())
    (recorded,) = gang.run(8, slow(3, 0.2))
    for rank, is_shown in (("3", True), ("5", False)):
        gang.work = None
        gang.compare()
        assert gang.work is not None
        gang.work.adopt(replace(recorded, rank=rank))
        shown = gang.work.slow_now(gang.agents.now)
        assert [(each.rank, each.since) for each in shown] == ([("3", recorded.since)] if is_shown else [])


def test_nothing_is_shown_of_a_rank_that_has_begun_to_keep_up_although_that_is_not_certain_yet() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())
    gang.run(40, slow(3, 0.2))
    gang.run(3, even())

    assert gang.work is not None
    assert [each.rank for each in gang.work.present] == ["3"]
    assert gang.work.slow_now(gang.agents.now) == []


def test_nothing_is_shown_any_more_when_the_agents_publish_nothing() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())
    gang.run(40, slow(3, 0.2))

    assert gang.work is not None
    assert gang.work.slow_now(gang.agents.now + KNOWN_FOR)
    assert gang.work.slow_now(gang.agents.now + KNOWN_FOR + timedelta(minutes=1)) == []


def test_two_are_shown_together_or_not_at_all() -> None:
    gang = Gang()
    gang.run(AN_HOUR, even())
    gang.run(40, slow(3, 0.2))
    assert gang.work is not None
    (straggler,) = gang.work.slow_now(gang.agents.now)
    gang.work.adopt(replace(straggler, rank="5"))

    assert gang.work.slow_now(gang.agents.now) == []
