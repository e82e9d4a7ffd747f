"""The table of all kinds: how the API names each."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from healthd.core.api.admission import MutatingAdmissionPolicy
from healthd.core.api.events import Occurrence
from healthd.core.api.health import NodeHealth
from healthd.core.api.incidents import IncidentRecord
from healthd.core.api.leases import Lease
from healthd.core.api.meta import Slim
from healthd.core.api.nodes import Node, NodeManifest
from healthd.core.api.pods import Pod
from healthd.core.api.recoveries import Recovery
from healthd.core.api.reviews import LocalSubjectAccessReview, SubjectAccessReview
from healthd.core.api.workloads import (
    Job,
    JobManifest,
    JobSet,
    JobSetManifest,
    PodGang,
    PodManifest,
    StatefulSet,
    StatefulSetManifest,
)


class Resource(NamedTuple):
    """How the API names a kind."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    has_status: bool
    """Status is a subresource: the main verbs leave it alone."""


RESOURCES: dict[type[Slim], Resource] = {
    Node: Resource("v1", "Node", "nodes", namespaced=False, has_status=True),
    Pod: Resource("v1", "Pod", "pods", namespaced=True, has_status=True),
    Job: Resource("batch/v1", "Job", "jobs", namespaced=True, has_status=True),
    JobSet: Resource("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", namespaced=True, has_status=True),
    StatefulSet: Resource("apps/v1", "StatefulSet", "statefulsets", namespaced=True, has_status=True),
    PodGang: Resource("healthd.dev/v1alpha1", "PodGang", "podgangs", namespaced=True, has_status=False),
    NodeManifest: Resource("v1", "Node", "nodes", namespaced=False, has_status=True),
    PodManifest: Resource("v1", "Pod", "pods", namespaced=True, has_status=True),
    JobManifest: Resource("batch/v1", "Job", "jobs", namespaced=True, has_status=True),
    JobSetManifest: Resource("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", namespaced=True, has_status=True),
    StatefulSetManifest: Resource("apps/v1", "StatefulSet", "statefulsets", namespaced=True, has_status=True),
    MutatingAdmissionPolicy: Resource(
        "admissionregistration.k8s.io/v1",
        "MutatingAdmissionPolicy",
        "mutatingadmissionpolicies",
        namespaced=False,
        has_status=False,
    ),
    SubjectAccessReview: Resource(
        "authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False, has_status=False
    ),
    LocalSubjectAccessReview: Resource(
        "authorization.k8s.io/v1",
        "LocalSubjectAccessReview",
        "localsubjectaccessreviews",
        namespaced=True,
        has_status=False,
    ),
    Lease: Resource("coordination.k8s.io/v1", "Lease", "leases", namespaced=True, has_status=False),
    Occurrence: Resource("v1", "Event", "events", namespaced=True, has_status=False),
    NodeHealth: Resource("healthd.dev/v1alpha1", "NodeHealth", "nodehealths", namespaced=False, has_status=True),
    Recovery: Resource("healthd.dev/v1alpha1", "Recovery", "recoveries", namespaced=True, has_status=True),
    # Without a status subresource: what changes together is one write, and an incident has only one writer.
    IncidentRecord: Resource("healthd.dev/v1alpha1", "Incident", "incidents", namespaced=True, has_status=False),
}

AnyObject = (
    Node
    | Pod
    | Job
    | JobSet
    | StatefulSet
    | PodGang
    | PodManifest
    | Lease
    | Occurrence
    | NodeHealth
    | Recovery
    | IncidentRecord
)


def to_wire(obj: AnyObject) -> dict[str, Any]:
    """The JSON object that an API server would be sent, with `apiVersion` and `kind`."""
    resource = RESOURCES[type(obj)]
    body: dict[str, Any] = msgspec.to_builtins(obj)
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}
