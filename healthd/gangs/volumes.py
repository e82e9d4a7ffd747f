"""Which claims the pods of a gang mount, at which path, and as which user they read them."""

from __future__ import annotations

from healthd.core.api import PodSpec, SecurityContext
from healthd.core.recovery.gang import ClaimMount, RunsAs

OURS = "healthd.dev/"
"""The prefix of the keys of all taints of healthd."""


def read_mounts(spec: PodSpec) -> tuple[ClaimMount, ...]:
    """The claims that the first container mounts. By custom, the first container is the one that trains."""
    claims = {
        each.name: each.persistent_volume_claim.claim_name for each in spec.volumes if each.persistent_volume_claim
    }
    mounts = spec.containers[0].volume_mounts if spec.containers and claims else []
    return tuple(
        ClaimMount(claim=claims[each.name], path=each.mount_path, sub_path=each.sub_path, runs_as=read_runs_as(spec))
        for each in mounts
        if each.name in claims
    )


def read_runs_as(spec: PodSpec) -> RunsAs:
    """As which user the first container runs; the pod's values are its defaults. healthd's tolerations do not count."""
    pod = spec.security_context or SecurityContext()
    own = (spec.containers[0].security_context if spec.containers else None) or SecurityContext()
    return RunsAs(
        user=pod.run_as_user if own.run_as_user is None else own.run_as_user,
        group=pod.run_as_group if own.run_as_group is None else own.run_as_group,
        fs_group=pod.fs_group,
        groups=tuple(pod.supplemental_groups),
        tolerations=tuple(each for each in spec.tolerations if not each.key.startswith(OURS)),
    )
