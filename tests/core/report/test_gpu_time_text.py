"""What `healthd explain` says of a gang's GPU time."""

from __future__ import annotations

from msgspec.structs import replace

from healthd.core.accounting.timeline import extend
from healthd.core.api.gpu_time import GangState, LossCause, Part
from healthd.core.api.model import Phase
from healthd.core.recovery.terms import ONE_SERVER
from healthd.core.report.explain_text import gpu_time
from healthd.core.report.gpu_time_text import gpu_time_lines
from tests.core.accounting.lives import a_life, an_account, at, ms, xid
from tests.core.gangs import a_root


def test_it_says_how_much_was_training_and_what_cost_most() -> None:
    account = extend(an_account(), ms(540), Part.PRODUCTIVE)
    account = extend(account, ms(570), Part.NO_SPARE, LossCause.XID)
    account = extend(account, ms(580), Part.STARTUP, LossCause.XID)
    account = extend(account, ms(600), Part.SUSPENDED)

    assert gpu_time_lines(a_root(gpu_time=account), None, at(600)) == [
        "trained 93.1 % of the time that it was to train (ETTR), up to 2026-01-01 10:00:00 UTC",
        "GPU-hours in 10h up to then, 16 GPUs now: 144 productive, 10.7 lost, 5.3 queued or suspended",
        "lost 8.0: no spare, cause xid",
        "lost 2.7: startup, cause xid",
    ]


def test_a_run_on_one_server_is_counted_by_its_slots_as_they_may_be_no_gpus() -> None:
    account = extend(replace(an_account(), gpus=4), ms(60), Part.UNVERIFIED)
    lines = gpu_time_lines(a_root(gpu_time=account, terms=ONE_SERVER), None, at(60))

    assert lines == ["slot-hours in 1h up to 2026-01-01 01:00:00 UTC, 4 slots now: 4.0 not verified by a step"]
    assert [section.title for section in gpu_time(lines, 200, ONE_SERVER)] == ["Slot time"]
    assert [section.title for section in gpu_time(lines, 200)] == ["GPU time"]


def test_what_a_recovery_costs_that_runs_is_in_it() -> None:
    account = extend(an_account(), ms(60), Part.PRODUCTIVE)
    held = a_life(
        [(60, Phase.DETECTED), (60, Phase.STOPPING), (60, Phase.RESERVING), (60, Phase.HELD)], causes=[xid(60)]
    )

    assert "lost 16.0: no spare, cause xid" in gpu_time_lines(a_root(gpu_time=account), held, at(120))


def test_an_account_that_is_behind_says_up_to_when_it_counts() -> None:
    account = extend(replace(an_account(), state=GangState.RUNNING), ms(5), Part.UNVERIFIED)

    lines = gpu_time_lines(a_root(gpu_time=account), None, at(8))

    assert lines == ["GPU-hours in 5m up to 2026-01-01 00:05:00 UTC, 16 GPUs now: 1.3 not verified by a step"]


def test_a_gang_of_which_nothing_is_known_has_no_such_lines() -> None:
    new = replace(an_account(), state=GangState.RUNNING)

    assert gpu_time_lines(a_root(), None, at(1)) == []
    assert gpu_time_lines(a_root(gpu_time=new), None, at(1)) == []
