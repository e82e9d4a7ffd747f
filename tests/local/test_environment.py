"""What a rank knows by its environment."""

from __future__ import annotations

from msgspec.structs import replace

from healthd.core.api import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_RESUME_FROM,
    ANNOTATION_RESUME_STEP,
    Container,
    Device,
    EnvVar,
    Node,
    Pod,
    PodStatus,
)
from healthd.local.environment import gpus_env, gpus_of_gang, inherited, rank_env, threads_env
from healthd.local.machine.slots import Slot, node_of
from tests.builders import a_pod


def test_a_first_start_has_its_place_as_torchrun_gives_it_and_nothing_to_resume() -> None:
    assert rank_env(1, 4, 29500, "llama-1", {}) == {
        "RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "ROLE_NAME": "default",
        "ROLE_RANK": "1",
        "ROLE_WORLD_SIZE": "4",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "NODE_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "llama-1",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "2147483647",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "HEALTHD_ATTEMPT": "0",
    }


def test_a_resumed_rank_gets_its_checkpoint() -> None:
    notes = {ANNOTATION_ATTEMPT: "2", ANNOTATION_RESUME_FROM: "/ckpt/step-40", ANNOTATION_RESUME_STEP: "40"}
    env = rank_env(0, 2, 29500, "llama-1", notes)

    assert (env["HEALTHD_ATTEMPT"], env["TORCHELASTIC_RESTART_COUNT"]) == ("2", "2")
    assert (env["HEALTHD_RESUME_FROM"], env["HEALTHD_RESUME_STEP"]) == ("/ckpt/step-40", "40")


def test_a_rank_gets_no_step_where_the_name_of_the_checkpoint_has_none() -> None:
    notes = {ANNOTATION_RESUME_FROM: "/ckpt/model.pt", ANNOTATION_RESUME_STEP: "-1"}

    assert "HEALTHD_RESUME_STEP" not in rank_env(0, 2, 29500, "llama-1", notes)


def a_node(number: int, gpus: int = 1) -> Node:
    devices = [Device(pci=f"0000:{number:02x}:0{gpu}.0", uuid=f"GPU-{number}{gpu}") for gpu in range(gpus)]
    return node_of(Slot(name=f"slot-{number}", devices=tuple(devices)))


def a_member(rank: int, node: str, world: int = 2, attempt: int = 1, name: str = "") -> Pod:
    container = Container(name="main", env=[EnvVar(name="WORLD_SIZE", value=str(world))])
    notes = {ANNOTATION_ATTEMPT: str(attempt)}
    return a_pod(name or f"rank-{rank}-{attempt}", node=node, index=rank, annotations=notes, container=container)


NODES = {node.metadata.name: node for node in (a_node(0), a_node(1), a_node(2))}


def test_every_rank_sees_the_gpus_of_its_gang_in_the_order_of_ranks() -> None:
    gang = [a_member(0, "slot-2"), a_member(1, "slot-1")]

    assert [gpus_of_gang(pod, gang, NODES) for pod in gang] == [["GPU-20", "GPU-10"]] * 2
    assert gpus_env(["GPU-20", "GPU-10"]) == {"CUDA_VISIBLE_DEVICES": "GPU-20,GPU-10"}


def test_a_rank_waits_for_the_slots_of_the_others() -> None:
    first = a_member(0, "slot-0")

    assert gpus_of_gang(first, [first], NODES) is None
    assert gpus_of_gang(first, [first, a_member(1, "")], NODES) is None


def test_members_of_an_earlier_attempt_are_not_of_the_gang() -> None:
    first = a_member(0, "slot-2")

    assert gpus_of_gang(first, [first, a_member(1, "slot-1", attempt=0)], NODES) is None


def test_a_rank_that_is_made_again_sees_the_gpu_of_its_present_slot() -> None:
    again = a_member(0, "slot-2", name="again")
    gone = replace(a_member(0, "slot-0"), status=PodStatus(phase="Failed"))

    assert gpus_of_gang(again, [again, a_member(1, "slot-1"), gone], NODES) == ["GPU-20", "GPU-10"]


def test_slots_of_several_gpus_give_all_of_them() -> None:
    pod = a_member(0, "slot-0", world=1)

    assert gpus_of_gang(pod, [pod], {"slot-0": a_node(0, gpus=2)}) == ["GPU-00", "GPU-01"]


def test_slots_without_gpus_report_nothing_and_delay_nothing() -> None:
    pod = a_member(0, "slot-0")

    assert gpus_of_gang(pod, [pod], {"slot-0": node_of(Slot(name="slot-0"))}) == []
    assert gpus_of_gang(pod, [pod], {}) == []
    assert gpus_env([]) == {}


def test_several_ranks_have_one_thread_each_unless_the_user_chose() -> None:
    assert threads_env({}, 2) == {"OMP_NUM_THREADS": "1"}
    assert threads_env({}, 1) == threads_env({"OMP_NUM_THREADS": "8"}, 2) == {}


def test_the_variables_of_an_outer_healthd_are_not_passed_on() -> None:
    reported = {
        "HEALTHD_POD_UID": "outer",
        "HEALTHD_RESUME_FROM": "/of/another",
        "TORCHELASTIC_ERROR_FILE": "/of/one/rank",
    }

    assert inherited({"HOME": "/home/ann", **reported}) == {
        "HOME": "/home/ann",
        "PYTHONUNBUFFERED": "1",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }


def test_the_users_own_choice_of_buffering_stands() -> None:
    assert inherited({"PYTHONUNBUFFERED": ""})["PYTHONUNBUFFERED"] == ""
