"""The table of all kinds: how the API names each."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from healthd.core.api.health import NodeHealth
from healthd.core.api.histories import HardwareHistory
from healthd.core.api.incidents import IncidentRecord
from healthd.core.api.kubernetes.admission import MutatingAdmissionPolicy
from healthd.core.api.kubernetes.events import Occurrence
from healthd.core.api.kubernetes.kueue import Workload
from healthd.core.api.kubernetes.leases import Lease
from healthd.core.api.kubernetes.namespaces import Namespace
from healthd.core.api.kubernetes.nodes import Node, NodeManifest
from healthd.core.api.kubernetes.pods import Pod
from healthd.core.api.kubernetes.reviews import LocalSubjectAccessReview, SubjectAccessReview, TokenReview
from healthd.core.api.kubernetes.workloads import (
    CustomObject,
    Job,
    JobManifest,
    JobSet,
    JobSetManifest,
    PodGang,
    PodManifest,
    StatefulSet,
    StatefulSetManifest,
)
from healthd.core.api.meta import Slim
from healthd.core.api.recoveries import Recovery
from healthd.core.api.remediations import NodeRemediation
from healthd.core.api.root_copies import RootCopy


class Resource(NamedTuple):
    """How the API names a kind."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    has_status: bool
    """Status is a subresource: the main verbs leave it alone."""
    alias: str = ""
    """What healthd calls the kind where another has the same name."""
    writes_status: bool = False
    """healthd writes the status of such objects, although it is another controller's."""

    @property
    def name(self) -> str:
        """What healthd calls the kind: no other one is called so."""
        return self.alias or self.kind

    @property
    def stored_as(self) -> str:
        """What its objects are kept as in one store: the plural, with the group where another kind has the same one."""
        return f"{self.plural}.{self.api_version.partition('/')[0]}" if self.alias else self.plural


RESOURCES: dict[type[Slim], Resource] = {
    Node: Resource("v1", "Node", "nodes", namespaced=False, has_status=True),
    Namespace: Resource("v1", "Namespace", "namespaces", namespaced=False, has_status=True),
    Pod: Resource("v1", "Pod", "pods", namespaced=True, has_status=True),
    Job: Resource("batch/v1", "Job", "jobs", namespaced=True, has_status=True),
    JobSet: Resource("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", namespaced=True, has_status=True),
    StatefulSet: Resource("apps/v1", "StatefulSet", "statefulsets", namespaced=True, has_status=True),
    Workload: Resource("kueue.x-k8s.io/v1beta1", "Workload", "workloads", namespaced=True, has_status=True),
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
    TokenReview: Resource(
        "authentication.k8s.io/v1", "TokenReview", "tokenreviews", namespaced=False, has_status=False
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
    HardwareHistory: Resource(
        "healthd.dev/v1alpha1", "HardwareHistory", "hardwarehistories", namespaced=True, has_status=False
    ),
    RootCopy: Resource("healthd.dev/v1alpha1", "RootCopy", "rootcopies", namespaced=True, has_status=False),
    NodeRemediation: Resource(
        "healthd.dev/v1alpha1", "NodeRemediation", "noderemediations", namespaced=True, has_status=True
    ),
}


def custom_type(
    api_version: str,
    kind: str,
    plural: str,
    alias: str = "",
    *,
    namespaced: bool = True,
    writes_status: bool = False,
) -> type[CustomObject]:
    """The type of the objects of a kind that is described by data. The same words give the same type."""
    resource = Resource(
        api_version, kind, plural, namespaced=namespaced, has_status=True, alias=alias, writes_status=writes_status
    )
    known = next((each for each, there in RESOURCES.items() if there == resource), None)
    if known is not None and issubclass(known, CustomObject):
        return known
    struct: Any = msgspec.defstruct(resource.name, [], bases=(CustomObject,), frozen=True, kw_only=True)
    made: type[CustomObject] = struct
    RESOURCES[made] = resource
    return made


AnyObject = (
    Node
    | Namespace
    | CustomObject
    | Pod
    | Job
    | JobSet
    | StatefulSet
    | PodGang
    | Workload
    | PodManifest
    | Lease
    | Occurrence
    | NodeHealth
    | Recovery
    | IncidentRecord
    | HardwareHistory
    | RootCopy
    | NodeRemediation
)


def to_wire(obj: AnyObject) -> dict[str, Any]:
    """The JSON object that an API server would be sent, with `apiVersion` and `kind`."""
    resource = RESOURCES[type(obj)]
    body: dict[str, Any] = msgspec.to_builtins(obj)
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}
