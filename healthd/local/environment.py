"""
What a rank is told by its environment: its place in the gang, where to resume, and which devices are its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from healthd.core.objects import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_RESUME_FROM,
    ANNOTATION_RESUME_STEP,
    Node,
)
from healthd.local.slots import device_uuids

ADDRESS = "127.0.0.1"
OWN_PREFIX = "HEALTHD_"
FROM_ANNOTATIONS = {
    "HEALTHD_RESUME_FROM": ANNOTATION_RESUME_FROM,
    "HEALTHD_RESUME_STEP": ANNOTATION_RESUME_STEP,
    "HEALTHD_ATTEMPT": ANNOTATION_ATTEMPT,
}


def rank_env(index: int, world: int, port: int, annotations: Mapping[str, str]) -> dict[str, str]:
    """
    The variables of rank *index* of *world* that are known before its slot is: static rendezvous, as torchrun sets it.

    Without a checkpoint to resume from there is no HEALTHD_RESUME_FROM at all, and no HEALTHD_RESUME_STEP where its
    name does not tell the step: -1 is healthd's word for that, and a script would count on from it.
    """
    env = {
        "RANK": str(index),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(index),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": str(port),
        "HEALTHD_ATTEMPT": "0",
    }
    told = {name: annotations[key] for name, key in FROM_ANNOTATIONS.items() if key in annotations}
    if told.get("HEALTHD_RESUME_STEP", "").startswith("-"):
        del told["HEALTHD_RESUME_STEP"]
    return env | told


def slot_env(node: Node | None) -> dict[str, str]:
    """
    What the slot adds. A rank that sees only its slot's GPUs has them as device 0 and up, so its LOCAL_RANK is 0:
    scripts call `torch.cuda.set_device(LOCAL_RANK)`, which fails for 3 where one device is visible.
    """
    uuids = device_uuids(node) if node is not None else []
    if not uuids:
        return {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(uuids), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """
    healthd's own environment without what is meant for one rank alone (healthd may itself run under healthd).

    Python buffers output to a file by the block; unbuffered, a line is seen when it is printed, and a hang stands out.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith(OWN_PREFIX)}
    return {"PYTHONUNBUFFERED": "1"} | kept
