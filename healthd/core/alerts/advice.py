"""What a person can do about a problem, and which command says more: in a cluster, or on one server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from healthd.core.api import ANNOTATION_CHECKPOINT, ANNOTATION_FENCE_OVERRIDE, Recovery
from healthd.core.api.model import Hold
from healthd.core.recovery.holds import hold_of
from healthd.core.recovery.recovery_status import gang_text
from healthd.core.recovery.resume_point import is_place_unread
from healthd.core.recovery.terms import KUBERNETES, Terms
from healthd.core.shell_words import shell_word

MAKE_ROOM = "repair a node that is out of service and say so (`healthd repair NODE`), or raise quarantine.budget"
"""The way out when the budget is used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Templates. `{gang}` such as `job/llama`, `{name}`, `{namespace}`, `{recovery}` and `{node}` are filled in."""

    terms: Terms
    subject: str
    """What a message about a gang is about."""
    waits: Mapping[Hold, str]
    """The way out of each hold."""
    unread_place: str
    """The way out of a hold for a checkpoint where the place of the checkpoints cannot be read at all."""
    given_up: str
    repair: str
    """The command after a repair of a node."""
    broken_in_service: str
    """The way out when a broken node cannot be taken out of service."""
    ask_gang: str
    """The command that says why, for one gang."""
    ask_gangs: str
    ask_node: str
    ask_nodes: str

    @property
    def has_namespaces(self) -> bool:
        """Whether gangs are distinguished by namespace."""
        return self.terms is KUBERNETES


IN_CLUSTER = Advice(
    terms=KUBERNETES,
    subject="{gang} in {namespace}",
    waits={
        Hold.BREAKER: (
            "Look for what the faults have in common: a switch, power, cooling, the driver, the file server, an image. "
            "Recoveries go on by themselves when the crowd of faults is over"
        ),
        Hold.BUDGET: MAKE_ROOM,
        Hold.FENCE: (
            "Power off the nodes whose pods are not proven to be gone, or see that nothing of the gang runs there. "
            "Then say so: `kubectl annotate recovery {recovery} -n {namespace} "
            f"{ANNOTATION_FENCE_OVERRIDE}='all: WHY'`"
        ),
        Hold.SPARE: (
            "Repair a node that is out of service (`healthd repair NODE`), or put a healthy one into the pool: "
            "`kubectl label node NODE healthd.dev/spare=true`"
        ),
        Hold.CHECKPOINT: (
            "See why no checkpoint will load: `healthd checkpoints list FOLDER` says what is wrong with each. It goes "
            "on when one can be read, or when recovery.start_fresh allows a start from step 0"
        ),
        Hold.NODE: (
            "Cordon the bad node that the message names (`kubectl cordon NODE`), and take a toleration of cordons from "
            "the pods if they have one. It is moved once more then"
        ),
        Hold.PODS: (
            "See why no pod is made: `kubectl describe` of the gang's object, and of the Jobs below it, shows what "
            "refuses them (a quota, a policy, a webhook that does not answer), or what its queue waits for"
        ),
        Hold.PROGRAM: (
            "Look at the stacks of its ranks now: nothing was stopped. Mend the program or its data, then suspend the "
            "gang and resume it"
        ),
        Hold.INVALID: "Correct the annotations that the message names",
    },
    unread_place=(
        f"Correct the annotation {ANNOTATION_CHECKPOINT} of the gang if its checkpoints are elsewhere; else mend what "
        "keeps healthd from the place. It goes on by itself when it can be read"
    ),
    given_up="healthd does nothing more for it by itself: mend the cause, then start it again",
    repair="healthd repair {node}",
    broken_in_service=f"drain {{node}}, or {MAKE_ROOM}",
    ask_gang="healthd explain {gang} -n {namespace}",
    ask_gangs="kubectl get recoveries -A",
    ask_node="kubectl get nodehealth {node} -o yaml",
    ask_nodes="kubectl get nodehealths",
)


def way_out(recovery: Recovery, advice: Advice) -> str:
    """What a person can do about what *recovery* waits for. Empty: it is not held."""
    hold = hold_of(recovery.status)
    return advised(hold, recovery, advice) if hold is not None else ""


def advised(hold: Hold, recovery: Recovery, advice: Advice) -> str:
    """What a person can do about *hold*, which *recovery* is in."""
    is_unread = hold is Hold.CHECKPOINT and is_place_unread(recovery.status)
    return filled(advice.unread_place if is_unread else advice.waits[hold], recovery)


def filled(template: str, recovery: Recovery) -> str:
    """*template*, one of an `Advice`, for *recovery*: with names that a shell takes for nothing but names."""
    gang, cause = recovery.spec.gang, (recovery.status.causes or [recovery.spec.cause])[-1]
    return template.format(
        gang=shell_word(gang_text(gang), "GANG"),
        name=shell_word(gang.name, "GANG"),
        namespace=shell_word(recovery.metadata.namespace, "NAMESPACE"),
        recovery=shell_word(recovery.metadata.name, "RECOVERY"),
        node=shell_word(cause.node, "NODE"),
    )
