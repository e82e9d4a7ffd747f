"""One gang and its cluster, as the doctor sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from healthd.core.api import Lease, Node, NodeHealth, ObjectMeta, Pod
from healthd.core.config import RecoveryPolicy
from healthd.core.config.gang_kinds import KindDescription, Trap
from healthd.core.recovery.gang import Root

Json = Mapping[str, Any]


class RemarkLevel(StrEnum):
    """How grave a remark is; the gravest first."""

    PREVENTS = "prevents"
    """A recovery cannot work."""
    RISKS = "risks"
    """A recovery may fail, lose work, or take long."""
    NOTE = "note"
    """Good to know."""


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that the doctor has to say: what it is, why it matters, what to do."""

    level: RemarkLevel
    what: str
    why: str
    remedy: str


class HintPolicy(StrEnum):
    """Whether the API server itself tells new pods where to resume."""

    INSTALLED = "installed"
    MISSING = "missing"
    """It could, but is not configured to."""
    NOT_SERVED = "not served"
    """It is too old."""
    UNKNOWN = "unknown"
    """Who asked may not look."""


class Right(NamedTuple):
    """What somebody may do to objects of a namespace or, where that is empty, of the cluster."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""
    """Empty: to any of them."""

    def __str__(self) -> str:
        """In words."""
        return " ".join(part for part in (self.verb, self.resource, self.name) if part)


class VerifierPod(NamedTuple):
    """A pod that would verify the checkpoints of the gang."""

    image: str
    is_certain: bool
    """The controller's configuration was read; it may name another image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One kind of pod of the gang. *job* is the spec of the Job that makes it, where one does."""

    name: str
    """Of the part of the gang; empty where there is but one."""
    meta: Json
    pods: Json
    job: Json | None = None


class FoundTrap(NamedTuple):
    """A trap of a described kind that the gang has, and *what* of it shows that."""

    trap: Trap
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Everything that a remark may be made of."""

    kind: str
    meta: ObjectMeta
    spec: Json
    """The root's, as its user wrote it; for plain pods `pods`, a list of theirs."""
    root: Root | None = None
    """None: no root in healthd's eyes."""
    invalid: tuple[str, ...] = ()
    """What of it cannot be read, and why: also of pods for which healthd has no root yet."""
    description: KindDescription | None = None
    """Of its kind, where that is described by data."""
    component: str = ""
    """The component of `deploy/` that grants the controller its rights to the kind; empty where there is none."""
    traps: tuple[FoundTrap, ...] = ()
    parts: tuple[Template, ...] = ()
    """The kinds of pods that a root of a described kind says it makes."""
    below: Json | None = None
    """The spec of the JobSet that such a root makes under its own name; None where it makes none."""
    launcher: Json | None = None
    """The Job that a StatefulSet names as its launcher, whole; None: there is none of that name."""
    pods: tuple[Pod, ...] = ()
    nodes: Mapping[str, Node] = field(default_factory=dict)
    health: Mapping[str, NodeHealth] = field(default_factory=dict)
    is_installed: bool = True
    """Whether the cluster has the definitions of healthd."""
    leases: tuple[Lease, ...] | None = None
    """Those that may be of the controller; empty: there is none, None: it is not known."""
    hint_policy: HintPolicy = HintPolicy.UNKNOWN
    policy: RecoveryPolicy = field(default_factory=RecoveryPolicy)
    now: datetime | None = None
    """When this was seen; None: the age is not known."""
    format_trouble: str = ""
    """Why no checkpoint can be verified as its owner declared it; empty where it can."""
    readable: tuple[str, ...] | None = None
    """Folders that the controller may read; None: not known to the doctor."""
    verifiers: tuple[VerifierPod, ...] | None = None
    """The pods that would verify its checkpoints; None: none has to, empty: they are not known."""
    rights: Mapping[Right, bool | None] = field(default_factory=dict)
    """Whether the controller has each right that was asked about; None: who asked may not know."""

    @property
    def target(self) -> str:
        """As the user named it: `job/train`."""
        return f"{'pods' if self.kind == 'PodGang' else self.kind.lower()}/{self.meta.name}"

    @property
    def annotate(self) -> str:
        """The command that sets an option, up to the option."""
        what = f"pods -l healthd.dev/gang={self.meta.name}" if self.kind == "PodGang" else self.target
        return f"kubectl annotate -n {self.meta.namespace} {what}"

    @property
    def jobset(self) -> Json:
        """The spec of the JobSet that makes the pods, where one does."""
        return self.spec if self.below is None else self.below

    def templates(self) -> Iterator[Template]:
        """Every kind of pod that the gang has."""
        yield from self.parts
        if self.kind == "JobSet" or self.below is not None:
            for part in self.jobset.get("replicatedJobs", []):
                yield _of_job(part["name"], part["template"]["spec"])
        elif self.kind == "Job":
            yield _of_job("", self.spec)
        elif self.kind == "StatefulSet":
            template = self.spec.get("template", {})
            yield Template(name="", meta=template.get("metadata", {}), pods=template.get("spec", {}))
            if self.launcher is not None:
                yield _of_job("the launcher", self.launcher["spec"])
        for pod in self.spec.get("pods", []) if self.kind == "PodGang" else []:
            yield Template(name="", meta=pod["metadata"], pods=pod["spec"])


def _of_job(name: str, spec: Json) -> Template:
    template = spec.get("template", {})
    return Template(name=name, meta=template.get("metadata", {}), pods=template.get("spec", {}), job=spec)
