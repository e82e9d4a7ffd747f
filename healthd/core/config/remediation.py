"""How far healthd may go in repairing nodes through what a site has for that."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from msgspec import Meta

from healthd.core.config.base import Policy, span

SHORTEST_INTERVAL = timedelta(hours=1)
"""Between two checks of the same idle spare."""


class RemediationPolicy(Policy, frozen=True, kw_only=True):
    """
    What healthd may do by itself to a node that was taken out of service. Off by default.

    A node comes back only after it was checked, so agents need `quarantine.give_back: repaired`.
    """

    at_once: Annotated[
        int,
        Meta(
            description="Nodes that may be under a rung or a check at the same time, in the whole cluster. 0, the "
            "default, does nothing to any node.",
            ge=0,
        ),
    ] = 0
    hands: Annotated[
        tuple[str, ...],
        Meta(
            description="What may be used to reset, reboot or replace a node, by name, the preferred one first: those "
            "of `hands_file`, and those that healthd knows. Empty, the default: nothing. `healthd "
            "doctor node/NAME` shows which of them the cluster has."
        ),
    ] = ()
    hands_file: Annotated[
        str,
        Meta(
            description="A YAML file with hands of your own. One with the name of a hand that healthd knows takes its "
            "place."
        ),
    ] = ""
    per_domain: Annotated[
        int,
        Meta(
            description="The same limit within one failure domain (`quarantine.domain_label`). 0: no such limit.", ge=0
        ),
    ] = 0
    attempts_per_week: Annotated[
        int,
        Meta(
            description="Rungs that are tried on one node within seven days. After that a person decides: a node that "
            "took five rungs in a week is broken in a way that no rung mends.",
            ge=1,
            le=32,
        ),
    ] = 5
    check_by_pod: Annotated[
        bool,
        Meta(
            description="Whether healthd checks a repaired node itself, and gives it back when it passed: a pod "
            "without rights runs `healthd check --deep` on all GPUs of the node. Off by default: a person checks it "
            "and says `healthd repair`. It needs the component `node-check` and the device plugin of NVIDIA; nodes "
            "whose GPUs are partitioned or shared are still left to a person."
        ),
    ] = False
    check_image: Annotated[
        str,
        Meta(
            description="The image of that pod. Empty, the default, takes the one of the controller's own pod. Any "
            "other needs `healthd` in it, and must be named in the ClusterRole `healthd-controller-verifier`. One "
            "with nccl-tests and `dcgmi` checks more."
        ),
    ] = ""
    check_runtime_class: Annotated[
        str,
        Meta(
            description="The RuntimeClass of that pod, such as `nvidia`, where the NVIDIA container runtime is not "
            "the default one of the nodes."
        ),
    ] = ""
    check_timeout: Annotated[
        timedelta,
        span(
            "For how long a check of a node may wait for its GPUs, and then run. One that does not answer has failed.",
            at_least=timedelta(minutes=1),
        ),
    ] = timedelta(minutes=20)
    check_spares_every: Annotated[
        timedelta,
        span(
            "How often an idle spare is checked in the same way, one spare after the other. 0, the default: never. It "
            "needs `check_by_pod`. No recovery waits for it: one that takes the spare ends the check. A spare that "
            "fails is taken out of service when another one of its kind has passed since, one spare at a time; while "
            "several fail, the check is in doubt, and none is taken out."
        ),
    ] = timedelta(0)
    probation: Annotated[
        timedelta,
        span("For how long a node that came back is watched. Each relapse in a row doubles it.", at_least=timedelta(0)),
    ] = timedelta(hours=24)
    probation_max: Annotated[timedelta, span("The longest probation.", at_least=timedelta(0))] = timedelta(days=14)

    def __post_init__(self) -> None:
        if self.hands_file and not self.hands_file.startswith("/"):
            raise ValueError("hands_file must be an absolute path")
        if twice := sorted({name for name in self.hands if self.hands.count(name) > 1}):
            raise ValueError(f"hands names {', '.join(twice)} more than once")
        if self.check_spares_every and not self.check_by_pod:
            raise ValueError("check_spares_every needs check_by_pod: true, and the component node-check")
        if timedelta(0) < self.check_spares_every < SHORTEST_INTERVAL:
            raise ValueError("check_spares_every must be 0 (never) or at least 1h: a check takes minutes")
        if self.probation_max < self.probation:
            raise ValueError("probation_max is shorter than probation")
