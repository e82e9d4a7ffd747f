"""
The environment variables of a rank: its place in the gang, where to resume, and the GPUs of the gang.

They are the variables of torchrun, so a script that runs under torchrun runs here. Lightning, Accelerate, the Hugging
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
from healthd.core.recovery.members import attempt_of, index_of, is_terminal
from healthd.core.untrusted import number_or
from healthd.local.machine.slots import device_uuids

ADDRESS = "127.0.0.1"
OWN_PREFIX = "HEALTHD_"
OF_AN_OUTER_LAUNCHER = frozenset({"TORCHELASTIC_ERROR_FILE"})
"""A file of one rank of another gang."""
FROM_ANNOTATIONS = {
    "HEALTHD_RESUME_FROM": ANNOTATION_RESUME_FROM,
    "HEALTHD_RESUME_STEP": ANNOTATION_RESUME_STEP,
    "HEALTHD_ATTEMPT": ANNOTATION_ATTEMPT,
}
NO_LIMIT = 2**31 - 1
"""healthd counts restarts by progress. Programs that read this variable need a number."""


def rank_env(index: int, world: int, port: int, run_id: str, annotations: Mapping[str, str]) -> dict[str, str]:
    """
    The variables of rank *index* of *world*. This machine is one group (torchrun's word for a node), number 0.

    Lightning and others see from the run id that a launcher has already started all ranks. Without it they start more
    ranks, or train alone. There is no rendezvous store of an agent: rank 0 creates the store.

    Without a checkpoint to resume from, HEALTHD_RESUME_FROM is not set. HEALTHD_RESUME_STEP is not set when the name of
    the checkpoint does not give the step: healthd writes -1 for that, and a script would count on from -1.
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
    variables = {name: annotations[key] for name, key in FROM_ANNOTATIONS.items() if key in annotations}
    if variables.get("HEALTHD_RESUME_STEP", "").startswith("-"):
        del variables["HEALTHD_RESUME_STEP"]
    return env | variables


def gpus_env(uuids: Sequence[str]) -> dict[str, str]:
    """
    The GPUs of the whole gang, in rank order: the GPU of a rank is number LOCAL_RANK in this list.

    Each rank sees all of them, as under torchrun. Trainers count the visible GPUs to get the number of ranks. NCCL uses
    direct access to another GPU only when that GPU is visible. The order is the rank order, not the bus order: after a
    restart the spare has the position of the broken GPU.
    """
    return {"CUDA_VISIBLE_DEVICES": ",".join(uuids)} if uuids else {}


def gpus_of_gang(pod: Pod, pods: Sequence[Pod], nodes: Mapping[str, Node]) -> list[str] | None:
    """
    The GPUs of all members of the attempt of *pod*, in rank order. Empty when slots are only numbers.

    None while a member has no slot yet: the list is not complete then.
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
    """The number of ranks in the environment of *pod*. 0 when it is not a member of a gang."""
    return number_or(own_env(pod).get("WORLD_SIZE", ""), 0)


def own_env(pod: Pod) -> dict[str, str]:
    """The variables that the pod template sets."""
    return {variable.name: variable.value for variable in pod.spec.containers[0].env}


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """
    healthd's own environment, without the variables for a single rank (healthd may itself run under healthd).

    Python buffers output to a file in blocks. Unbuffered, a line is visible when it is printed, and a hang is visible.
    As under torchrun, a rank whose collective fails ends. It does not wait for ever.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith(OWN_PREFIX) and name not in OF_AN_OUTER_LAUNCHER
    }
    return {"PYTHONUNBUFFERED": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"} | kept


def threads_env(environ: Mapping[str, str], world: int) -> dict[str, str]:
    """One thread per rank, unless the user set it. Otherwise each of several ranks would use all cores."""
    return {} if world < 2 or "OMP_NUM_THREADS" in environ else {"OMP_NUM_THREADS": "1"}


def _are_together(one: Pod, other: Pod) -> bool:
    return _owners(one) == _owners(other) and attempt_of(one) == attempt_of(other)


def _owners(pod: Pod) -> list[str]:
    return [owner.uid for owner in pod.metadata.owner_references]


def _newest_last(pod: Pod) -> tuple[bool, float]:
    """A sort key: of two pods of one rank, the pod that runs or is about to run comes last."""
    created = pod.metadata.creation_timestamp
    return not is_terminal(pod), created.timestamp() if created else 0.0


def _gpus_of(pod: Pod, nodes: Mapping[str, Node]) -> list[str]:
    node = nodes.get(pod.spec.node_name)
    return device_uuids(node) if node is not None else []
