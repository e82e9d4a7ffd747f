"""Limits and defaults of single fields, where those of the structs do not say enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from healthd.cluster.crds.rules import Schema
from healthd.core.api import (
    Cause,
    CopiedRoot,
    Delivery,
    FencedPod,
    HangSuspect,
    Incident,
    IncidentStatus,
    MachineHistory,
    NodeHealth,
    NodeHealthStatus,
    NodeRemediation,
    NodeRemediationStatus,
    Outage,
    PodGangMember,
    PodGangSpec,
    PodHint,
    PodRhythm,
    Rebuild,
    Recovery,
)
from healthd.core.api.health import MOST_RHYTHMS
from healthd.core.api.histories import MOST_ABSENCES, MOST_ATTEMPTS, MOST_GPU_STAYS, MOST_OUTAGES
from healthd.core.api.incidents import LONGEST_ERROR, LONGEST_KEY, LONGEST_TEXT, LONGEST_TITLE, MOST_SINKS
from healthd.core.api.meta import Slim
from healthd.core.api.model import Phase, Verdict
from healthd.core.api.recoveries import (
    KIND_PATTERN,
    LONGEST_DOING,
    LONGEST_MEMBER,
    LONGEST_MESSAGE,
    MOST_SUSPECTS,
    NAME_PATTERN,
    GangRef,
    RecoverySpec,
    RecoveryStatus,
)
from healthd.core.api.remediations import MOST_ATTEMPTS as MOST_RUNGS
from healthd.core.api.remediations import NodePhase
from healthd.core.api.root_copies import LONGEST_COPY
from healthd.core.untrusted import LARGEST_GANG

_NAME: Schema = {"maxLength": 253}
"""The API server's limit for names of pods and nodes, and for uids."""
_NODES: Schema = {"maxItems": 1000, "items": {"type": "string", **_NAME}}
_PLACES: Schema = {"maxProperties": LARGEST_GANG}

BOUNDS: Mapping[type[Slim], Mapping[str, Schema]] = {
    GangRef: {
        "kind": {**_NAME, "minLength": 1, "pattern": f"^{KIND_PATTERN}$"},
        "name": {**_NAME, "minLength": 1, "pattern": f"^{NAME_PATTERN}$"},
        "namespace": {**_NAME, "minLength": 1},
        "uid": {**_NAME, "minLength": 1},
    },
    Rebuild: {"uid": {**_NAME, "minLength": 1}, "made": _NAME},
    CopiedRoot: {"recovery": _NAME, "version": _NAME, "manifest": {"maxLength": LONGEST_COPY}},
    Cause: {"message": {"maxLength": LONGEST_MESSAGE}, "node": _NAME, "suspects": {"maxItems": MOST_SUSPECTS}},
    HangSuspect: {
        "member": {"maxLength": LONGEST_MEMBER},
        "node": _NAME,
        "pod": _NAME,
        "witnesses": {"minimum": 0},
        "words": {"items": {"type": "string", "maxLength": LONGEST_DOING}},
        "doing": {"maxLength": LONGEST_DOING},
        "stack": {"maxLength": 64},
    },
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
    MachineHistory: {
        "gpus": {"maxItems": MOST_GPU_STAYS},
        "outages": {"maxItems": MOST_OUTAGES},
        "absences": {"maxItems": MOST_ABSENCES},
        "earlier_outages": {"minimum": 0},
    },
    Outage: {"tried": {"maxItems": MOST_ATTEMPTS}},
    NodeRemediationStatus: {"attempts": {"maxItems": MOST_RUNGS}, "relapses": {"minimum": 0}},
    NodeHealthStatus: {
        "findings": {"maxItems": 2048},
        "inventory": {"maxItems": 1024},
        "live_pods": {"maxItems": 4096},
        "gone_pods": {"maxItems": 4096},
        "rhythms": {"maxItems": MOST_RHYTHMS},
    },
    PodRhythm: {"uid": _NAME, "period": {"minimum": 0}, "allowed": {"minimum": 0}},
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
    NodeRemediationStatus: {"phase": NodePhase.IN_SERVICE},
    Recovery: {"status": {"phase": str(Phase.DETECTED)}},
    NodeHealth: {"status": {"verdict": str(Verdict.UNKNOWN)}},
    NodeRemediation: {"status": {"phase": str(NodePhase.IN_SERVICE)}},
}
"""
Defaults that the API server fills in, because people and rules read these fields; others stay left out, so that objects
are small.
"""
