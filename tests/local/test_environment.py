"""What a rank is told by its environment."""

from __future__ import annotations

from healthd.core.objects import ANNOTATION_ATTEMPT, ANNOTATION_RESUME_FROM, ANNOTATION_RESUME_STEP, Device
from healthd.local.environment import inherited, rank_env, slot_env
from healthd.local.slots import Slot, node_of


def test_a_first_start_has_its_place_and_nothing_to_resume() -> None:
    assert rank_env(1, 4, 29500, {}) == {
        "RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "HEALTHD_ATTEMPT": "0",
    }


def test_a_resumed_rank_is_told_its_checkpoint() -> None:
    notes = {ANNOTATION_ATTEMPT: "2", ANNOTATION_RESUME_FROM: "/ckpt/step-40", ANNOTATION_RESUME_STEP: "40"}
    env = rank_env(0, 2, 29500, notes)

    assert env["HEALTHD_ATTEMPT"] == "2"
    assert (env["HEALTHD_RESUME_FROM"], env["HEALTHD_RESUME_STEP"]) == ("/ckpt/step-40", "40")


def test_a_rank_is_told_no_step_where_the_name_of_the_checkpoint_tells_none() -> None:
    notes = {ANNOTATION_RESUME_FROM: "/ckpt/model.pt", ANNOTATION_RESUME_STEP: "-1"}

    assert "HEALTHD_RESUME_STEP" not in rank_env(0, 2, 29500, notes)


def test_a_rank_with_gpus_of_its_own_is_the_first_on_them() -> None:
    devices = tuple(Device(pci=f"0000:0{number}:00.0", uuid=f"GPU-{number}") for number in range(2))
    node = node_of(Slot(name="slot-1", devices=devices))

    assert slot_env(node) == {"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


def test_a_slot_without_gpus_adds_nothing() -> None:
    assert slot_env(node_of(Slot(name="slot-1"))) == slot_env(None) == {}


def test_what_an_outer_healthd_told_is_not_passed_on() -> None:
    environ = {"HOME": "/home/ann", "HEALTHD_POD_UID": "outer", "HEALTHD_RESUME_FROM": "/of/another"}

    assert inherited(environ) == {"HOME": "/home/ann", "PYTHONUNBUFFERED": "1"}


def test_the_users_own_choice_of_buffering_stands() -> None:
    assert inherited({"PYTHONUNBUFFERED": ""})["PYTHONUNBUFFERED"] == ""
