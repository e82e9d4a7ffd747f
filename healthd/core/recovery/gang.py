"""
The model of a gang for the decisions, the same for every kind: a root, its members, and the nodes under them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

import msgspec

from healthd.core.api import (
    ANNOTATION_COMPLETION_INDEX,
    ChosenCheckpoint,
    GangRef,
    Node,
    NodeHealth,
    Pod,
    Recovery,
    RejectedCheckpoint,
    Toleration,
)
from healthd.core.api.gpu_time import GpuTime
from healthd.core.api.save_stats import NO_SAVES, Saves
from healthd.core.config.gangs import SilenceMode, StragglerMode
from healthd.core.hang.silence import Silence
from healthd.core.hang.straggler import Straggler
from healthd.core.recovery.nodes.foreign_signs import Sign
from healthd.core.recovery.progress import NO_PROGRESS, Progress
from healthd.core.recovery.terms import KUBERNETES, Terms
from healthd.core.untrusted import LARGEST_GANG

INDEX_KEYS = (
    ("jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/job-index", ANNOTATION_COMPLETION_INDEX),
    (ANNOTATION_COMPLETION_INDEX,),
    ("apps.kubernetes.io/pod-index",),
)
"""The annotations or labels with which controllers number their pods. The joined values of a row identify a member. The
first row that is complete on the pod counts."""
BESIDE = "+"
"""Prefix of the index of a member that is not numbered, such as a launcher: it also needs a node."""


class RootOutcome(StrEnum):
    """How a root ended permanently."""

    NOT_ENDED = ""
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GangOptions:
    """The options that the owner of a gang set, from the annotations on its root."""

    restart: bool = False
    checkpoint: str = ""
    checkpoint_format: str = ""
    max_no_advance: int | None = None
    min_nodes: int | None = None
    grow_back: bool = False
    rebuild: bool = False
    """Whether healthd may make the root again when it failed for good because of a node."""
    rebuild_unread: str = ""
    """What its owner wrote there instead, where healthd does not know the word."""
    fence_timeout: timedelta | None = None
    hang: SilenceMode | None = None
    """What to do when all members fall silent; None: what the configuration says."""
    stragglers: StragglerMode | None = None
    """What to do about a rank that the others wait for; None: what the configuration says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsAs:
    """The user and groups that the pods of a gang run as, and their tolerations, from their spec. None: not set."""

    user: int | None = None
    group: int | None = None
    fs_group: int | None = None
    groups: tuple[int, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimMount:
    """Where the first container of a gang's pods mounts a claim, or the folder *sub_path* of it, and as which user."""

    claim: str
    path: str
    sub_path: str = ""
    runs_as: RunsAs = RunsAs()


class Numbered(NamedTuple):
    """Members whose index is *name* (may be empty) and one number below each of *sizes*: `workers-1-7`."""

    name: str
    sizes: tuple[int, ...]

    def indexes(self) -> Iterator[str]:
        """All indexes, generated on demand: a root may ask for a hundred thousand members that never existed."""
        for numbers in itertools.product(*map(range, self.sizes)):
            yield "-".join([*([self.name] if self.name else []), *map(str, numbers)])


class Elastic(NamedTuple):
    """The members of a gang whose number healthd may change. The others, such as a master, are always there."""

    members: int
    """How many there are."""
    name: str = ""
    """What their indexes begin with, as of `Numbered`; empty: their indexes are numbers alone, or they have none."""
    least: int = 1
    """How few the root itself allows, whatever healthd's own options say."""
    most: int = LARGEST_GANG
    """How many the root itself allows."""


class Failure(NamedTuple):
    """How a root failed for good."""

    at: datetime | None = None
    """When, by its own controller; None: unknown."""
    reason: str = ""
    """The word of its own controller."""
    kept: str = ""
    """Why healthd makes no object in its place, whatever its owner allows; empty: it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """The topmost object that can restart a gang, as read by the adapter of its kind."""

    ref: GangRef
    resource_version: str
    suspended: bool
    """Its spec asks for no members."""
    stopped: bool
    """Its own controller reports that it has no members and creates no more."""
    stopped_by: str
    """The recovery that suspended it; empty: no recovery did, or the user did."""
    attempt: int
    own_restarts: int = 0
    """How often its own controller restarted it. Pods of earlier restarts do not count."""
    world: int
    """The number of members of the running gang."""
    indexes: tuple[str | Numbered, ...] | None = None
    """The indexes that identify its members; None: they are numbered from 0; empty: they have no indexes."""
    elastic: Elastic | None = None
    """Which of its members may be fewer; None: its kind, its shape or its queue keeps their number."""
    generation: int = 0
    """Counts the changes of the root's spec."""
    edited_since_stop: bool = False
    """Its spec (its size, its image) was changed after healthd stopped it."""
    placement: Mapping[str, str] = field(default_factory=dict)
    """The planned nodes of the present attempt: completion index -> node name. Empty: the scheduler chose."""
    ending: RootOutcome = RootOutcome.NOT_ENDED
    failure: Failure | None = None
    """How it failed for good; None: it did not."""
    rebuilt_from: str = ""
    """The uid of the root that failed, and in whose place healthd made this one; empty: healthd did not make it."""
    deleting: bool = False
    options: GangOptions = GangOptions()
    progress: Progress = NO_PROGRESS
    saves: Saves = NO_SAVES
    silence: Silence | None = None
    """The last time that all its members fell silent; None: they never did, as far as is known."""
    stragglers: Sequence[Straggler] = ()
    """The newest ranks that the others waited for, the oldest first."""
    gpu_time: GpuTime | None = None
    """Where the time of its GPUs went; None: it was not counted yet."""
    created_at: datetime | None = None
    started_at: datetime | None = None
    """When it was last started; None: unknown."""
    gone: tuple[str, ...] = ()
    """Indexes of members whose objects are gone and that no controller creates again: the others wait without end."""
    mounts: tuple[ClaimMount, ...] = ()
    """The claims that its pods mount: a checkpoint on a claim has one path in the pods and another path here."""
    counts_ended_pods: bool = False
    """Whether its controller takes pods that ended before the start, and are still there, for failed members."""
    waits_for_change: bool = False
    """Whether its own controller has noticed a stop or start of healthd's, and acts on it at the next change."""
    companions: Mapping[str, str] = field(default_factory=dict)
    """Further objects of the gang: name -> the uid or the version that was read."""
    template_resumes_from: str = ""
    """The checkpoint that its pod template names, if its kind lets healthd remove it from the template."""
    has_begun: bool = True
    """False while its own controller has not yet observed that it may run: all present members are from earlier."""
    index_labels: tuple[str, ...] = ()
    """The labels that number its pods, instead of `INDEX_KEYS`; the joined values identify a member."""
    hint_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels by which the admission policy knows its pods, where healthd cannot mark their template."""
    queue: str = ""
    """The queue of another controller that starts and stops it; empty: it is in none."""
    unadmitted: str = ""
    """Why that controller does not let it run now, though it was not stopped; empty: it lets it run."""
    evicted: bool = False
    """Whether that controller had let it run and has taken it back, for a reason of its own."""
    holds_quota: bool = False
    """Whether it holds quota of its queue. One that is stopped may be started only after it has given this back."""
    terms: Terms = KUBERNETES
    """The words for its parts, for people."""
    invalid: tuple[str, ...] = ()
    """What cannot be read, and why. healthd does nothing to such a gang: what its owner wants is unknown."""

    @property
    def seats(self) -> tuple[str, ...]:
        """The indexes of all members that have one."""
        indexes = (Numbered("", (self.world,)),) if self.indexes is None else self.indexes
        return tuple(index for each in indexes for index in (each.indexes() if isinstance(each, Numbered) else (each,)))

    @property
    def numbers(self) -> tuple[str, ...]:
        """As `seats`; where members have no indexes, a number for each."""
        return self.seats or tuple(map(str, range(self.world)))

    @property
    def elastic_numbers(self) -> tuple[str, ...]:
        """Those of `numbers` that are elastic members. Where members have no indexes, these are the last ones."""
        if self.elastic is None:
            return ()
        first = self.world - self.elastic.members if self.indexes == () else 0
        return tuple(Numbered(self.elastic.name, (first + self.elastic.members,)).indexes())[first:]

    @property
    def fewest(self) -> int | None:
        """With how few elastic members its owner lets it run (`healthd.dev/min-nodes`); None: with no fewer."""
        if self.elastic is None or self.options.min_nodes is None:
            return None
        others = len(self.numbers) - self.elastic.members
        return max(1, self.elastic.least, self.options.min_nodes - others)

    def elastic_members(self, placement: Collection[str]) -> int | None:
        """How many elastic members there are by the indexes of *placement*; None: as many as before."""
        if self.fewest is None or not placement:
            return None
        others = {*self.numbers} - {*self.elastic_numbers}
        return sum(not index.startswith(BESIDE) and index not in others for index in placement)

    def resized(self, members: int) -> Root:
        """The same gang with so many elastic *members*."""
        if self.elastic is None:
            return self
        changed = Numbered(self.elastic.name, (members,))
        return replace(
            self,
            world=self.world + members - self.elastic.members,
            indexes=self.indexes and tuple(changed if _is_named(each, changed.name) else each for each in self.indexes),
            elastic=self.elastic._replace(members=members),
        )


def _is_named(index: str | Numbered, name: str) -> bool:
    return isinstance(index, Numbered) and index.name == name


@dataclass(frozen=True, slots=True, kw_only=True)
class StartHint:
    """The input for a gang when it starts again."""

    recovery: str
    attempt: int
    checkpoint: ChosenCheckpoint
    placement: Mapping[str, str]
    """Completion index -> node name. Fewer or more entries than before change the size of the gang."""
    own_size: int | None = None
    """How many numbered members the gang had before healthd made it smaller; None: it has its own size."""


class WitnessReport(NamedTuple):
    """How much the witnesses of a node's hardware, such as the kernel log reader, have reported."""

    until: datetime | None = None
    """All that they saw until then is reported, and its consequences are applied; None: unknown."""
    no_witness: bool = False
    """There is no witness: a hardware fault is never reported."""


def no_witness_report(node: str) -> WitnessReport:  # noqa: ARG001 - the shape of a reader of witnesses
    """There may be witnesses; how much they have reported is unknown."""
    return WitnessReport()


def none_silent(node: str) -> bool:  # noqa: ARG001 - the shape of `core.node.reporting.silence`
    """Every agent reported recently."""
    return False


def no_sign(node: str) -> Sign | None:  # noqa: ARG001 - the shape of a reader of signs
    """No other detector reports a sign on *node*."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRead:
    """A search for checkpoints that will load, as far as it has come. Times are by the controller's clock."""

    asked: datetime | None = None
    """When it was requested; None: it will be, in a moment."""
    ended: datetime | None = None
    found: ChosenCheckpoint | None = None
    """The newest checkpoint that will load."""
    rejected: tuple[RejectedCheckpoint, ...] = ()
    """Newer ones that will not."""
    pending: str = ""
    """Why there is no answer yet, when another process still works on it."""
    error: str = ""
    """Why the checkpoints could not be read."""
    is_passing: bool = False
    """The error was in the cluster, not in the store: the state of the store is not known."""


class RebuildRead(NamedTuple):
    """What was read for a root that failed for good, and that may be made again."""

    refused: str = ""
    """Why the API server would not let healthd do it."""
    is_gone: bool = False
    """The failed root does not exist any more, and its name is free."""
    successor: Root | None = None
    """Another root that has its name."""


class LastCheck(StrEnum):
    """What the last check of an idle spare says of it."""

    PASSED = "passed"
    """It passed lately."""
    NONE = "none"
    RUNNING = "running"
    """It is being checked: its GPUs are free within seconds."""
    FAILED = "failed"


def nothing_missed(moment: datetime) -> timedelta:  # noqa: ARG001 - the signature of `GangView.missed_since`
    """No time, as where members run on other machines."""
    return timedelta(0)


class GangView(msgspec.Struct, frozen=True, kw_only=True):
    """
    Everything that a decision about one gang may read.

    Not a dataclass: a view is put together in several steps, and msgspec copies a struct twenty times as fast.
    """

    root: Root | None
    pods: tuple[Pod, ...] = ()
    is_listed: bool = False
    """*pods* is a fresh, complete list from the API server; else it is from the cache, and some may be missing."""
    deleted: tuple[Pod, ...] = ()
    """The last known state of members whose objects are gone; it may prove the end of their containers."""
    resized_away: Collection[str] = ()
    """UIDs of pods that had no place after the user made the gang smaller; it may be larger again since."""
    nodes: Mapping[str, Node] = msgspec.field(default_factory=dict)
    health: Mapping[str, NodeHealth] = msgspec.field(default_factory=dict)
    sign_on: Callable[[str], Sign | None] = no_sign
    """The strongest sign of another detector on a node (`core.recovery.nodes.foreign_signs.reader`)."""
    busy: Collection[str] = ()
    """Nodes with members of gangs that have not ended: as spares they are the last choice, whatever the labels say."""
    occupied: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Spares that were checked and have a conflicting pod: node -> the pod (`replacement_nodes.occupant`)."""
    unclaimable: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Spares whose claim the API server refused lately: node -> why."""
    last_checks: Mapping[str, LastCheck] = msgspec.field(default_factory=dict)
    """What the last check of each spare says of it. It changes which spare is preferred, never whether one is fit."""
    checks: Mapping[str, tuple[tuple[str, str], ...]] = msgspec.field(default_factory=dict)
    """Chosen spares on which a check runs: node -> names and uids of its pods. A claim ends it."""
    witness_report: Callable[[str], WitnessReport] = no_witness_report
    """How much the witnesses of a node have reported."""
    is_silent: Callable[[str], bool] = none_silent
    """Whether the agent of a node has been silent for long: its last report does not count as known any more."""
    rebuild: RebuildRead | None = None
    """About making the root again; None: not read. While that goes on, *root* is what the copy of the root shows."""
    taken: Mapping[str, str] | None = None
    """Planned nodes of the gang that have a conflicting pod: node -> the pod. None: not checked."""
    reports_pending: bool = False
    """The witnesses were asked, and their answer comes within milliseconds."""
    resume: CheckpointRead | None = None
    """The search for the checkpoint to resume from; None: nothing was searched for."""
    previous: Recovery | None = None
    """The gang's recovery before the present one; read with *resume*."""
    newer: CheckpointRead | None = None
    """The search for checkpoints beyond the one that the gang resumed from; None: nothing was searched for."""
    last_activity: datetime | None = None
    """When activity of a member was last observed (output, GPU, NIC)."""
    last_work: datetime | None = None
    """When a member was last observed to use a processor, usefully or not; None: unknown."""
    usual_work: datetime | None = None
    """When a member was last observed to work as it usually does, and not only to poll; None: unknown."""
    inactive_for: timedelta | None = None
    """For how long every member has hung and done next to nothing; None: not so, or unknown."""
    missed_since: Callable[[datetime], timedelta] = nothing_missed
    """How much of the time since a moment healthd did not run, nor most likely its members: the machine slept."""
    silence: Silence | None = None
    """What its members use each second shows that it hangs, and it is to be restarted for that."""
    slow: Sequence[Straggler] = ()
    """The ranks, all on one node, that the others wait for now, and for which the gang is to leave that node."""
    left_slow: Collection[str] = ()
    """Nodes that gangs have left because a rank was slow there: as spares they come after others."""

    @property
    def terms(self) -> Terms:
        """The words for its parts, for people."""
        return self.root.terms if self.root else KUBERNETES
