"""How the checkpoints of gangs are read, before a fault and after it."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from msgspec import Meta

from healthd.core.api.locations import VOLUMES_AT, is_below, parse_allowed
from healthd.core.config.base import Policy, span


class CheckpointsPolicy(Policy, frozen=True, kw_only=True):
    """
    How the controller on Kubernetes reads the checkpoints of gangs.

    What a gang calls `pvc://claim/path` is read at `/checkpoints/NAMESPACE/CLAIM/PATH`: the claim is mounted there in
    the controller's pod, read-only.
    """

    allowed: Annotated[
        tuple[str, ...],
        Meta(
            description="What gangs may name besides claims, each with all that is below it, and the namespaces whose "
            "gangs may: folders in the controller's pod for `file:///path`, such as `/shared/team-a for team-a`, and "
            "buckets that the controller's credentials can read, such as `s3://training for team-a, team-b`. "
            "`for *` lets gangs of every namespace read what all others save there. Below `/checkpoints` a gang reads "
            "the folder of its own namespace, and nothing else. Everything else is refused: who may annotate a job "
            "could have any file of the controller read, its token among them.",
            extra={"shape": "`LOCATION for NAMESPACE, NAMESPACE` or `LOCATION for *`"},
        ),
    ] = ()
    verifier: Annotated[
        bool,
        Meta(
            description="Whether checkpoints on a claim that is not mounted in the controller's pod are verified where "
            "they are: by a short-lived pod in the gang's namespace that mounts the claim read-only. It needs the role "
            "`healthd-controller-verifier`. With `false` such a gang is held when it has to be restarted.",
        ),
    ] = True
    verifier_image: Annotated[
        str,
        Meta(
            description="The image of that pod. Empty, the default, takes the one of the controller's own pod. Any "
            "other has to be named in the ClusterRole `healthd-controller-verifier`, or the pod is refused.",
        ),
    ] = ""
    verifier_user: Annotated[
        int,
        Meta(
            description="As whom that pod runs where the pods of the gang run as root or do not say as whom: what it "
            "is to verify has to be readable for this user. Never root.",
            ge=1,
        ),
    ] = 65532
    verify_within: Annotated[
        timedelta,
        span(
            "How long that pod, or the controller, may read for one gang. Half an hour is a terabyte at 600 MB/s; what "
            "takes longer is refused, and the gang is held.",
            at_least=timedelta(minutes=1),
        ),
    ] = timedelta(minutes=30)

    def __post_init__(self) -> None:
        for folder in (parse_allowed(row).location for row in self.allowed):
            if is_below(folder, VOLUMES_AT) or is_below(VOLUMES_AT, folder):
                raise ValueError(
                    f"allowed: {folder} and {VOLUMES_AT}, where claims are mounted, are one within the other; there "
                    "each gang reads the folder of its own namespace"
                )


class PrecheckPolicy(Policy, frozen=True, kw_only=True):
    """Whether a gang that runs could be resumed: its checkpoints are looked at before anything breaks."""

    enabled: Annotated[
        bool,
        Meta(
            description="Whether the controller looks at the checkpoints of gangs that run, and says what a fault "
            "would cost. Only headers and sizes are read.",
        ),
    ] = True
    every: Annotated[
        timedelta,
        span(
            "How often each gang is looked at. Five minutes are soon enough for a person, and cost a file server "
            "little.",
            at_least=timedelta(seconds=5),
        ),
    ] = timedelta(minutes=5)
    by_pod: Annotated[
        bool,
        Meta(
            description="Whether a verifier pod does so for checkpoints on claims that are not mounted in the "
            "controller's pod. Off by default: it is one pod for each such gang and look.",
        ),
    ] = False
    room_for: Annotated[
        int,
        Meta(description="Say so when there is room for fewer than this many more checkpoints of the last size.", ge=1),
    ] = 3
