"""The rules about NICs: every one with a trace on which it speaks, and with one just beside it on which it does not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.api.model import Blame
from healthd.core.diagnosis.signals.nics import efa, ethernet, infiniband, roce
from healthd.core.diagnosis.signals.rule import Below, Changes, FellBelowBest, Grows, Is, IsNot, OutOfLine, Rule
from healthd.core.diagnosis.tiers import tier
from tests.core.diagnosis.signals.engine_driver import EngineDriver, read

TABLES = {"ib": infiniband.RULES, "roce": roce.RULES, "efa": efa.RULES, "eth": ethernet.RULES}
RULES = {rule.name: rule for table in TABLES.values() for rule in table}

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
PORTS = [f"0000:{number:02x}:00.0" for number in range(1, 9)]

GROWTHS = {
    "ib-link-flaps": (4, 3 * HOUR),
    "ib-link-downed": (1, HOUR),
    "ib-symbol-errors": (121, HOUR),
    "ib-symbol-errors-burst": (601, MINUTE),
    "ib-link-recoveries": (6, MINUTE),
    "ib-buffer-overruns": (1, HOUR),
    "ib-link-integrity": (1, HOUR),
    "ib-receive-errors": (601, MINUTE),
    "ib-remote-physical-errors": (601, MINUTE),
    "ib-switch-relay-errors": (601, MINUTE),
    "ib-transmit-discards": (6001, MINUTE),
    "ib-transmit-constraints": (1, HOUR),
    "ib-receive-constraints": (1, HOUR),
    "ib-management-dropped": (601, MINUTE),
    "ib-ack-timeouts": (61, MINUTE),
    "ib-receiver-not-ready": (1, HOUR),
    "ib-retries-exceeded": (1, HOUR),
    "roce-ack-timeouts": (61, MINUTE),
    "roce-slow-restarts": (601, MINUTE),
    "roce-receiver-not-ready": (1, HOUR),
    "roce-retries-exceeded": (1, HOUR),
    "roce-receiver-never-ready": (1, HOUR),
    "roce-damaged-packets": (11, HOUR),
    "roce-congestion-notices-ignored": (1, HOUR),
    "roce-bnxt-retries-exceeded": (1, HOUR),
    "roce-bnxt-unrecoverable": (1, HOUR),
    "roce-bnxt-memory-errors": (1, HOUR),
    "roce-bnxt-pci-transmit-errors": (1, HOUR),
    "roce-bnxt-pci-receive-errors": (1, HOUR),
    "roce-irdma-congestion-notices-ignored": (1, HOUR),
    "efa-commands-unanswered": (1, HOUR),
    "efa-commands-failed": (100, HOUR),
    "efa-receive-drops": (160, MINUTE),
    "efa-read-errors": (160, MINUTE),
    "efa-write-errors": (160, MINUTE),
    "efa-remotes-unresponsive": (160, MINUTE),
    "efa-connections-impaired": (160, MINUTE),
    "efa-retransmit-timeouts": (160, MINUTE),
    "efa-retransmits": (1060, MINUTE),
    "efa-retransmitted-bytes": (1_000_060, MINUTE),
    "efa-queue-pairs-refused": (10, HOUR),
    "efa-completion-queues-refused": (10, HOUR),
    "efa-memory-refused": (10, HOUR),
    "efa-addresses-refused": (10, HOUR),
    "eth-link-flaps": (4, 3 * HOUR),
    "eth-carrier-changes": (3, HOUR),
    "eth-checksum-errors": (61, MINUTE),
    "eth-frame-errors": (61, MINUTE),
    "eth-carrier-errors": (1, HOUR),
    "eth-symbol-errors": (121, HOUR),
    "eth-uncorrected-symbols": (121, HOUR),
    "eth-module-hot": (1, HOUR),
    "eth-module-bus-stuck": (1, HOUR),
    "eth-module-shorted": (1, HOUR),
    "eth-module-unplugged": (1, HOUR),
    "eth-pause-storm": (1, HOUR),
    "eth-pause-storm-warning": (1, HOUR),
    "eth-pause-sent-time": (6_000_000, MINUTE),
    "eth-pci-receive-signal": (60, HOUR),
    "eth-pci-transmit-signal": (60, HOUR),
}
"""So much growth within so long is bad, and one less is not."""

WORDS = {
    "ib-port-down": ("down", "up", 30 * SECOND),
    "ib-port-down-off-rail": ("down-off-rail", "unused", MINUTE),
    "ib-port-disabled": ("disabled", "unused", MINUTE),
    "ib-port-not-managed": ("no-manager", "up", 5 * MINUTE),
    "ib-port-never-up": ("never-up", "unused", 10 * MINUTE),
    "ib-device-gone": ("no", "yes", MINUTE),
    "ib-not-usable": ("no", "yes", MINUTE),
    "ib-link-retrains": ("LinkErrorRecovery", "LinkUp", 10 * SECOND),
    "ib-counters-full": ("link_downed", "none", MINUTE),
    "eth-link-down": ("down", "unused", 30 * SECOND),
    "eth-link-off": ("off", "unused", MINUTE),
    "ib-port-not-up-since-boot": ("no", "yes", 10 * MINUTE),
    "eth-port-not-up-since-boot": ("no", "yes", 10 * MINUTE),
}
"""This word is bad once it has stood for so long, and that one is not."""

SLOWER = {
    "ib-rate-below-peers": "ib.peer_rate",
    "ib-rate-fell": "",
    "eth-speed-below-peers": "eth.peer_speed",
    "eth-speed-fell": "",
    "ib-fewer-devices": "ib.devices.before",
    "ib-rate-below-before": "ib.rate.before",
    "ib-rate-below-expected": "ib.rate.expected",
    "ib-too-few-ports": "ib.ports_up.expected",
    "eth-speed-below-before": "eth.speed.before",
}
"""Bad below this other reading, or else below what it was before, once it was so for long enough."""

FLOORS = {
    "ib-out-of-sequence": 1000,
    "ib-sequence-errors": 1000,
    "roce-out-of-sequence": 1000,
    "roce-sequence-errors": 1000,
    "roce-implied-sequence-errors": 100,
    "roce-adaptive-retransmits": 1000,
    "roce-adaptive-retransmit-timeouts": 100,
    "roce-no-receive-buffers": 1000,
    "roce-congestion-notices-sent": 10_000,
    "roce-congestion-notices-handled": 10_000,
    "roce-congestion-marks": 10_000,
    "roce-bnxt-retransmits": 1000,
    "roce-bnxt-sequence-errors": 1000,
    "roce-bnxt-out-of-sequence": 1000,
    "roce-bnxt-errors": 1000,
    "roce-bnxt-discards": 1000,
    "roce-irdma-retransmits": 1000,
    "roce-irdma-discards": 1000,
    "roce-irdma-protocol-errors": 100,
    "roce-irdma-congestion-marks": 10_000,
    "roce-irdma-congestion-notices-sent": 10_000,
    "efa-retransmits-beyond-peers": 1000,
    "eth-missed": 1000,
    "eth-overflows": 1000,
    "eth-corrected-bits": 100_000_000,
    "eth-receive-discards": 1000,
    "eth-transmit-discards": 1000,
    "eth-pause-received-time": 6_000_000,
    "eth-pause-sent": 10_000,
    "eth-pause-received": 10_000,
    "eth-pci-read-stalls": 60,
    "eth-pci-write-stalls": 60,
    "eth-pci-overflows": 1000,
}
"""Bad when one port of eight grows by so much within five minutes, and the others do not grow."""


FLAPS = {"ib-rail-link-flaps": (4, 3 * HOUR)}
"""Bad once it was lost and came back so often within so long, and not once less."""


def last_of(rule: Rule, *values: float | str, after: timedelta) -> bool:
    """Whether the rule calls the last of *values* bad, read *after* one another."""
    bench = EngineDriver(rule)
    return [bool(bench.sample(read(value, name=rule.reads), after=after)) for value in values][-1]


def bad_ports(rule: Rule, *growths: int) -> list[str]:
    """Which of eight ports the rule calls bad that grew by so much in a minute."""
    bench = EngineDriver(rule)
    bench.sample(*(read(7, device, rule.reads) for device in PORTS))
    grown = zip(PORTS, growths, strict=True)
    return [bad.device for bad in bench.sample(*(read(7 + growth, device, rule.reads) for device, growth in grown))]


def test_every_rule_has_its_trace() -> None:
    assert sorted([*GROWTHS, *WORDS, *SLOWER, *FLOORS, *FLAPS]) == sorted(RULES)


@pytest.mark.parametrize("name", GROWTHS)
def test_counter_that_grows_as_much_as_its_limit(name: str) -> None:
    growth, within = GROWTHS[name]

    assert last_of(RULES[name], 40, 40 + growth, 40 + growth, after=within / 2)


@pytest.mark.parametrize("name", GROWTHS)
def test_counter_that_grows_by_less_or_more_slowly(name: str) -> None:
    growth, within = GROWTHS[name]

    assert not last_of(RULES[name], 40, 40 + growth - 1, after=within / 2)
    assert not last_of(RULES[name], 40, 40 + growth, 40 + growth, after=2 * within)


@pytest.mark.parametrize("name", GROWTHS)
def test_lifetime_of_a_counter_is_no_growth(name: str) -> None:
    assert not last_of(RULES[name], 10_000_000, 10_000_000, after=SECOND)


@pytest.mark.parametrize("name", WORDS)
def test_word_that_stands_for_long_enough(name: str) -> None:
    bad, good, holds = WORDS[name]

    assert last_of(RULES[name], good, bad, bad, after=holds)
    assert not last_of(RULES[name], good, bad, after=holds)
    assert not last_of(RULES[name], good, bad, bad, after=holds / 2)
    assert not last_of(RULES[name], bad, good, good, after=holds)


@pytest.mark.parametrize("name", SLOWER)
def test_port_that_is_slower_than_others_or_than_before(name: str) -> None:
    rule = RULES[name]

    def looks(usual: int, *rates: int) -> bool:
        bench = EngineDriver(rule)
        others = [read(usual, name=SLOWER[name])] if SLOWER[name] else []
        return [bool(bench.sample(read(rate, name=rule.reads), *others, after=rule.holds)) for rate in rates][-1]

    assert looks(400, 400, 200, 200)
    assert not looks(400, 400, 200)
    assert not looks(400, 400, 400, 400)
    assert not looks(200, 200, 400, 400), "faster is no fault"


@pytest.mark.parametrize("name", FLAPS)
def test_link_that_is_lost_again_and_again(name: str) -> None:
    times, within = FLAPS[name]
    flap = ("up", "down")

    assert last_of(RULES[name], *flap * times, "up", after=within / 20)
    assert not last_of(RULES[name], *flap * (times - 1), "up", after=within / 20)
    assert not last_of(RULES[name], *flap * times, "up", after=within / 4)


@pytest.mark.parametrize("name", FLOORS)
def test_port_that_is_far_beyond_its_peers(name: str) -> None:
    floor = FLOORS[name]

    assert bad_ports(RULES[name], 0, 0, floor, 0, 0, 0, 0, 0) == [PORTS[2]]


@pytest.mark.parametrize("name", FLOORS)
def test_congestion_of_all_ports_is_no_finding(name: str) -> None:
    floor = FLOORS[name]

    assert bad_ports(RULES[name], *(floor * (8 + at) for at in range(8))) == []
    assert bad_ports(RULES[name], 0, 0, floor - 1, 0, 0, 0, 0, 0) == []


def test_names_and_prefixes() -> None:
    assert len(RULES) == sum(map(len, TABLES.values())), "no two rules have one name"
    for family, table in TABLES.items():
        assert [rule.name for rule in table if not rule.name.startswith(f"{family}-")] == []
        assert [rule.name for rule in table if not rule.reads.startswith(f"{family}.")] == []


def test_every_rule_says_where_its_number_is_from_and_names_a_tier() -> None:
    assert [rule.name for rule in RULES.values() if not rule.source or not rule.summary] == []
    assert [rule.name for rule in RULES.values() if rule.summary.endswith(".") or tier(rule.tier) is None] == []


def test_only_a_link_that_is_down_or_lost_again_and_again_takes_a_node_out() -> None:
    assert [rule.name for rule in RULES.values() if tier(rule.tier).quarantines] == [
        "ib-port-down",
        "ib-link-flaps",
        "ib-rail-link-flaps",
    ]


def test_what_is_compared_with_peers_never_does_more_than_report() -> None:
    compared = [rule for rule in RULES.values() if isinstance(rule.test, OutOfLine)]

    assert {rule.tier for rule in compared} == {"record", "suspect"}


def test_tables_are_at_least_as_long_as_that_of_nvsentinel() -> None:
    assert min(map(len, TABLES.values())) >= 12


def test_errors_that_began_elsewhere_are_not_blamed_on_the_port() -> None:
    assert RULES["ib-remote-physical-errors"].blame is Blame.PEER
    assert RULES["ib-symbol-errors"].blame is Blame.LINK


def test_tests_of_rules_are_of_the_kinds_that_have_traces() -> None:
    assert {type(RULES[name].test) for name in GROWTHS} == {Grows}
    assert {type(RULES[name].test) for name in WORDS} == {Is, IsNot}
    assert {type(RULES[name].test) for name in SLOWER} == {Below, FellBelowBest}
    assert {type(RULES[name].test) for name in FLOORS} == {OutOfLine}
    assert {type(RULES[name].test) for name in FLAPS} == {Changes}
