"""When a gang hangs whose rhythm is not known yet: only if nothing at all goes on in it."""

from __future__ import annotations

import random
from datetime import timedelta
from math import nan

import pytest

from healthd.core.hang.describe import why_hang
from healthd.core.hang.samples import Usage
from healthd.core.hang.silence import GangRhythm, Silence, cannot_go_on
from healthd.core.hang.start import Start
from tests.core.hang.sampled import Gang, Second, is_stopped, is_traced


def starting(loads_for: int = 8, trains_for: int = 12, ranks: int = 4) -> Gang:
    """A gang that has loaded its program, and has made its first steps."""
    gang = Gang(ranks, rhythm=GangRhythm(starts=Start))
    assert gang.run(loads_for, loads) is None
    assert gang.run(trains_for, trains) is None
    return gang


def uses(states: str = "S", **rates: float) -> Second:
    """The same in each second."""
    usage = Usage(states=states, **rates)
    return lambda _rank, _at, _dice: usage


def trains(_rank: int, _at: int, dice: random.Random) -> Usage:
    share = dice.uniform(0.8, 1.2)
    return Usage(cpu=0.4 * share, ran=0.3 * share, switches=40 * share, faults=60 * share, calls=5, states="S")


loads = uses("R", cpu=1.0, ran=0.9, faults=4000, calls=300, read=2e6)


def waits(_rank: int, at: int, _dice: random.Random) -> Usage:
    """As torch does for its loaders: it looks every five seconds."""
    return Usage(cpu=0.003, ran=0.0002, switches=1, states="S") if at % 5 == 0 else Usage(cpu=0.003, states="S")


polls = uses("R", cpu=1.0, ran=1.0)


ASKS = {"cpu": 0.03, "ran": 0.015, "switches": 255, "calls": 370, "read": 3300, "written": 920}
asks = uses("S", **ASKS)
"""As the first rank of torch does, while others have not come to its store."""


def after(silence: Silence | None) -> timedelta:
    assert silence is not None
    return silence.seen_at - silence.since


@pytest.mark.parametrize("trains_for", [0, 1, 12, 30])
def test_a_gang_that_does_nothing_at_all_is_seen_before_its_rhythm_is_known(trains_for: int) -> None:
    gang = starting(trains_for=trains_for)

    silence = gang.run(40, waits)

    assert after(silence) <= timedelta(seconds=30)
    assert silence
    assert silence.is_start


@pytest.mark.parametrize("others", [waits, polls], ids=["sleep", "poll"])
def test_a_rank_that_is_stopped_in_the_first_minute_is_seen_within_eleven_seconds(others: Second) -> None:
    silence = starting().run(30, is_stopped, others, others, others)

    assert after(silence) <= timedelta(seconds=11)
    assert silence
    assert cannot_go_on(silence)


def test_it_is_a_start_in_words_and_names_what_each_rank_does() -> None:
    silence = starting().run(30, is_stopped, waits)

    assert silence
    assert why_hang(silence) == (
        "no rank has done anything for 10 s, before the rhythm of every rank was known: "
        "ranks 0, 2 are stopped (SIGSTOP); ranks 1, 3 sleep"
    )


def test_a_start_that_looks_now_and_then_whether_a_peer_has_come_is_reported_once_in_twice_as_long() -> None:
    """As torch does that waits for the rank with its store."""

    def looks(rank: int, at: int, _dice: random.Random) -> Usage:
        return Usage(cpu=0.001, ran=0.001, calls=2, states="S") if rank == 1 and at % 13 == 0 else Usage(states="S")

    gang = starting()
    gang.run(140, is_stopped, looks, waits, waits)

    reports = [now for before, now in zip([None, *gang.silences], gang.silences, strict=False) if now and not before]
    assert len(reports) == 1


def test_a_start_in_which_the_first_rank_asks_for_the_others_is_seen_as_one_in_which_it_sleeps() -> None:
    assert after(starting(trains_for=0).run(40, asks, waits)) <= timedelta(seconds=30)
    assert after(starting(trains_for=0).run(40, asks, is_stopped, waits, waits)) <= timedelta(seconds=11)


@pytest.mark.parametrize("loads_for", [8, 20, 40])
@pytest.mark.parametrize(
    ("first", "other"),
    [(waits, waits), (asks, waits), (is_stopped, waits), (is_stopped, polls)],
    ids=["all sleep", "one asks", "one is stopped", "one is stopped, and others poll"],
)
def test_a_start_that_hangs_for_long_is_no_rhythm(loads_for: int, first: Second, other: Second) -> None:
    gang = starting(loads_for=loads_for, trains_for=0)
    silence = gang.run(40, first, other, other, other)
    assert silence

    gang.run(1200, first, other, other, other)

    assert {later.since if later else None for later in gang.silences} == {silence.since}


def test_the_rhythm_is_learned_once_a_start_that_hung_goes_on() -> None:
    gang = starting(trains_for=0)
    assert gang.run(60, asks, waits, waits, waits)

    assert gang.run(240, trains) is None
    assert gang.rhythm.is_known


def test_ranks_that_all_ask_each_other_may_make_light_steps() -> None:
    assert starting().run(120, asks) is None


@pytest.mark.parametrize("more", [{"faults": 40}, {"cpu": 0.2}, {"read": 30_000.0}, {"calls": 20}])
def test_a_rank_that_does_more_than_asking_for_its_peers_may_work(more: dict[str, float]) -> None:
    assert starting().run(40, uses("S", **ASKS | more), waits, waits, waits) is None


waits_for_gpus = uses("R", cpu=1.0, ran=1.0, kernels=1.0)
"""Its GPU runs a kernel of NCCL that waits for other GPUs, and the rank polls for its end."""


def starting_on_gpus() -> Gang:
    """A gang that has loaded its program, and made its first steps on GPUs."""
    gang = Gang(4, rhythm=GangRhythm(starts=Start))
    assert gang.run(8, loads) is None
    assert gang.run(6, uses("R", cpu=1.0, ran=0.9, kernels=0.8, gpu=0.3)) is None
    return gang


@pytest.mark.parametrize("one", [waits_for_gpus, waits], ids=["all do", "one sleeps instead"])
def test_a_start_in_which_the_gpus_wait_for_each_other_is_seen_though_the_ranks_spin(one: Second) -> None:
    silence = starting_on_gpus().run(300, one, waits_for_gpus, waits_for_gpus, waits_for_gpus)

    assert after(silence) <= timedelta(seconds=30)
    assert silence
    assert silence.is_start


def test_gpus_that_wait_while_a_rank_is_stopped_are_seen_within_eleven_seconds() -> None:
    assert after(starting_on_gpus().run(30, is_stopped, waits_for_gpus)) <= timedelta(seconds=11)


def test_the_rhythm_is_learned_once_the_gpus_work_again() -> None:
    gang = starting_on_gpus()
    assert gang.run(40, waits_for_gpus)

    assert gang.run(90, uses("R", cpu=1.0, ran=0.9, switches=20, kernels=0.9, gpu=0.3)) is None
    assert gang.rhythm.is_known


@pytest.mark.parametrize(
    "work",
    [
        uses("R", cpu=1.0, ran=1.0, kernels=1.0, gpu=0.05),
        uses("R", cpu=1.0, ran=1.0, kernels=0.5),
        uses("R", cpu=1.0, ran=1.0, kernels=nan, gpu=nan),
        uses("R", cpu=1.0, ran=1.0, kernels=1.0, faults=400),
        polls,
    ],
    ids=["it uses its memory", "its kernels end", "its GPU does not answer", "it prepares data", "no kernel runs"],
)
def test_while_the_gpus_of_others_wait_a_rank_that_may_work_is_waited_for(work: Second) -> None:
    assert starting_on_gpus().run(60, work, waits_for_gpus, waits_for_gpus, waits_for_gpus) is None


def test_gpus_of_which_no_use_of_memory_was_ever_seen_may_not_say_it() -> None:
    assert starting().run(60, waits_for_gpus) is None


def test_a_start_that_goes_on_ends_the_silence_and_makes_no_later_hang_late() -> None:
    gang = starting()
    assert gang.run(40, waits)

    assert gang.run(120, trains) is None
    assert gang.silences[-1] is None
    assert after(gang.run(40, waits)) <= timedelta(seconds=13)


WORK: dict[str, Second] = {
    "one computes": polls,
    "one downloads, which a thread does": uses(cpu=0.03),
    "one reads from a disk": uses("D", cpu=0.01, read=2e6),
    "one prints its progress": uses(cpu=0.001, calls=1),
    "one touches memory": uses(cpu=0.005, faults=40),
    "one moves data": uses(cpu=0.005, network=1e5),
    "its GPU works": uses(cpu=0.003, gpu=0.2),
    "one makes light steps": uses(cpu=0.004, ran=0.002, switches=1),
    "one wakes up each second": uses(cpu=0.001, ran=0.0001, switches=1),
    "one is traced by a debugger": is_traced,
    "one gets no processor": uses("R"),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_a_start_in_which_one_rank_may_work_is_no_hang(work: Second) -> None:
    assert starting().run(40, waits, work, waits, waits) is None


@pytest.mark.parametrize("work", [WORK["one reads from a disk"], WORK["one prints its progress"]])
def test_a_rank_that_works_is_no_hang_though_another_is_stopped(work: Second) -> None:
    assert starting().run(40, is_stopped, work, waits, waits) is None


def test_a_gang_whose_ranks_all_compute_is_no_hang() -> None:
    assert starting().run(40, polls) is None


def test_a_gang_that_was_stopped_as_a_whole_was_stopped_by_a_person() -> None:
    assert starting().run(40, is_stopped) is None


def test_steps_that_sleep_for_many_seconds_are_work() -> None:
    def steps(_rank: int, at: int, _dice: random.Random) -> Usage:
        return Usage(cpu=0.003, ran=0.003, switches=3, states="S") if at % 25 == 0 else Usage(states="S")

    gang = Gang(rhythm=GangRhythm(starts=Start))
    gang.run(5, loads)

    assert gang.run(300, steps) is None


def test_a_script_that_waits_before_it_starts_the_program_is_no_hang() -> None:
    gang = Gang(rhythm=GangRhythm(starts=Start))

    assert gang.run(1, uses(cpu=0.01, ran=0.01, faults=500)) is None
    assert gang.run(90, uses()) is None


def test_one_rank_that_has_not_begun_is_part_of_the_hang_of_the_others() -> None:
    gang = Gang(rhythm=GangRhythm(starts=Start))
    late = uses("D", cpu=0.001, ran=0.001)
    gang.run(8, late, loads, loads, loads)

    assert gang.run(40, uses("D"), waits, waits, waits)


def test_a_rank_that_stopped_before_its_first_sample_is_part_of_the_hang_of_the_others() -> None:
    gang = Gang(ranks=2, rhythm=GangRhythm(starts=Start))
    gang.run(1, uses(cpu=0.04, ran=0.04))
    gang.run(8, uses(), loads)

    assert after(gang.run(40, uses(), waits)) <= timedelta(seconds=30)


def test_members_of_which_no_main_thread_is_known_are_not_judged() -> None:
    """Such as where the kernel does not count how long threads run."""
    gang = Gang(rhythm=GangRhythm(starts=Start))
    gang.run(20, uses(cpu=0.4, switches=40, faults=60))

    assert gang.run(40, uses(cpu=0.003)) is None


def test_what_the_gpus_of_a_rank_do_may_be_unknown() -> None:
    assert starting().run(40, uses(cpu=0.003, gpu=nan))


def test_where_starts_are_not_judged_nothing_is_seen_before_the_rhythm_is_known() -> None:
    gang = Gang()
    gang.run(20, trains)

    assert gang.run(60, waits) is None


def test_another_attempt_starts_anew() -> None:
    gang = starting(trains_for=90)
    gang.rhythm.restart()
    gang.run(8, loads)

    assert after(gang.run(40, waits)) <= timedelta(seconds=30)
