"""
The CustomResourceDefinitions of healthd's own kinds, generated from the structs that read and write them.

A field is declared once, in `healthd.core.api`; `kubectl explain` shows its docstring. The tables below hold what a
struct cannot express: the rules between two versions of an object, and the columns of `kubectl get`.
`python -m healthd.cluster.crds` writes `deploy/crds.yaml`; nothing reads this module at run time.
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import msgspec.inspect as shapes
import yaml

from healthd.core.api import (
    RESOURCES,
    Cause,
    Delivery,
    FencedPod,
    Incident,
    IncidentRecord,
    IncidentStatus,
    NodeHealth,
    NodeHealthStatus,
    ObjectMeta,
    PodGang,
    PodGangMember,
    PodGangSpec,
    PodHint,
    Recovery,
)
from healthd.core.api.incidents import LONGEST_ERROR, LONGEST_KEY, LONGEST_TEXT, LONGEST_TITLE, MOST_SINKS
from healthd.core.api.meta import Slim
from healthd.core.api.model import ENDED, Phase, Verdict
from healthd.core.api.recoveries import LONGEST_MESSAGE, GangRef, RecoverySpec, RecoveryStatus
from healthd.core.untrusted import LARGEST_GANG

HEAD = """\
# healthd's own kinds. Written by `make docs` from healthd/core/api: change the structs there, not this file.
"""

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CelRule:
    """A CEL rule that the API server enforces; *message* is the error for the writer of a refused object."""

    rule: str
    message: str

    def to_schema(self) -> Schema:
        """The rule as JSON for the schema."""
        return {"rule": self.rule, "message": self.message}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`. *wide* ones are shown with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    wide: bool = False

    def to_schema(self) -> Schema:
        """The column as JSON for the definition."""
        description = {"description": self.description} if self.description else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **description, "priority": int(self.wide)}


@dataclass(frozen=True, slots=True)
class Presentation:
    """How a kind appears on the command line."""

    short: Sequence[str]
    columns: Sequence[Column]


def _one_of(phases: Iterator[Phase] | Sequence[Phase]) -> str:
    return "[" + ", ".join(f"'{phase}'" for phase in sorted(phases)) + "]"


_WAS = "(oldSelf.phase == 'Held' ? oldSelf.?heldIn.orValue('Detected') : oldSelf.phase)"
"""The phase of a recovery; while it was held, the phase in which it was held."""
_RUNNING = _one_of([Phase.STARTING, Phase.CONFIRMING])

RULES: Mapping[type[Slim], Sequence[CelRule]] = {
    RecoverySpec: [CelRule("self == oldSelf", "what started a recovery is history: spec cannot be changed")],
    Incident: [
        CelRule("self.key == oldSelf.key", "the key is the identity of an incident: services know it by that"),
        CelRule(
            "self.?revision.orValue(1) >= oldSelf.?revision.orValue(1)",
            "revisions are counted upwards: services would refuse a lower one",
        ),
    ],
    RecoveryStatus: [
        CelRule(
            f"!(oldSelf.phase in {_one_of(sorted(ENDED))}) || self.phase == oldSelf.phase",
            "a recovery that ended stays ended; a new fault gets a new one",
        ),
        CelRule(
            "self.?attempt.orValue(0) >= oldSelf.?attempt.orValue(0)",
            "attempts are counted upwards: a lower one would let an old start pass for the present one",
        ),
        CelRule(
            f"self.phase != 'Detected' || {_WAS} == 'Detected'",
            "a recovery that moved on does not become undecided again",
        ),
        CelRule(
            f"self.phase != 'Starting' || !({_WAS} in ['Detected', 'Stopping'])",
            "a gang is started only after its old pods were fenced",
        ),
        CelRule(
            f"self.phase != 'Recovered' || oldSelf.phase == 'Recovered' || {_WAS} in {_RUNNING}",
            "only a gang that was started again can have recovered",
        ),
        CelRule(
            "!(self.phase in ['Choosing', 'Reserving']) || (self.?openEnds.orValue(0) == 0 "
            "&& (!has(self.pods) || self.pods.all(pod, pod.?proof.orValue('') != '')))",
            "past the fence only when the end of every old pod is proven",
        ),
        CelRule(
            f"self.phase != 'Held' || (has(self.heldIn) && !(self.heldIn in {_one_of([*ENDED, Phase.HELD])}))",
            "a held recovery says which phase it goes on in",
        ),
    ],
}
"""The rules that must hold. They are few and exact: a rule that is too strict stops a recovery in the middle."""

_NAME: Schema = {"maxLength": 253}
"""The API server's limit for names of pods and nodes, and for uids."""
_NODES: Schema = {"maxItems": 1000, "items": {"type": "string", **_NAME}}
_PLACES: Schema = {"maxProperties": LARGEST_GANG}

BOUNDS: Mapping[type[Slim], Mapping[str, Schema]] = {
    GangRef: {name: {**_NAME, "minLength": 1} for name in ("kind", "name", "namespace", "uid")},
    Cause: {"message": {"maxLength": LONGEST_MESSAGE}, "node": _NAME},
    RecoverySpec: {"first_attempt": {"minimum": 1}},
    RecoveryStatus: {
        "timeline": {"maxItems": 1000},
        "pods": {"maxItems": 20000},
        "packed": {"maxLength": 3 << 19},
        "open_ends": {"minimum": 0},
        "rejected": {"maxItems": 100},
        "replacements": _PLACES,
        "placement": _PLACES,
        "stand_ins": _PLACES,
        "attempts": {"maxItems": 100},
    },
    FencedPod: dict.fromkeys(("name", "uid", "node"), _NAME),
    PodHint: {"avoid": _NODES, "prefer": _NODES, "reserved_for": {"maxLength": 63}},
    PodGangSpec: {"members": {"maxItems": 20000}, "size": {"minimum": 0, "maximum": LARGEST_GANG}},
    PodGangMember: {"name": _NAME, "uid": _NAME},
    Incident: {
        "key": {"maxLength": LONGEST_KEY, "pattern": "^[A-Za-z0-9./_-]+$"},
        "revision": {"minimum": 1},
        "title": {"maxLength": LONGEST_TITLE},
        "nodes": _NODES,
        "happened": {"maxLength": LONGEST_TEXT},
        "did": {"maxLength": LONGEST_TEXT},
        "todo": {"maxLength": LONGEST_TEXT},
    },
    IncidentStatus: {"deliveries": {"maxProperties": MOST_SINKS}},
    Delivery: {"error": {"maxLength": LONGEST_ERROR}, "thread": {"maxLength": LONGEST_ERROR}},
    NodeHealthStatus: {
        "findings": {"maxItems": 2048},
        "inventory": {"maxItems": 1024},
        "live_pods": {"maxItems": 4096},
        "gone_pods": {"maxItems": 4096},
    },
}
"""
Limits by field, in addition to those of number types. No limit can refuse what healthd writes: each is at least the
limit of its writer or of the API server. They bound what a rule costs the server, and what a stolen token can store.

So texts that come from kubelets, stores and people have no limit, though a recovery repeats them: boots and machines,
paths of checkpoints, findings, reasons. A text that is too long would stop the recovery that repeats it.

An object stored before a limit was added, and over it, can still be updated: since Kubernetes 1.30 the API server does
not validate what an update leaves unchanged (until 1.32 a feature gate, CRDValidationRatcheting, can turn that off). A
list counts as a whole, and the lists that healthd writes are within their limits.
"""

KEPT_DEFAULTS: Mapping[type[Slim], Mapping[str, Any]] = {
    RecoveryStatus: {"phase": Phase.DETECTED},
    NodeHealthStatus: {"verdict": Verdict.UNKNOWN},
    Recovery: {"status": {"phase": str(Phase.DETECTED)}},
    NodeHealth: {"status": {"verdict": str(Verdict.UNKNOWN)}},
}
"""
Defaults that the API server fills in, because people and rules read these fields; others stay left out, so that objects
are small.
"""

PRESENTATIONS: Mapping[type[Slim], Presentation] = {
    NodeHealth: Presentation(
        short=["nh"],
        columns=[
            Column("Verdict", ".status.verdict", description="What all findings of the node add up to."),
            Column("Seen", ".status.seenAt", "date", "How long ago the agent reported; hours: it is dead."),
            Column("Message", ".status.message", description="The worst finding, in words."),
            Column("Lost", ".status.lostRecords", "integer", "Kernel records that were overwritten unread.", wide=True),
            Column("Boot", ".status.bootId", description="The boot in which this was seen.", wide=True),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ],
    ),
    Recovery: Presentation(
        short=["rcv"],
        columns=[
            Column("Gang", ".status.gang", description="The gang that is restarted."),
            Column("Cause", ".spec.cause.kind", description="What kind of fault it was."),
            Column("Node", ".status.badNodes", description="The nodes to blame, if any are."),
            Column("Phase", ".status.phase", description="Where the recovery stands."),
            Column("Attempt", ".status.attempt", "integer", "The start that is prepared or confirmed."),
            Column("From", ".status.resumesFrom", description="The checkpoint that was chosen."),
            Column("Running", ".status.runningAfter", description="From the fault until all members ran again."),
            Column("Took", ".status.took", description="From the fault to the end: to confirmed progress."),
            Column("Age", ".metadata.creationTimestamp", "date"),
            Column("Message", ".status.message", description="Why it is in this phase."),
            Column("Confirmed", ".status.confirmedStep", "integer", "The step that showed the progress.", wide=True),
        ],
    ),
    IncidentRecord: Presentation(
        short=["inc"],
        columns=[
            Column("Severity", ".spec.severity", description="Whether a person must act."),
            Column("Title", ".spec.title", description="What is wrong with what."),
            Column("Namespace", ".spec.namespace", description="The namespace of its gang."),
            Column("Opened", ".spec.opened", "date", "How long ago it began."),
            Column("Resolved", ".spec.resolved", "date", "How long ago it ended; empty while it is open."),
            Column("Todo", ".spec.todo", description="What is left for a person.", wide=True),
            Column("Age", ".metadata.creationTimestamp", "date", wide=True),
        ],
    ),
    PodGang: Presentation(
        short=["pg"],
        columns=[
            Column("Size", ".spec.size", "integer", "How many pods run at once."),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ],
    ),
}


def definitions() -> list[Schema]:
    """Every CustomResourceDefinition, as JSON objects."""
    return [_definition(kind, presentation) for kind, presentation in PRESENTATIONS.items()]


def as_yaml() -> str:
    """The whole file `deploy/crds.yaml`."""
    return HEAD + yaml.dump_all(definitions(), sort_keys=False, width=120, allow_unicode=True, Dumper=_ForPeople)


def _definition(kind: type[Slim], presentation: Presentation) -> Schema:
    resource = RESOURCES[kind]
    group, _, version = resource.api_version.partition("/")
    names = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
        "shortNames": list(presentation.short),
        "categories": ["healthd"],
    }
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}} if resource.has_status else {},
        "additionalPrinterColumns": [column.to_schema() for column in presentation.columns],
        "schema": {"openAPIV3Schema": _root(kind, resource.api_version)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{resource.plural}.{group}",
            "labels": {"app.kubernetes.io/name": "healthd", "app.kubernetes.io/part-of": "healthd"},
        },
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [served],
        },
    }


def _root(kind: type[Slim], api_version: str) -> Schema:
    schema = _schema(shapes.type_info(kind))
    schema["properties"] = {
        "apiVersion": {"type": "string", "description": f"`{api_version}`."},
        "kind": {"type": "string", "description": f"`{RESOURCES[kind].kind}`."},
        **schema["properties"],
    }
    return schema


def _schema(shape: shapes.Type) -> Schema:
    """The structural schema of one type. Raises TypeError for a type that no struct should have."""
    match shape:
        case shapes.StructType():
            return _struct(shape)
        case shapes.EnumType(cls):
            return {"type": "string", "enum": [str(member.value) for member in cls], **_described(cls)}
        case shapes.UnionType(types):
            (alone,) = [one for one in types if not isinstance(one, shapes.NoneType)]
            return _schema(alone)  # None is left out on the wire
        case shapes.ListType(item_type=item, max_length=most) | shapes.VarTupleType(item_type=item, max_length=most):
            return {"type": "array", "items": _schema(item), **_known(maxItems=most)}
        case shapes.DictType(value_type=value, max_length=most):
            return {"type": "object", "additionalProperties": _schema(value), **_known(maxProperties=most)}
        case _:
            return _scalar(shape)


def _scalar(shape: shapes.Type) -> Schema:
    match shape:
        case shapes.StrType(max_length=most):
            return {"type": "string", **_known(maxLength=most)}
        case shapes.BoolType():
            return {"type": "boolean"}
        case shapes.IntType(ge=least, le=most):
            return {"type": "integer", "format": "int64", **_known(minimum=least, maximum=most and _as_float(most))}
        case shapes.FloatType():
            return {"type": "number"}
        case shapes.DateTimeType():
            return {"type": "string", "format": "date-time"}
    raise TypeError(f"no schema is known for {shape}")


def _known(**limits: int | None) -> Schema:
    return {name: limit for name, limit in limits.items() if limit is not None}


def _as_float(most: int) -> int:
    """A maximum as the API server stores it, which is a float; never less than *most*."""
    return max(most, int(float(most)))


def _struct(shape: shapes.StructType) -> Schema:
    if shape.cls is ObjectMeta:
        return {"type": "object"}  # the API server has its own schema, and allows no other
    schema: Schema = {"type": "object", **_described(shape.cls)}
    if "description" in schema:
        schema["description"] = _in_wire_spelling(schema["description"], shape.fields)
    schema["properties"] = {field.encode_name: _field(shape.cls, field) for field in shape.fields}
    if required := [field.encode_name for field in shape.fields if field.required]:
        schema["required"] = required
    if rules := _of(RULES, shape.cls):
        schema["x-kubernetes-validations"] = [rule.to_schema() for rule in rules]
    return schema


T = TypeVar("T")


def _of(table: Mapping[type[Slim], T], cls: type) -> T | None:
    return next((value for kind, value in table.items() if kind is cls), None)


def _in_wire_spelling(description: str, fields: Sequence[shapes.Field]) -> str:
    """Docstrings name fields as Python does, *first_attempt*; a reader of `kubectl explain` knows `firstAttempt`."""
    names = {field.name: field.encode_name for field in fields}
    return re.sub(r"\*(\w+)\*", lambda match: f"`{names.get(match[1], match[1])}`", description)


def _field(owner: type, field: shapes.Field) -> Schema:
    schema = _schema(field.type)
    schema.update((_of(BOUNDS, owner) or {}).get(field.name, {}))
    if description := _field_descriptions(owner).get(field.name):
        schema["description"] = description
    defaults = _of(KEPT_DEFAULTS, owner) or {}
    if field.name in defaults:
        default = defaults[field.name]
        schema["default"] = default.value if isinstance(default, enum.Enum) else default
    return schema


def _described(cls: type) -> Schema:
    description = inspect.getdoc(cls)
    return {"description": _flat(description)} if description else {}


@cache
def _field_descriptions(owner: type) -> dict[str, str]:
    """The docstrings under the fields of *owner*, from its source: Python drops them."""
    (body,) = [node for node in ast.walk(ast.parse(inspect.getsource(owner))) if isinstance(node, ast.ClassDef)]
    description: dict[str, str] = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        match field, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                description[name] = _flat(inspect.cleandoc(text))
    return description


def _flat(text: str) -> str:
    """Each paragraph on one line: `kubectl explain` wraps the text itself."""
    return "\n\n".join(re.sub(r"\s+", " ", paragraph).strip() for paragraph in text.split("\n\n"))


class _ForPeople(yaml.SafeDumper):
    """Writes long texts as paragraphs, and repeats an object instead of using a YAML alias."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature of PyYAML
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_ForPeople.add_representer(str, _ForPeople.represent_str)

if __name__ == "__main__":
    sys.stdout.write(as_yaml())
