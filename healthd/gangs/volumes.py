"""Which claims the pods of a gang mount, and where."""

from __future__ import annotations

from healthd.core.gang import Mount
from healthd.core.objects import PodSpec


def read_mounts(spec: PodSpec) -> tuple[Mount, ...]:
    """The claims that the first container mounts: the one that trains, by custom."""
    claims = {
        each.name: each.persistent_volume_claim.claim_name for each in spec.volumes if each.persistent_volume_claim
    }
    mounts = spec.containers[0].volume_mounts if spec.containers else []
    return tuple(
        Mount(claim=claims[each.name], path=each.mount_path, sub_path=each.sub_path)
        for each in mounts
        if each.name in claims
    )
