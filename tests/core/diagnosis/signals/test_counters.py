"""Counters: growth over a window, resets, wraps, hot-plug, gaps."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.core.diagnosis.signals.rule import Grows
from healthd.core.diagnosis.signals.series import DOUBT, MOST, Series, wrapped
from tests.core.diagnosis.signals.engine_driver import MINUTE, NIC, START, EngineDriver, read, rule

HOUR = timedelta(hours=1)
TEN_AN_HOUR = rule(Grows(10, HOUR))
FIRST = rule(Grows(1, HOUR))


def test_what_a_counter_shows_at_first_is_history() -> None:
    assert EngineDriver(TEN_AN_HOUR).counts(5000, 5000, 5001) == [False, False, False]


def test_growth_up_to_the_limit_is_bad() -> None:
    assert EngineDriver(TEN_AN_HOUR).counts(0, 9, 10) == [False, False, True]


def test_slow_growth_is_never_bad() -> None:
    assert not any(EngineDriver(TEN_AN_HOUR).counts(*range(30), after=timedelta(minutes=7)))


def test_growth_leaves_the_window() -> None:
    bench = EngineDriver(TEN_AN_HOUR)
    bench.counts(0, 10)

    assert bench.counts(10, after=timedelta(minutes=59)) == [True]
    assert bench.counts(10, after=timedelta(minutes=2)) == [False]


def test_growth_in_no_time_leaves_its_window_like_any_other() -> None:
    """The clock was set back between two samples, so the time of their source stood still."""
    bench = EngineDriver(rule(Grows(10, 10 * MINUTE)), rule(Grows(1000, HOUR), name="keeps-an-hour"))
    bench.counts(0)

    assert bench.counts(10, after=-MINUTE) == [True]
    assert bench.counts(10, after=9 * MINUTE) == [True]
    assert bench.counts(10) == [False]


def test_fatal_on_first_increase() -> None:
    assert EngineDriver(FIRST).counts(7, 7, 8) == [False, False, True]


def test_counter_that_was_reset_counts_from_there_once_it_is_certain() -> None:
    bench = EngineDriver(TEN_AN_HOUR)

    assert bench.counts(900, 3, 90) == [False, False, False]
    assert bench.counts(90, 99, 100, after=DOUBT) == [False, False, True]


def test_rise_that_is_taken_back_was_none_also_where_the_window_is_short() -> None:
    bench = EngineDriver(rule(Grows(10, MINUTE)))
    bench.counts(0, 20)
    bench.counts(20, 20, 11, after=timedelta(seconds=31))

    assert bench.counts(31, after=MINUTE) == [True]


def test_one_sample_does_not_make_a_reset_however_long_ago_it_was() -> None:
    bench = EngineDriver(TEN_AN_HOUR)
    bench.counts(900, 0)

    assert bench.counts(90, 90, after=timedelta(minutes=34)) == [False, False]
    assert bench.counts(100) == [True]


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param((12, 0, 12), id="zero for a moment"),
        pytest.param((12, 0, 0, 7, 0, 12), id="nonsense for a while"),
        pytest.param((10_000_000, 9_999_995, 10_000_003), id="a little less"),
        pytest.param((12, 0xFFFFFFFF, 12), id="32 ones"),
        pytest.param((4_294_967_276, 0xFFFFFFFF, 2_147_483_638, 4_294_967_276), id="ones, then half of it"),
        pytest.param((12, 0xFFFFFFFFFFFFFFFF, 12), id="64 ones"),
        pytest.param((12, float(0xFFFFFFFFFFFFFFFF), 12), id="64 ones as a float"),
        pytest.param((0xFFFFFFF0, 0, 0xFFFFFFF0), id="zero near the end of its range"),
        pytest.param((12, 9000, 0, 12), id="too much and then too little"),
        pytest.param((12, 11, 10, 9, 8), id="it falls and falls"),
    ],
)
def test_counter_that_shows_nonsense_did_not_grow(shown: tuple[float, ...]) -> None:
    a_moment = rule(Grows(17, HOUR), holds=timedelta(seconds=10))

    assert not any(EngineDriver(a_moment).counts(*shown, *shown[-1:] * 20, after=timedelta(seconds=1)))


def test_counter_of_a_device_that_does_not_answer_is_not_known_to_be_good() -> None:
    bench = EngineDriver(FIRST)

    bench.counts(12)
    assert bench.good_since("ib-symbol-errors") is not None
    bench.counts(0xFFFFFFFF)
    assert bench.good_since("ib-symbol-errors") is None
    bench.counts(12)
    assert bench.good_since("ib-symbol-errors") is not None


def test_counter_that_was_reset_long_ago_may_show_nonsense_like_any_other() -> None:
    bench = EngineDriver(FIRST)
    bench.counts(17, 4, after=HOUR)

    assert bench.counts(2, 4, after=HOUR) == [False, False]


def test_rise_that_is_taken_back_was_none() -> None:
    bench = EngineDriver(TEN_AN_HOUR)

    assert bench.counts(12, 9000, 13, 13, after=timedelta(seconds=10)) == [False, True, False, False]


Nonsense = st.lists(st.sampled_from([0, 1, 5, (1 << 20) - 5, (1 << 20) + 3]) | st.integers(0, 1 << 30), max_size=5)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 9), Nonsense), min_size=1, max_size=40))
def test_nonsense_between_true_values_never_makes_a_counter_grow_more_than_it_did(
    steps: list[tuple[int, list[float]]],
) -> None:
    series, true, at = Series(1 << 20, START, HOUR * 1000), 1 << 20, START
    for grown, nonsense in steps:
        true += grown
        for shown in [*nonsense, true]:
            at += timedelta(seconds=10)
            series.ingest(shown, at)

    assert series.grown(START) <= true - (1 << 20)
    assert series.total == series.grown(START)


@given(st.lists(st.integers(0, 100) | st.just(None), min_size=1, max_size=40))
def test_counter_that_is_reset_again_and_again_never_grows_more_than_it_did(steps: list[int | None]) -> None:
    series, shown, true = Series(0, START, HOUR * 1000), 0, 0
    for number, grown in enumerate(steps, start=1):
        shown = 0 if grown is None else shown + grown
        true += grown or 0
        series.ingest(shown, START + number * MINUTE)

    assert 0 <= series.grown(START) <= true


@pytest.mark.parametrize("bits", [32, 64])
def test_wrapped_counter_goes_on(bits: int) -> None:
    end = 1 << bits

    assert wrapped(float(end - 4096), 4096.0) == 8192
    assert EngineDriver(rule(Grows(8000, HOUR))).counts(float(end - 4096), 4096.0) == [False, True]


def test_counter_that_falls_from_the_middle_did_not_wrap() -> None:
    assert wrapped(float(1 << 31), 5) == 0


@pytest.mark.parametrize("bits", [32, 64])
def test_counter_near_its_end_that_shows_zero_once_did_not_wrap(bits: int) -> None:
    before = float((1 << bits) - 4096)

    assert wrapped(before, 0) == 0
    assert EngineDriver(rule(Grows(4096, HOUR))).counts(before, 0, before) == [False, False, False]


def test_device_that_comes_back_brings_its_own_past() -> None:
    bench = EngineDriver(TEN_AN_HOUR)
    bench.counts(0)
    bench.sample()

    assert bench.counts(4000, 4001) == [False, False]


def test_source_that_cannot_be_read_is_no_hot_plug() -> None:
    bench = EngineDriver(TEN_AN_HOUR)
    bench.counts(0)
    bench.sample(trouble="no answer")

    assert bench.counts(10) == [True]


def test_growth_over_a_long_gap_counts_in_proportion() -> None:
    bench = EngineDriver(TEN_AN_HOUR)
    bench.counts(0)

    assert bench.counts(38, after=4 * HOUR) == [False]
    assert bench.counts(80, after=4 * HOUR) == [True]


def test_first_increase_is_seen_across_any_gap() -> None:
    bench = EngineDriver(FIRST)
    bench.counts(0)

    assert bench.counts(1, after=100 * HOUR) == [True]


def test_clock_that_was_set_back_loses_nothing() -> None:
    bench = EngineDriver(TEN_AN_HOUR)
    bench.counts(0, 5)

    assert bench.counts(12, after=-2 * HOUR) == [True]


def test_repair_makes_a_new_beginning() -> None:
    bench = EngineDriver(TEN_AN_HOUR)
    bench.counts(0, 50)
    bench.engine.settle(bench.now)

    assert bench.counts(50, 55, 61) == [False, False, True]


def test_growth_that_may_have_come_before_a_repair_does_not_count() -> None:
    """The source was in trouble when the node was repaired; the counter went on before that or after."""
    bench = EngineDriver(FIRST)
    bench.counts(0)
    bench.sample(trouble="it does not answer")
    bench.engine.settle(bench.now)

    assert bench.counts(1, 1, 2) == [False, False, True]


def test_growth_that_nonsense_hid_until_after_a_repair_does_not_count() -> None:
    """It went on before the repair, and the first look after it showed zero for once."""
    bench = EngineDriver(FIRST)
    bench.counts(3)
    bench.engine.settle(bench.now + MINUTE)

    assert not any(bench.counts(0, 4, 4, after=timedelta(minutes=5)))
    assert bench.counts(5) == [True]


def test_total_counts_on_through_a_repair() -> None:
    series = Series(3, START, HOUR)
    series.settle(START + MINUTE)
    series.ingest(5, START + 2 * MINUTE)

    assert (series.total, list(series.growths)) == (2, [])


def test_sources_do_not_take_each_others_devices_for_gone() -> None:
    bench = EngineDriver(TEN_AN_HOUR)
    bench.counts(0)
    bench.sample(read(0, device="0000:9a:00.0"), source="roce")

    assert bench.counts(10) == [True]


def test_evidence_says_how_much_and_where() -> None:
    bench = EngineDriver(TEN_AN_HOUR)
    bench.counts(0)
    (bad,) = bench.sample(read(14))

    assert (bad.device, bad.part) == (NIC, "port 1")
    assert bad.text == "ib.symbol_error of port 1 grew by 14 in 1 h (limit 10), to 14"


def test_counter_that_always_counts_costs_no_more_memory() -> None:
    series = Series(0, START, HOUR)
    for second in range(1, 3000):
        series.ingest(second, START + timedelta(seconds=second))

    assert len(series.growths) <= MOST
    assert series.grown(START) == 2999
    assert series.grown(START + timedelta(seconds=2899)) == 100


def test_calm_counter_is_good_since_it_is_followed() -> None:
    bench = EngineDriver(TEN_AN_HOUR)
    bench.counts(0, 0)

    assert bench.good_since(TEN_AN_HOUR.name) == START + MINUTE


def test_no_one_knows_since_when_a_device_is_good_that_was_never_seen() -> None:
    assert EngineDriver(TEN_AN_HOUR).good_since(TEN_AN_HOUR.name) is None
