"""The GPUs of a machine are reset together, only when nothing uses them, and each must be there afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from healthd.checks.programs import ProgramResult
from healthd.core.remediation.node_hand import Client, Code, Ending
from healthd.hand.gpu_reset import LOOKS, reset_gpus
from tests.hand.machines import BOOT, GPUS, FakeMachine, after

AGENT = Client(pid=40, name="healthd", pod="0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0")
RANK = Client(pid=77, name="python3", computes=True)
RESET = "nvidia-smi --gpu-reset"


def reset(machine: FakeMachine, boot: str = BOOT) -> Ending:
    return reset_gpus(machine, boot, after(0, lambda: None))


def test_free_gpus_are_reset_together_and_seen_again() -> None:
    machine = FakeMachine()

    ending = reset(machine)

    assert ending == Ending(Code.DONE, "2 GPUs were reset, and nvidia-smi lists all of them")
    assert machine.done == [RESET]


def test_persistence_mode_is_off_for_the_reset_and_on_again_where_it_was() -> None:
    machine = FakeMachine(persistent=set(GPUS))

    assert reset(machine).code is Code.DONE
    assert machine.done == ["nvidia-smi --persistence-mode=0", RESET, "nvidia-smi --persistence-mode=1"]


def test_persistence_mode_of_some_gpus_is_switched_on_for_these_alone() -> None:
    machine = FakeMachine(persistent={GPUS[1]})

    assert reset(machine).code is Code.DONE
    assert machine.done[-1] == f"nvidia-smi --persistence-mode=1 --id={GPUS[1]}"


def test_persistence_mode_is_on_again_after_a_refusal_and_after_a_failure() -> None:
    in_use = FakeMachine(persistent=set(GPUS), users=[AGENT])
    broken = FakeMachine(persistent=set(GPUS), answers={"--gpu-reset": ProgramResult(3, "it is in use")})

    assert (reset(in_use).code, reset(broken).code) == (Code.REFUSED, Code.FAILED)
    assert in_use.persistent == broken.persistent == set(GPUS)


def test_persistence_mode_is_on_again_when_the_pod_is_stopped() -> None:
    machine = FakeMachine(persistent=set(GPUS), users=[AGENT])

    def stopped() -> None:
        raise SystemExit(143)

    with pytest.raises(SystemExit):
        reset_gpus(machine, BOOT, after(1, stopped))
    assert (machine.persistent, machine.done) == (
        set(GPUS),
        ["nvidia-smi --persistence-mode=0", "nvidia-smi --persistence-mode=1"],
    )


def test_a_process_that_computes_is_a_refusal_at_once_that_names_it() -> None:
    machine = FakeMachine(users=[AGENT, RANK], persistent=set(GPUS))

    ending = reset_gpus(machine, BOOT, after(1, lambda: pytest.fail("it waited")))

    assert ending == Ending(Code.REFUSED, "the reset was refused: the GPUs are used by python3 (process 77)")
    assert machine.done == []


def test_a_process_that_only_the_driver_sees_to_compute_is_a_refusal() -> None:
    machine = FakeMachine(users=[Client(pid=5, name="worker")], pids={5, 6})

    why = "the reset was refused: the GPUs are used by worker (process 5), ? (process 6)"
    assert reset(machine) == Ending(Code.REFUSED, why)
    assert machine.done == []


def test_one_that_only_reads_values_has_time_to_let_go() -> None:
    machine = FakeMachine(users=[AGENT])

    ending = reset_gpus(machine, BOOT, after(LOOKS - 1, machine.users.clear))

    assert (ending.code, machine.done) == (Code.DONE, [RESET])


def test_one_that_does_not_let_go_is_a_refusal_that_names_it_with_its_pod() -> None:
    machine = FakeMachine(users=[AGENT])

    ending = reset(machine)

    assert ending.code is Code.REFUSED
    assert ending.why.endswith("healthd (process 40 of pod 0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0)")
    assert machine.done == []


def test_one_that_begins_to_compute_meanwhile_is_a_refusal() -> None:
    machine = FakeMachine(users=[AGENT])

    ending = reset_gpus(machine, BOOT, after(1, lambda: machine.users.append(RANK)))

    assert (ending.code, machine.done) == (Code.REFUSED, [])


@pytest.mark.parametrize(
    ("machine", "says"),
    [
        ({"after_reset": GPUS[:1]}, "nvidia-smi does not list 0000:af:00.0 since"),
        ({"answers": {"--gpu-reset": ProgramResult(3, "GPU Reset\nfailed")}}, "ended with code 3: GPU Reset failed"),
        ({"answers": {"--gpu-reset": ProgramResult(None, "")}}, "did not end in 180 s"),
    ],
)
def test_a_reset_that_did_not_bring_all_gpus_back_has_failed(machine: dict[str, Any], says: str) -> None:
    ending = reset(FakeMachine(**machine))

    assert ending.code is Code.FAILED
    assert says in ending.why


def test_a_driver_that_lists_nothing_before_may_be_reset_and_must_list_all_after() -> None:
    lost = ProgramResult(15, "Unable to determine the device handle: GPU is lost")
    machine = FakeMachine(answers={"--query-gpu": lost, "--query-compute-apps": lost})

    ending = reset(machine)

    assert machine.done == [RESET]
    assert ending == Ending(Code.FAILED, "the GPUs were reset, and nvidia-smi lists none since")


@pytest.mark.parametrize(
    ("machine", "says"),
    [
        ({"pcis": ()}, "the driver nvidia has no GPU on this machine"),
        ({"has_programs": False}, "nvidia-smi: the machine has it in none of /usr/bin"),
    ],
)
def test_a_machine_that_cannot_be_seen_is_not_touched(machine: dict[str, Any], says: str) -> None:
    ending = reset(FakeMachine(**machine))

    assert ending.code is Code.REFUSED
    assert says in ending.why


def test_in_another_boot_nothing_is_done() -> None:
    machine = FakeMachine(persistent=set(GPUS))

    ending = reset(machine, boot="the-one-before")

    assert ending == Ending(Code.DONE, f"nothing was done: it booted since ({BOOT})")
    assert machine.done == []
