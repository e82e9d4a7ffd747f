"""
What a rank is told by its environment: its place in the gang, where to resume, and which GPUs the gang has.

All of it as torchrun tells it, so that a script that runs under torchrun runs here: Lightning, Accelerate, the Hugging
Face Trainer, DeepSpeed and Megatron-LM read nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from healthd.core.api import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_RESUME_FROM,
    ANNOTATION_RESUME_STEP,
    Node,
    Pod,
)
from healthd.core.recovery.gang import attempt_of, index_of, is_terminal
from healthd.core.untrusted import number_or
from healthd.local.slots import device_uuids

ADDRESS = "127.0.0.1"
OWN_PREFIX = "HEALTHD_"
OF_AN_OUTER_LAUNCHER = frozenset({"TORCHELASTIC_ERROR_FILE"})
"""A file of one rank of somebody else's gang."""
FROM_ANNOTATIONS = {
    "HEALTHD_RESUME_FROM": ANNOTATION_RESUME_FROM,
    "HEALTHD_RESUME_STEP": ANNOTATION_RESUME_STEP,
    "HEALTHD_ATTEMPT": ANNOTATION_ATTEMPT,
}
NO_LIMIT = 2**31 - 1
"""Restarts are counted by progress; what reads this number wants one."""


def rank_env(index: int, world: int, port: int, run_id: str, annotations: Mapping[str, str]) -> dict[str, str]:
    """
    The variables of rank *index* of *world*. This machine is one group (torchrun's word for a node), numbered 0.

    The run id is how Lightning and others know that a launcher has made all ranks already: without it they start
    further ones, or train alone. There is no store of an agent to meet in: rank 0 makes it.

    Without a checkpoint to resume from there is no HEALTHD_RESUME_FROM at all, and no HEALTHD_RESUME_STEP where its
    name does not tell the step: -1 is healthd's word for that, and a script would count on from it.
    """
    env = {
        "RANK": str(index),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(index),
        "LOCAL_WORLD_SIZE": str(world),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(index),
        "ROLE_WORLD_SIZE": str(world),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "NODE_RANK": "0",
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_RESTART_COUNT": annotations.get(ANNOTATION_ATTEMPT, "0"),
        "TORCHELASTIC_MAX_RESTARTS": str(NO_LIMIT),
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "HEALTHD_ATTEMPT": "0",
    }
    told = {name: annotations[key] for name, key in FROM_ANNOTATIONS.items() if key in annotations}
    if told.get("HEALTHD_RESUME_STEP", "").startswith("-"):
        del told["HEALTHD_RESUME_STEP"]
    return env | told


def gpus_env(uuids: Sequence[str]) -> dict[str, str]:
    """
    The GPUs of the whole gang, in the order of its ranks: GPU LOCAL_RANK of these is a rank's own.

    Each rank sees all of them, as under torchrun. Trainers count the visible GPUs to learn how many ranks there are,
    and NCCL reaches a neighbour's GPU directly only where it is visible. The order is that of the ranks, not of the
    bus: after a restart the spare stands where the broken GPU was.
    """
    return {"CUDA_VISIBLE_DEVICES": ",".join(uuids)} if uuids else {}


def gpus_of_gang(pod: Pod, pods: Sequence[Pod], nodes: Mapping[str, Node]) -> list[str] | None:
    """
    The GPUs of all members of the attempt of *pod*, in the order of ranks; none where slots are just numbers.

    None while a member has no slot yet: nothing can be told then.
    """
    if not _gpus_of(pod, nodes):
        return []
    members = {index_of(one): one for one in sorted(pods, key=_newest_last) if _are_together(one, pod)}
    members[index_of(pod)] = pod
    gang = [members.get(str(rank)) for rank in range(world_of(pod))] or [pod]
    if any(member is None or not member.spec.node_name for member in gang):
        return None
    return [uuid for member in gang if member is not None for uuid in _gpus_of(member, nodes)]


def world_of(pod: Pod) -> int:
    """The number of ranks that *pod* was told; 0 where it is no member of a gang."""
    return number_or(own_env(pod).get("WORLD_SIZE", ""), 0)


def own_env(pod: Pod) -> dict[str, str]:
    """What the template of *pod* gives its process."""
    return {variable.name: variable.value for variable in pod.spec.containers[0].env}


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """
    healthd's own environment without what is meant for one rank alone (healthd may itself run under healthd).

    Python buffers output to a file by the block; unbuffered, a line is seen when it is printed, and a hang stands out.
    As under torchrun a rank whose collective fails ends, instead of waiting for ever.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith(OWN_PREFIX) and name not in OF_AN_OUTER_LAUNCHER
    }
    return {"PYTHONUNBUFFERED": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"} | kept


def threads_env(environ: Mapping[str, str], world: int) -> dict[str, str]:
    """One thread a rank, unless the user chose: each of several ranks would else take every core of the machine."""
    return {} if world < 2 or "OMP_NUM_THREADS" in environ else {"OMP_NUM_THREADS": "1"}


def _are_together(one: Pod, other: Pod) -> bool:
    return _owners(one) == _owners(other) and attempt_of(one) == attempt_of(other)


def _owners(pod: Pod) -> list[str]:
    return [owner.uid for owner in pod.metadata.owner_references]


def _newest_last(pod: Pod) -> tuple[bool, float]:
    """Of two pods of one rank, the one that runs or is about to."""
    created = pod.metadata.creation_timestamp
    return not is_terminal(pod), created.timestamp() if created else 0.0


def _gpus_of(pod: Pod, nodes: Mapping[str, Node]) -> list[str]:
    node = nodes.get(pod.spec.node_name)
    return device_uuids(node) if node is not None else []
