"""What the simulation of one node expects of readings, where a clock is set back."""

from __future__ import annotations

from datetime import timedelta

from healthd.core.diagnosis.readings import Reading, Sample
from healthd.core.diagnosis.signals.tables import known_rules
from tests.fakes import START
from tests.simulation.expected_findings import ExpectedFindings
from tests.simulation.finding_invariants import Accounts
from tests.simulation.machines import PCI

MINUTE = timedelta(minutes=1)
REPLAYS, XID_54 = known_rules()["nvml-nvlink-replays"], known_rules()["nvml-xid-54"]


def test_growth_in_no_time_is_expected_to_leave_its_window_like_any_other() -> None:
    """As in seed 3500034184."""
    expected = ExpectedFindings([REPLAYS])
    for value, after in [(0, 0), (11, -1), (11, 8), (11, 9)]:
        expected.take(a_sample(REPLAYS.reads, value, minutes=after))

    assert expected.good_for(PCI, REPLAYS.name)[0] == timedelta(0)


def test_what_was_read_before_a_repair_is_noticed_is_not_expected_to_be_reported_whatever_its_stamp() -> None:
    """As in seed 3500037848: the clock was set back by 5 s between the sample and the notice."""
    accounts = Accounts.of([XID_54])
    accounts.take(a_sample(XID_54.reads, 0, minutes=0))
    accounts.take(a_sample(XID_54.reads, 1, minutes=1))
    accounts.settle(START - MINUTE, START + MINUTE - timedelta(seconds=5))

    assert [account.bad() for account in accounts.both()] == [{(PCI, XID_54.name)}, set()]


def test_what_grows_after_a_repair_is_noticed_is_expected_to_be_reported_though_the_clock_was_set_back() -> None:
    accounts = Accounts.of([XID_54])
    accounts.take(a_sample(XID_54.reads, 0, minutes=1))
    accounts.settle(START - MINUTE, START + MINUTE - timedelta(seconds=5))
    accounts.take(a_sample(XID_54.reads, 1, minutes=2))

    assert [account.bad() for account in accounts.both()] == [{(PCI, XID_54.name)}] * 2


def a_sample(name: str, value: float, *, minutes: float) -> Sample:
    """Of one counter of the GPU, so many minutes after the start by the node's clock."""
    return Sample(source="nvml", at=START + minutes * MINUTE, readings=[Reading(PCI, name, value)])
