"""A machine is rebooted in the boot that was decided on, and never in another one."""

from __future__ import annotations

import pytest

from healthd.checks.programs import ProgramResult
from healthd.core.remediation.node_hand import Client, Code, Ending
from healthd.hand.reboot import reboot
from tests.hand.machines import BOOT, FakeMachine

REBOOT = "systemctl reboot"
RANK = Client(pid=77, name="python3", computes=True)


def test_systemd_is_asked() -> None:
    machine = FakeMachine()

    assert reboot(machine, BOOT) == Ending(Code.DONE, "systemd was asked to reboot the machine")
    assert machine.done == [REBOOT]


def test_the_same_request_boots_a_machine_once_however_often_it_is_run() -> None:
    machine = FakeMachine()
    codes = []

    for number in range(5):
        codes.append(reboot(machine, BOOT).code)
        machine.boot = f"boot-{number}"

    assert codes == [Code.DONE] * 5
    assert machine.done == [REBOOT]


def test_a_process_that_computes_is_a_refusal_and_a_monitor_is_none() -> None:
    machine = FakeMachine(users=[Client(pid=3, name="dcgm-exporter"), RANK])

    ending = reboot(machine, BOOT)

    assert ending == Ending(Code.REFUSED, "the reboot was refused: the GPUs are used by python3 (process 77)")
    assert machine.done == []


def test_one_that_was_killed_and_hangs_in_the_driver_does_not_hold_it_up() -> None:
    hangs = Client(pid=77, name="python3", computes=True, is_killed=True)
    machine = FakeMachine(users=[hangs])

    assert reboot(machine, BOOT).code is Code.DONE
    assert machine.done == [REBOOT]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (ProgramResult(1, "Failed to connect to bus"), "ended with code 1: Failed to connect to bus"),
        (ProgramResult(None, ""), "did not end in 60 s"),
    ],
)
def test_a_systemd_that_does_not_take_it_is_a_failure(answer: ProgramResult, says: str) -> None:
    ending = reboot(FakeMachine(answers={REBOOT: answer}), BOOT)

    assert ending.code is Code.FAILED
    assert says in ending.why


def test_a_machine_without_systemd_is_a_refusal() -> None:
    ending = reboot(FakeMachine(has_programs=False), BOOT)

    assert ending.code is Code.REFUSED
    assert "systemctl: the machine has it in none of" in ending.why
