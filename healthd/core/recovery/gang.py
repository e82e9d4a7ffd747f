"""
A gang as the decisions see it, whatever its kind: a root, its members, and the nodes under them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from healthd.core.api import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_COMPLETION_INDEX,
    LABEL_GANG,
    ChosenCheckpoint,
    GangRef,
    Node,
    NodeHealth,
    Pod,
    Toleration,
)
from healthd.core.api.save_stats import NO_SAVES, Saves
from healthd.core.recovery.foreign_signs import Sign
from healthd.core.recovery.progress import NO_PROGRESS, Progress
from healthd.core.recovery.terms import KUBERNETES, Terms
from healthd.core.untrusted import number_or

UNREADABLE = "the gang cannot be read"
"""Begins the reason of a recovery that is held because its root is invalid."""
TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


INDEX_KEYS = (
    ("jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/job-index", ANNOTATION_COMPLETION_INDEX),
    (ANNOTATION_COMPLETION_INDEX,),
    ("apps.kubernetes.io/pod-index",),
)
"""How makers of pods number them: joined, the values of a row tell a member. The first row that is there counts."""
LONGEST_GRACE = 10 * 365 * 86_400
"""Seconds. More cannot be subtracted from every moment."""
LONGEST_INDEX = 320
"""Characters. An index is stored with every pod of a recovery; a JobSet's has a name and two numbers."""
LABEL_OWN_RESTART = "jobset.sigs.k8s.io/restart-attempt"
"""On a pod: which restart of its root's own controller made it. Other kinds do not say."""


class Ending(StrEnum):
    """How a root ended for good."""

    NOT_ENDED = ""
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GangOptions:
    """What the owner of a gang asked for, from the annotations on its root."""

    restart: bool = False
    checkpoint: str = ""
    checkpoint_format: str = ""
    max_no_advance: int | None = None
    min_nodes: int | None = None
    fence_timeout: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsAs:
    """As whom the pods of a gang run, and which taints they bear, as they say it themselves. None: they do not say."""

    user: int | None = None
    group: int | None = None
    fs_group: int | None = None
    groups: tuple[int, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Where the first container of a gang's pods sees a claim, or the folder *sub_path* of it, and as whom."""

    claim: str
    path: str
    sub_path: str = ""
    runs_as: RunsAs = RunsAs()


class Numbered(NamedTuple):
    """Members whose index is *name*, if any, and a number below each of *sizes*: `workers-1-7`."""

    name: str
    sizes: tuple[int, ...]

    def indexes(self) -> Iterator[str]:
        """All of them; made when asked for, as a root may name a hundred thousand that never were."""
        for numbers in itertools.product(*map(range, self.sizes)):
            yield "-".join([*([self.name] if self.name else []), *map(str, numbers)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """The topmost object that can restart a gang, as its adapter reads it."""

    ref: GangRef
    resource_version: str
    suspended: bool
    """It is asked to have no members."""
    stopped: bool
    """Its own controller says that it has none, and makes no more."""
    stopped_by: str
    """The recovery that suspended it; empty: nobody or the user."""
    attempt: int
    own_restarts: int = 0
    """How often its own controller restarted it; the pods of earlier restarts are history."""
    world: int
    """Members that a running gang has."""
    indexes: tuple[str | Numbered, ...] | None = None
    """What tells its members apart; None: they are numbered from 0; empty: nothing does."""
    generation: int = 0
    """Counts the changes of what the root asks for."""
    edited_since_stop: bool = False
    """Somebody changed what it asks for (its size, its image) after healthd stopped it."""
    placement: Mapping[str, str] = field(default_factory=dict)
    """Where the present attempt was told to run: completion index -> node name. Empty: the scheduler chose."""
    ending: Ending = Ending.NOT_ENDED
    deleting: bool = False
    options: GangOptions = GangOptions()
    progress: Progress = NO_PROGRESS
    saves: Saves = NO_SAVES
    started_at: datetime | None = None
    """When it was last set going; None: not known."""
    gone: tuple[str, ...] = ()
    """Indexes of members whose objects are gone and that nobody makes again: the others wait for them in vain."""
    mounts: tuple[Mount, ...] = ()
    """The claims that its pods mount: a checkpoint on one of them has another path there than here."""
    companions: Mapping[str, str] = field(default_factory=dict)
    """Further objects that it consists of: name -> which one of that name, or which version of it, was seen."""
    template_resumes_from: str = ""
    """The checkpoint that its pod template names, as far as its kind lets us take it from there again."""
    has_begun: bool = True
    """False while its own controller has not yet noticed that it may run: every member there is belongs to the past."""
    terms: Terms = KUBERNETES
    """The words for its parts, for people."""
    invalid: tuple[str, ...] = ()
    """What of it cannot be read, and why. Nothing is done to such a gang: what its owner wants is not known."""

    @property
    def seats(self) -> tuple[str, ...]:
        """The indexes of all members that can be told apart."""
        told = (Numbered("", (self.world,)),) if self.indexes is None else self.indexes
        return tuple(index for each in told for index in (each.indexes() if isinstance(each, Numbered) else (each,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class StartHint:
    """What a gang is told when it starts again."""

    recovery: str
    attempt: int
    checkpoint: ChosenCheckpoint
    placement: Mapping[str, str]
    """Completion index -> node name. A shorter one than before shrinks the gang."""


class WitnessReport(NamedTuple):
    """How much the witnesses of a node's hardware, such as the reader of its kernel log, have told."""

    until: datetime | None = None
    """All that they saw until then is known, and what follows from it is done; None: that is not known."""
    no_witness: bool = False
    """There is none: a fault of the hardware is never told."""


def no_witness_report(node: str) -> WitnessReport:  # noqa: ARG001 - the shape of a reader of witnesses
    """There may be witnesses, and what they have told so far is not known."""
    return WitnessReport()


def none_silent(node: str) -> bool:  # noqa: ARG001 - the shape of `core.node.reporting.silence`
    """Every agent was heard of lately."""
    return False


def no_sign(node: str) -> Sign | None:  # noqa: ARG001 - the shape of a reader of signs
    """No other detector says anything about *node*."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GangView:
    """Everything that a decision about one gang may look at."""

    root: Root | None
    pods: tuple[Pod, ...] = ()
    is_listed: bool = False
    """*pods* are all that the API server has, asked just now; else those that were noticed: some may be missing."""
    deleted: tuple[Pod, ...] = ()
    """The last known state of members whose objects are gone; the end of their containers may be proven by it."""
    resized_away: Collection[str] = ()
    """UIDs of pods that had no place when the user made the gang smaller; it may have been made larger again since."""
    nodes: Mapping[str, Node] = field(default_factory=dict)
    health: Mapping[str, NodeHealth] = field(default_factory=dict)
    sign_on: Callable[[str], Sign | None] = no_sign
    """The strongest sign of another detector on a node (`core.recovery.foreign_signs.reader`)."""
    busy: Collection[str] = ()
    """Nodes with members of gangs that have not ended: spares that are looked at last, whatever their labels say."""
    occupied: Mapping[str, str] = field(default_factory=dict)
    """Spares, as far as they were looked at, with a pod of somebody else's: node -> the pod
    (`core.recovery.conflicting_pods`)."""
    heard: Callable[[str], WitnessReport] = no_witness_report
    """How much the witnesses of a node have told."""
    is_silent: Callable[[str], bool] = none_silent
    """Whether the agent of a node has not been heard of for long: what it said for the node is not known any more."""
    taken: Mapping[str, str] | None = None
    """Nodes that the gang was to run on, with a pod of somebody else's: node -> the pod. None: nobody looked."""
    newest: ChosenCheckpoint | None = None
    """The newest verified checkpoint, where somebody looked."""
    last_activity: datetime | None = None
    """When a member was last seen doing something (output, GPU, NIC)."""
    last_work: datetime | None = None
    """When a member was last seen to use a processor, in vain or not; None: nobody can tell."""

    @property
    def terms(self) -> Terms:
        """The words for its parts, for people."""
        return self.root.terms if self.root else KUBERNETES


def attempt_of(pod: Pod) -> int:
    """The attempt that a pod belongs to; 0 for pods that were started before healthd knew the gang."""
    return number_or(pod.metadata.annotations.get(ANNOTATION_ATTEMPT, ""), 0)


def index_of(pod: Pod) -> str:
    """What tells a pod from the other members of its gang; empty where nothing does."""
    meta = pod.metadata
    for keys in INDEX_KEYS:
        marks = [mark for key in keys if (mark := meta.annotations.get(key) or meta.labels.get(key))]
        if len(marks) == len(keys):
            index = "-".join(marks)
            return index if len(index) <= LONGEST_INDEX else ""
    return meta.name if is_plain_member(pod) else ""


def deletion_asked_at(pod: Pod) -> datetime | None:
    """When somebody asked for its deletion: its timestamp is when its grace ends. The grace is the tenant's choice."""
    meta = pod.metadata
    if meta.deletion_timestamp is None:
        return None
    grace = min(max(meta.deletion_grace_period_seconds or 0, 0), LONGEST_GRACE)
    return meta.deletion_timestamp - timedelta(seconds=grace)


def is_plain_member(pod: Pod) -> bool:
    """It is of a gang by its label alone: no controller makes it again, or minds its name."""
    return LABEL_GANG in pod.metadata.labels and not any(owner.controller for owner in pod.metadata.owner_references)


def left_stopped(root: Root, recoveries: Collection[str]) -> str:
    """
    Why *root* stays stopped though none of its *recoveries*, by name, is there to start it; empty where that is not so.

    A reinstallation deletes the recoveries, and with them what they knew of the old pods.
    """
    if not (root.suspended and root.stopped_by) or root.stopped_by in recoveries:
        return ""
    return (
        f"recovery {root.stopped_by} stopped it and is gone, and with it the proof that the old pods have ended: see "
        "that none of them runs, then resume the gang"
    )


def is_terminal(pod: Pod) -> bool:
    """Its containers have ended and will not start again."""
    return pod.status.phase in TERMINAL_PHASES


def will_not_run(pod: Pod) -> bool:
    """
    It has ended, or it was deleted before it got a node.

    An API server binds no pod that is being deleted, so there is no kubelet that would ever call such a pod ended.
    """
    return is_terminal(pod) or (not pod.spec.node_name and pod.metadata.deletion_timestamp is not None)


def members(view: GangView) -> tuple[Pod, ...]:
    """The pods of the root's present attempt."""
    if view.root is None:
        return ()
    root = view.root
    return tuple(pod for pod in view.pods if attempt_of(pod) == root.attempt and _restart_of(pod) >= root.own_restarts)


def with_seats(pods: Collection[Pod], root: Root) -> list[Pod]:
    """Those of *pods* that the gang still has a place for: one that its user made smaller leaves pods behind."""
    seats = {"", *root.seats} if pods else set()
    return [pod for pod in pods if len(seats) == 1 or index_of(pod) in seats]


def _restart_of(pod: Pod) -> int:
    """The restart by its own controller that made the pod."""
    return number_or(pod.metadata.labels.get(LABEL_OWN_RESTART, ""), 0)
