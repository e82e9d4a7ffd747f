"""States and gauges: limits, holding, flapping, comparison with another reading, with the past, with peers."""

from __future__ import annotations

from datetime import timedelta

from healthd.core.diagnosis.signals.rule import AtLeast, Below, Changes, FellBelowBest, Grows, Is, IsNot, OutOfLine
from tests.core.diagnosis.signals.engine_driver import COUNTER, MINUTE, NIC, EngineDriver, read, rule

DEVICES = [f"0000:{number:02x}:00.0" for number in range(1, 9)]


def test_state_is_bad_while_it_is_one_of_the_bad_ones() -> None:
    assert EngineDriver(rule(Is(frozenset({"DOWN"})))).counts("ACTIVE", "DOWN", "ACTIVE") == [False, True, False]


def test_state_is_bad_while_it_is_none_of_the_good_ones() -> None:
    assert EngineDriver(rule(IsNot(frozenset({"ACTIVE", "4"})))).counts("ACTIVE", "INIT", 4, 5) == [
        False,
        True,
        False,
        True,
    ]


def test_state_that_is_bad_at_first_sight_is_bad() -> None:
    assert EngineDriver(rule(Is(frozenset({"yes"})))).counts("yes", "yes") == [True, True]


def test_nothing_is_said_before_a_state_has_held() -> None:
    bench = EngineDriver(rule(Is(frozenset({"DOWN"})), holds=2 * MINUTE))

    assert bench.counts("DOWN", "DOWN", "DOWN") == [False, False, True]
    assert bench.counts("ACTIVE", "DOWN", "DOWN", "ACTIVE") == [False, False, False, False]


def test_limit_of_a_gauge() -> None:
    assert EngineDriver(rule(AtLeast(90))).counts(89.5, 90) == [False, True]
    assert EngineDriver(rule(Below(4))).counts(4, 3) == [False, True]


def test_gauge_below_another_reading_of_the_same_part() -> None:
    bench = EngineDriver(rule(Below(other="ib.expected")))

    assert bench.sample(read(16), read(16, name="ib.expected")) == []
    assert bench.sample(read(16), read(32, name="ib.expected"))[0].text.endswith("is 16, below 32 (ib.expected)")


def test_nothing_is_said_without_the_reading_to_compare_with() -> None:
    bench = EngineDriver(rule(Below(other="ib.expected")))

    assert bench.sample(read(16), read(32, name="ib.expected", part="port 2")) == []


def test_compared_reading_may_change_alone() -> None:
    bench = EngineDriver(rule(Below(other="ib.expected")))
    bench.sample(read(16), read(16, name="ib.expected"))

    assert len(bench.sample(read(16), read(32, name="ib.expected"))) == 1


def test_gauge_below_its_best() -> None:
    assert EngineDriver(rule(FellBelowBest())).counts(8, 16, 8, 16) == [False, False, True, False]


def test_state_that_flaps() -> None:
    bench = EngineDriver(rule(Changes(4, timedelta(minutes=10))))

    assert bench.counts("up", "down", "up", "down", "up") == [False, False, False, False, True]
    assert bench.counts("up", after=timedelta(minutes=11)) == [False]


def test_device_that_grows_far_more_than_its_peers() -> None:
    bench = EngineDriver(rule(OutOfLine(score=6, floor=100, within=timedelta(minutes=10))))
    bench.sample(*(read(0, device=device) for device in DEVICES))
    alone = bench.sample(*(read(5000 if device == NIC else 40, device=device) for device in [NIC, *DEVICES]))
    bench.sample(*(read(40, device=device) for device in [NIC, *DEVICES]))
    one = bench.sample(*(read(900 if device == DEVICES[2] else 45, device=device) for device in DEVICES))

    assert alone == [], "a new device brings its own past"
    assert [bad.device for bad in one] == [DEVICES[2]]
    assert "its 7 peers by about 45" in one[0].text


def test_congestion_of_all_is_no_fault_of_a_port() -> None:
    bench = EngineDriver(rule(OutOfLine(score=6, floor=100, within=timedelta(minutes=10))))
    bench.sample(*(read(0, device=device) for device in DEVICES))

    assert bench.sample(*(read(9000 + at, device=device) for at, device in enumerate(DEVICES))) == []


def test_too_few_peers_say_nothing() -> None:
    bench = EngineDriver(rule(OutOfLine(score=6, floor=100, within=timedelta(minutes=10))))
    bench.sample(*(read(0, device=device) for device in DEVICES[:3]))

    assert bench.sample(*(read(9000 * at, device=device) for at, device in enumerate(DEVICES[:3]))) == []


def test_device_that_is_out_of_line_is_not_good_because_its_peers_are_gone() -> None:
    bench = EngineDriver(rule(OutOfLine(6, 1000, 10 * MINUTE)))
    bench.sample(*(read(0, device=device) for device in DEVICES))
    bench.sample(read(5000, device=DEVICES[0]), *(read(0, device=device) for device in DEVICES[1:]))

    assert [bad.device for bad in bench.sample(read(5000, device=DEVICES[0]))] == [DEVICES[0]]
    assert bench.engine.good(DEVICES[0], "ib-symbol-errors") is None


def test_device_that_does_not_answer_is_not_good_beside_its_peers() -> None:
    bench = EngineDriver(rule(OutOfLine(6, 1000, 10 * MINUTE)))
    bench.sample(*(read(0, device=device) for device in DEVICES))
    bench.sample(read(5000, device=DEVICES[0]), *(read(0, device=device) for device in DEVICES[1:]))
    silent = read(0xFFFFFFFF, device=DEVICES[0])

    bench.sample(silent, *(read(1, device=device) for device in DEVICES[1:]), after=timedelta(hours=1))

    assert bench.engine.good(DEVICES[0], "ib-symbol-errors") is None


def test_gauge_without_a_value_to_compare_with_is_not_good() -> None:
    bench = EngineDriver(rule(Below(other="ib.expected")))
    bench.sample(read(8), read(16, name="ib.expected"))

    assert len(bench.sample(read(8))) == 1
    assert bench.engine.good(NIC, "ib-symbol-errors") is None


def test_gauge_that_is_a_word_is_neither_good_nor_bad() -> None:
    bench = EngineDriver(rule(Below(4)))
    bench.counts(3, "unknown")

    assert len(bench.engine.bad()) == 1


def test_several_rules_read_the_same() -> None:
    bench = EngineDriver(rule(Grows(1, MINUTE), name="first"), rule(Grows(100, MINUTE), name="many"))
    bench.sample(read(0))

    assert [bad.rule.name for bad in bench.sample(read(5))] == ["first"]


def test_repair_makes_a_state_to_be_seen_anew() -> None:
    bench = EngineDriver(rule(Is(frozenset({"DOWN"}))))
    bench.counts("DOWN")
    bench.engine.settle(bench.now)

    assert bench.engine.bad() == []
    assert bench.counts("DOWN") == [True]


def test_repair_that_is_noticed_late_leaves_what_was_seen_since() -> None:
    bench = EngineDriver(rule(Is(frozenset({"DOWN"})), holds=3 * MINUTE))
    bench.counts("DOWN", "ACTIVE")
    repaired = bench.now
    bench.counts("DOWN", "DOWN", "DOWN")
    bench.engine.settle(repaired)

    assert bench.counts("DOWN") == [True]


def test_device_is_not_good_for_longer_than_it_was_seen_since_a_repair() -> None:
    bench = EngineDriver(rule(Is(frozenset({"DOWN"}))))
    bench.counts("ACTIVE")
    repaired = bench.now
    bench.counts("DOWN", "ACTIVE")
    bench.engine.settle(repaired)
    bench.counts("ACTIVE")
    good = bench.engine.good(NIC, "ib-symbol-errors")

    assert good is not None
    assert good.seen == MINUTE


def test_clock_that_was_set_back_does_not_stop_the_time_that_a_state_must_hold() -> None:
    bench = EngineDriver(rule(Is(frozenset({"DOWN"})), holds=2 * MINUTE))
    bench.counts("DOWN")
    bench.now -= 100 * MINUTE

    assert bench.counts("DOWN", "DOWN", "DOWN") == [False, False, True]
    assert bench.engine.bad()[0].at == bench.now


def test_reading_that_is_gone_is_forgotten_also_while_the_clock_goes_back() -> None:
    bench = EngineDriver(rule(Is(frozenset({"DOWN"}))))
    bench.counts("DOWN")
    bench.now -= 100 * MINUTE

    assert bench.sample() == []


def test_time_without_a_sample_is_not_known_to_be_good() -> None:
    bench = EngineDriver(rule(Is(frozenset({"DOWN"}))))
    bench.counts("ACTIVE", "ACTIVE")
    bench.sample(trouble="it does not answer", after=60 * MINUTE)
    good = bench.engine.good(NIC, "ib-symbol-errors")

    assert good is not None
    assert (good.seen, good.parts) == (MINUTE, frozenset({"port 1"}))


def test_good_since_the_worst_part_became_good() -> None:
    bench = EngineDriver(rule(Is(frozenset({"DOWN"}))))
    bench.sample(read("ACTIVE"), read("DOWN", part="port 2"))
    bench.sample(read("ACTIVE"), read("ACTIVE", part="port 2"))

    assert bench.good_since("ib-symbol-errors") == bench.now


def test_what_no_rule_reads_passes_by() -> None:
    bench = EngineDriver(rule(Is(frozenset({"DOWN"}))))

    assert bench.sample(read("DOWN", name=f"{COUNTER}.other")) == []
