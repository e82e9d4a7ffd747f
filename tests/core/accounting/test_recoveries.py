"""What a recovery costs: the work that is done again, and each of its phases. Checked by hand."""

from __future__ import annotations

from msgspec.structs import replace

from healthd.core.accounting.recoveries import Saving, enter
from healthd.core.accounting.timeline import extend
from healthd.core.api import ChosenCheckpoint, Recovery
from healthd.core.api.gpu_time import GangState, GpuTime, LossCause, Part
from healthd.core.api.model import CauseKind, Phase
from tests.builders import a_cause
from tests.core.accounting.lives import MINUTE, a_life, an_account, at, crash, gpu_minutes, ms, saved, xid

EVERY_TEN = Saving(usual=10 * MINUTE)
WAY = [
    (106.0, Phase.DETECTED),
    (107.0, Phase.STOPPING),
    (110.0, Phase.FENCING),
    (114.0, Phase.CHOOSING),
    (119.0, Phase.RESERVING),
    (120.0, Phase.STARTING),
    (127.0, Phase.CONFIRMING),
    (142.0, Phase.RECOVERED),
]
"""Of a fault at minute 105."""


def trained(minutes: float = 100, **fields: object) -> GpuTime:
    """A gang of one GPU whose last step was seen after so many minutes."""
    return extend(an_account(gpus=1, **fields), ms(minutes), Part.PRODUCTIVE)


def entered(account: GpuTime, recovery: Recovery, saving: Saving = EVERY_TEN) -> dict[str, float]:
    return gpu_minutes(enter(account, recovery, saving, recovery.status.timeline[-1].at))


def test_every_minute_of_a_recovery_has_one_name() -> None:
    recovery = a_life(WAY, causes=[xid(105)], resumed=[saved(9, 98)], confirmed=10)

    assert entered(trained(), recovery) == {
        "productive": 98 + 10,
        "redone/xid": 2 + 5,
        "detection/xid": 1,
        "detected/xid": 1,
        "stopping/xid": 3,
        "fencing/xid": 4,
        "choosing/xid": 5,
        "reserving/xid": 1,
        "starting/xid": 7,
        "startup/xid": 5,
    }


def test_what_a_checkpoint_holds_that_no_read_had_seen_was_training() -> None:
    recovery = a_life(WAY, causes=[xid(105)], resumed=[saved(10, 104)], confirmed=11)

    found = entered(trained(), recovery)

    assert (found["productive"], found["redone/xid"]) == (104 + 10, 1)


def test_a_fresh_start_does_everything_again() -> None:
    recovery = a_life(WAY, causes=[crash(105)], resumed=[ChosenCheckpoint()], confirmed=1)

    found = entered(trained(), recovery)

    assert (found["productive"], found["redone/software"]) == (10, 105)


def test_the_start_up_is_not_known_before_the_rhythm_of_the_gang_is() -> None:
    recovery = a_life(WAY, causes=[xid(105)], resumed=[saved(9, 98)], confirmed=10)

    found = entered(trained(), recovery, Saving())

    assert (found["productive"], found["unverified"]) == (98, 15)


def test_of_a_gang_whose_checkpoints_are_not_known_nothing_is_called_training_or_lost_work() -> None:
    recovery = a_life(WAY, causes=[crash(105)], resumed=[ChosenCheckpoint()])

    found = entered(an_account(gpus=1, stepped=False), recovery, Saving(is_watched=False))

    assert "productive" not in found
    assert "redone/software" not in found
    assert found["unverified"] == 105


def test_a_checkpoint_whose_file_has_a_wrong_time_takes_back_little_of_what_was_seen_before() -> None:
    copied = replace(saved(9, 98), saved_ns=1)

    after = enter(replace(trained(), step=9), a_life(WAY, causes=[xid(105)], resumed=[copied]), EVERY_TEN, at(130))

    assert gpu_minutes(after)["productive"] >= 90


def test_a_hang_ends_work_before_the_next_save_was_due() -> None:
    hang = replace(a_cause(CauseKind.HANG), at=at(141))
    way = [(minutes + 35, phase) for minutes, phase in WAY]

    found = entered(trained(), a_life(way, causes=[hang], resumed=[saved(9, 98)], confirmed=10))

    assert (found["redone/hang"], found["detection/hang"]) == (2 + 8, 33)


def test_a_hold_for_a_spare_is_distinguished_from_other_holds() -> None:
    way = [*WAY[:4], (115.0, Phase.HELD), (116.0, Phase.CHOOSING), *WAY[4:5], (119.5, Phase.HELD), *WAY[5:]]
    recovery = a_life(way, causes=[xid(105)], resumed=[saved(9, 98)], confirmed=10)

    found = entered(trained(), recovery)

    assert (found["held/xid"], found["no_spare/xid"]) == (1, 0.5)
    assert (found["choosing/xid"], found["reserving/xid"]) == (1 + 3, 0.5)


def test_a_second_fault_takes_back_what_the_first_start_did_and_has_a_cause_of_its_own() -> None:
    again = [(150.0, Phase.STOPPING), (151.0, Phase.STARTING), (152.0, Phase.CONFIRMING), (163.0, Phase.RECOVERED)]
    recovery = a_life(
        [*WAY[:-1], *again], causes=[crash(105), xid(149)], resumed=[saved(9, 98), saved(9, 98)], confirmed=10
    )

    found = entered(trained(), recovery)

    assert (found["redone/software"], found["redone/xid"]) == (7, 149 - 127)
    assert (found["starting/software"], found["starting/xid"]) == (7, 1)
    assert (found["startup/xid"], found["productive"]) == (1, 98 + 10)


def test_ranks_that_fail_beside_a_broken_gpu_are_a_consequence() -> None:
    recovery = a_life(WAY, causes=[crash(105), xid(105.5)], resumed=[saved(9, 98)], confirmed=10)

    assert {name.partition("/")[2] for name in entered(trained(), recovery)} == {"", "xid"}


def test_a_recovery_that_never_stopped_the_gang_cost_nothing() -> None:
    recovery = a_life([(106, Phase.DETECTED), (107, Phase.HELD), (140, Phase.SUPERSEDED)], causes=[xid(105)])

    after = enter(trained(), recovery, EVERY_TEN, at(140))

    assert gpu_minutes(after) == {"productive": 100}
    assert after.state is GangState.RUNNING


def test_a_gang_that_was_given_up_is_lost_until_it_is_started_again() -> None:
    way = [(106.0, Phase.DETECTED), (107.0, Phase.STOPPING), (108.0, Phase.GAVE_UP)]

    after = enter(trained(), a_life(way, causes=[crash(105)]), EVERY_TEN, at(108))

    assert (after.state, after.run_cause) == (GangState.GAVE_UP, LossCause.SOFTWARE)
    assert gpu_minutes(after)["unverified"] == 5


def test_times_out_of_order_leave_no_gap() -> None:
    way = [(106.0, Phase.DETECTED), (104.0, Phase.STOPPING), (103.0, Phase.STARTING), (110.0, Phase.CONFIRMING)]

    after = enter(trained(), a_life(way, causes=[xid(200)], resumed=[saved(9, 300)]), EVERY_TEN, at(110))

    assert sum(gpu_minutes(after).values()) == (after.until - after.since) / MINUTE
